"""The verb measure: the estimates of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from flipmeter.cli.app import AsJson, RunFolder, app, say
from flipmeter.cli.printing import print_run
from flipmeter.measure import effects, phase0_table, residuals
from flipmeter.report import (
    CANNOT_SEE,
    effect_notes,
    effect_table,
    phase0_view,
    residual_notes,
    residual_table,
    residuals_csv,
    warned,
    write_effects,
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
    by_factor: Annotated[
        bool, typer.Option("--effects", help="What factors do, alone and with one another.")
    ] = False,
    as_json: AsJson = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print all estimates as CSV.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all estimates (.parquet, .csv); effects also as .md, residuals as .tex too."
        ),
    ] = None,
) -> None:
    """Print the estimates of a run, every number with its interval and n."""
    done = Run(folder)
    if by_level or by_factor:
        if by_level + by_factor + (phase0 or greedy is not None) > 1:
            raise Problem("--residuals, --effects and the Phase 0 table are not one; ask for one")
        show = _show_residuals if by_level else _show_effects
        show(done, out, as_json=as_json, csv=csv)
        return
    if out is not None:
        _write_estimates(done.estimates, out)
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    elif csv:
        typer.echo(done.estimates.write_csv(), nl=False)
    elif phase0 or greedy is not None:
        say(warned(phase0_view(_phase0(done, greedy)), _warnings(done, greedy)))
    else:
        print_run(done, done.study)
        _mention_levels(done)


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
        is_blind = done.study.design == "one-at-a-time" and len(done.study.vary) > 1
        blind = [CANNOT_SEE] if is_blind else []
        say("", residual_table(table), *residual_notes(table), *blind, *warnings)


def _show_effects(done: Run, out: Path | None, *, as_json: bool, csv: bool) -> None:
    table = effects(done.decisions, done.study.contrasts, mode=done.study.mode)
    if out is not None:
        write_effects(table, out)
    if as_json:
        about = {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}
        typer.echo(json.dumps(about | {"effects": table.to_dicts()}, ensure_ascii=False))
    elif csv:
        typer.echo(residuals_csv(table), nl=False)
    else:
        warnings = [f"! {rater}: {warning}" for rater, warning in done.warnings.items()]
        say("", effect_table(table), *effect_notes(table), *warnings)


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
