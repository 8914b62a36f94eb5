"""The verb compare: two runs, item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, ScaleOption, TableOut, WithinOption, open_run, spare, verb
from flipmeter.cli.output import AsCsv, Output, warning_lines
from flipmeter.show.estimate_tables import comparison_table

app = verb()

FirstRun = Annotated[Path, typer.Argument(help="The baseline run, which is subtracted.")]
SecondRun = Annotated[Path, typer.Argument(help="The run that is compared with it.")]


@app.command()
def compare(
    first: FirstRun,
    second: SecondRun,
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print paired differences between two runs on the same items."""
    spare(out, first, second)
    runs = open_run([first], scale, within), open_run([second], scale, within)
    table = runs[0].compare(runs[1])
    about = {"first": runs[0].study.name, "second": runs[1].study.name}
    warnings = [line for run in runs for line in warning_lines(run)]
    Output(out, as_json=as_json, as_csv=csv).show(
        about,
        {"differences": table},
        lambda: say("", comparison_table(table, [str(run.folder) for run in runs]), *warnings),
    )
