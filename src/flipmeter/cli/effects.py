"""The verb effects: main effects and interactions of prompt factors."""

from __future__ import annotations

from flipmeter.cli.consoles import say
from flipmeter.cli.next_commands import on_run
from flipmeter.cli.options import (
    AsJson,
    RunsOrTable,
    ScaleOption,
    TableOut,
    WithinOption,
    open_run,
    spare,
    verb,
)
from flipmeter.cli.output import AsCsv, Output
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.report import effect_notes, effect_table, write_effects

app = verb()


@app.command()
def effects(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print main effects of the varied factors and their two-way interactions."""
    spare(out, *folders)
    done = open_run(folders, scale, within)
    table = done.effects()
    Output(out, as_json=as_json, as_csv=csv).show(
        heading(done),
        {"effects": table},
        lambda: say("", effect_table(table), *effect_notes(table), *warning_lines(done)),
        write=write_effects,
        steps=on_run(done),
    )
