"""The verb transfer: models minus a reference model, under the same config."""

from __future__ import annotations

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
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.report import residual_notes, residual_table, write_residuals

app = verb()


@app.command()
def transfer(
    folders: RunsOrTable,
    reference: Annotated[
        str,
        typer.Option(metavar="MODEL", help="The model that is subtracted from the others."),
    ],
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print how each model differs from a reference model under the same config."""
    spare(out, *folders)
    done = open_run(folders, scale, within)
    table = done.transfer(reference)
    Output(out, as_json=as_json, as_csv=csv).show(
        heading(done),
        {"transfer": table},
        lambda: say("", residual_table(table), *residual_notes(table), *warning_lines(done)),
        write=write_residuals,
    )
