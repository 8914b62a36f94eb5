"""The verb compare: two runs, item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import AsJson, app, say
from flipmeter.findings import differences
from flipmeter.report import comparison_table, residuals_csv
from flipmeter.runs import Run

FirstRun = Annotated[Path, typer.Argument(help="The run that is subtracted.")]
SecondRun = Annotated[Path, typer.Argument(help="The run it is subtracted from.")]


@app.command()
def compare(
    first: FirstRun,
    second: SecondRun,
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all differences as CSV.")] = False,
) -> None:
    """Print what differs between two runs on the same items, and what cannot be told apart."""
    runs = Run(first), Run(second)
    table = differences(*runs)
    if as_json:
        about = {"first": runs[0].study.name, "second": runs[1].study.name}
        typer.echo(json.dumps(about | {"differences": table.to_dicts()}, ensure_ascii=False))
    elif csv:
        typer.echo(residuals_csv(table), nl=False)
    else:
        names = [f"{run.folder}" for run in runs]
        warnings = [f"! {rater}: {text}" for run in runs for rater, text in run.warnings.items()]
        say("", comparison_table(table, names), *warnings)
