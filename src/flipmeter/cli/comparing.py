"""The verb compare: two runs, item by item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import AsJson, app, say
from flipmeter.measure import compare as compare_decisions
from flipmeter.report import comparison_table, residuals_csv
from flipmeter.runs import Run
from flipmeter.types import Problem

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
    known = {contrast.name: contrast for contrast in runs[0].study.contrasts}
    shared = [c for c in runs[1].study.contrasts if known.get(c.name) == c]
    if runs[0].study.mode != runs[1].study.mode:
        modes = " and ".join(run.study.mode for run in runs)
        raise Problem(f"the runs are in different modes, {modes}; compare runs of one mode")
    table = compare_decisions(runs[0].decisions, runs[1].decisions, shared)
    if as_json:
        about = {"first": runs[0].study.name, "second": runs[1].study.name}
        typer.echo(json.dumps(about | {"differences": table.to_dicts()}, ensure_ascii=False))
    elif csv:
        typer.echo(residuals_csv(table), nl=False)
    else:
        names = [f"{run.folder}" for run in runs]
        warnings = [f"! {rater}: {text}" for run in runs for rater, text in run.warnings.items()]
        say("", comparison_table(table, names), *warnings)
