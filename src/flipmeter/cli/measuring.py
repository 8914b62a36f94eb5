"""The verb measure: the estimates of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from flipmeter.cli.app import AsJson, RunFolder, app, say
from flipmeter.cli.printing import print_run
from flipmeter.cli.showing import aspects_of, certificates_of, show_tables
from flipmeter.measure import ASPECTS, phase0_table, residuals
from flipmeter.report import (
    phase0_view,
    residual_notes,
    residual_table,
    residuals_csv,
    warned,
    write_residuals,
)
from flipmeter.runs import Run
from flipmeter.types import Problem


@app.command()
def measure(
    folder: RunFolder,
    greedy: Annotated[
        Path | None, typer.Option(help="The greedy run beside this stochastic one (Phase 0 table).")
    ] = None,
    phase0: Annotated[bool, typer.Option("--phase0", help="Only the paper's first table.")] = False,
    by_level: Annotated[
        bool, typer.Option("--residuals", help="What each level changes, and each model.")
    ] = False,
    show: Annotated[
        str | None,
        typer.Option(help=f"Only these tables: {', '.join(ASPECTS)}; or all."),
    ] = None,
    certify: Annotated[
        list[str] | None,
        typer.Option(help="Certify a claim: 'P1<0.10', 'P1-noise<0.05' (repeatable)."),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="A CSV of costs for --show worst: gold by given.")
    ] = None,
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all estimates as CSV.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all estimates (.parquet, .csv); residuals also as .md and .tex."),
    ] = None,
) -> None:
    """Print the estimates of a run, every number with its interval and n."""
    done = Run(folder)
    is_phase0 = phase0 or greedy is not None
    if sum([is_phase0, by_level, bool(show or certify)]) > 1:
        raise Problem("--residuals, --show and the Phase 0 table are different tables; ask for one")
    if by_level:
        _show_residuals(done, out, as_json=as_json, csv=csv)
        return
    if show or certify:
        show_tables(done, _tables(done, show, certify, costs), out, as_json=as_json, csv=csv)
        return
    if out is not None:
        _write_estimates(done.estimates, out)
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    elif csv:
        typer.echo(done.estimates.write_csv(), nl=False)
    elif is_phase0:
        say(warned(phase0_view(_phase0(done, greedy)), _warnings(done, greedy)))
    else:
        print_run(done, done.study)
        _mention_levels(done)


def _tables(
    done: Run, show: str | None, certify: list[str] | None, costs: Path | None
) -> dict[str, pl.DataFrame]:
    tables = aspects_of(done, show, costs) if show else {}
    return tables | ({"certificates": certificates_of(done, certify)} if certify else {})


def _warnings(done: Run, greedy: Path | None) -> dict[str, str]:
    """Return what is to be said under the Phase 0 table, of both its runs."""
    runs = {"stochastic": done} if greedy is None else {"greedy": Run(greedy), "stochastic": done}
    return {
        f"{rater} ({name})": text
        for name, run in runs.items()
        for rater, text in run.warnings.items()
    }


def _phase0(done: Run, greedy: Path | None) -> pl.DataFrame:
    if greedy is None:
        return phase0_table(done.estimates)
    return phase0_table(Run(greedy).estimates, done.estimates)


def _show_residuals(done: Run, out: Path | None, *, as_json: bool, csv: bool) -> None:
    table = residuals(done.decisions, done.study.contrasts, mode=done.study.mode)
    if out is not None:
        write_residuals(table, out)
    if as_json:
        about = {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}
        typer.echo(json.dumps(about | {"residuals": table.to_dicts()}, ensure_ascii=False))
    elif csv:
        typer.echo(residuals_csv(table), nl=False)
    else:
        warnings = [f"! {rater}: {warning}" for rater, warning in done.warnings.items()]
        say("", residual_table(table), *residual_notes(table), *warnings)


def _mention_levels(done: Run) -> None:
    levels = [level for level in done.decisions["level"].unique(maintain_order=True) if level]
    if levels:
        n = f"{len(levels)} level" + ("s" if len(levels) > 1 else "")
        say(f"{n} beside the base: `flipmeter measure {done.folder} --residuals` subtracts it")


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
