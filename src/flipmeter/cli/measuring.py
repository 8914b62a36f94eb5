"""The verb measure: the estimates of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from flipmeter.cli.app import AsJson, RunFolder, app, say
from flipmeter.cli.printing import print_run
from flipmeter.measure import phase0_table
from flipmeter.report import phase0_view, warned
from flipmeter.runs import Run
from flipmeter.types import Problem


@app.command()
def measure(
    folder: RunFolder,
    greedy: Annotated[
        Path | None, typer.Option(help="The greedy run beside this stochastic one (Phase 0 table).")
    ] = None,
    phase0: Annotated[bool, typer.Option("--phase0", help="Only the paper's first table.")] = False,
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all estimates as CSV.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write all estimates (.parquet, .csv).")] = None,
) -> None:
    """Print the estimates of a run, every number with its interval and n."""
    done = Run(folder)
    if out is not None:
        _write_estimates(done.estimates, out)
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    elif csv:
        typer.echo(done.estimates.write_csv(), nl=False)
    elif phase0 or greedy is not None:
        beside = Run(greedy).warnings if greedy is not None else {}
        say(warned(phase0_view(_phase0(done, greedy)), beside | done.warnings))
    else:
        print_run(done, done.study)


def _phase0(done: Run, greedy: Path | None) -> pl.DataFrame:
    if greedy is None:
        return phase0_table(done.estimates)
    return phase0_table(Run(greedy).estimates, done.estimates)


def _plain(done: Run) -> dict[str, Any]:
    return {
        "study": done.study.name,
        "mode": done.study.mode,
        "warnings": done.warnings,
        "estimates": done.estimates.to_dicts(),
        "verdicts": done.verdicts.to_dicts(),
    }


def _write_estimates(estimates: pl.DataFrame, out: Path) -> None:
    if out.suffix == ".parquet":
        estimates.write_parquet(out)
    elif out.suffix == ".csv":
        estimates.write_csv(out)
    else:
        raise Problem(f"cannot write {out}: the name must end in .parquet or .csv")
