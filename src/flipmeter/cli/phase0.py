"""The verb phase0: the paper's first table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.consoles import say
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
from flipmeter.cli.printing import heading
from flipmeter.report import phase0_view, warned, write_phase0

app = verb()


@app.command()
def phase0(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    within: WithinOption = None,
    greedy: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A greedy run for P1, P2 and P3; noise and p still come from RUN."
        ),
    ] = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print the paper's first table: P1, P2, P3, noise and McNemar's test, one row per model."""
    spare(out, *folders, greedy)
    done = open_run(folders, scale, within)
    other = (
        None
        if greedy is None
        else open_run([greedy], *((scale, within) if greedy.is_file() else ()))
    )
    table = done.phase0(other)
    warnings = dict(done.warnings)
    if other is not None:
        runs = {"greedy": other, "stochastic": done}
        warnings = {
            f"{rater} ({name})": text
            for name, run in runs.items()
            for rater, text in run.warnings.items()
        }
    Output(out, as_json=as_json, as_csv=csv).show(
        heading(done) | {"warnings": warnings},
        {"phase0": table},
        lambda: say("", warned(phase0_view(table, done.study.mode), warnings)),
        write=write_phase0,
    )
