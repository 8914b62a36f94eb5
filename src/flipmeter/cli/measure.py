"""The verb measure: the estimates of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from flipmeter.api import Run
from flipmeter.cli.aspect_tables import aspects_named, show_tables
from flipmeter.cli.config_tables import show_choices, show_forecasts
from flipmeter.cli.consoles import exit_by, say
from flipmeter.cli.options import AsJson, RunsOrTable, ScaleOption, open_run, spare, verb
from flipmeter.cli.output import AsCsv, Output
from flipmeter.cli.printing import heading, warning_lines
from flipmeter.measure import ASPECTS, phase0_table
from flipmeter.measure.inference.words import overall
from flipmeter.report import (
    CANNOT_SEE,
    effect_notes,
    effect_table,
    phase0_view,
    residual_notes,
    residual_table,
    warned,
    write_effects,
    write_residuals,
)
from flipmeter.types import Problem

app = verb()


@app.command()
def measure(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    greedy: Annotated[
        Path | None, typer.Option(help="The greedy run beside this stochastic one (Phase 0 table).")
    ] = None,
    phase0: Annotated[bool, typer.Option("--phase0", help="Only the paper's first table.")] = False,
    by_level: Annotated[
        bool, typer.Option("--residuals", help="What each level changes, and each model.")
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option("--transfer", help="Each model minus this one, under the same config."),
    ] = None,
    is_forecast: Annotated[
        bool, typer.Option("--forecast", help="What levels of a config add up to, and what it did.")
    ] = False,
    is_choice: Annotated[
        bool, typer.Option("--choose", help="The best level of each factor alone, as YAML.")
    ] = False,
    metric: Annotated[
        str | None, typer.Option(help="With --choose: for this metric only (acc, P1, ...).")
    ] = None,
    by_factor: Annotated[
        bool, typer.Option("--effects", help="What factors do, alone and with one another.")
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
    csv: AsCsv = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write all rows (.parquet, .csv); residuals also as .md and .tex, effects as .md."
        ),
    ] = None,
) -> None:
    """Print the estimates of a run or of a table of predictions, with their intervals and n.

    Several run folders are one: raters, datasets, seeds and levels add up. With --certify it exits
    with 0 if all claims are shown, 1 if one is refuted, 3 if one is not settled.
    """
    spare(out, *folders, greedy, costs)
    done = open_run(folders, scale)
    is_phase0 = phase0 or greedy is not None
    _refuse_two(
        {
            "--residuals": by_level,
            "--transfer": reference is not None,
            "--forecast": is_forecast,
            "--choose": is_choice,
            "--effects": by_factor,
            "--show and --certify": bool(show or certify),
            "the Phase 0 table": is_phase0,
        }
    )
    if metric is not None and not is_choice:
        raise Problem("--metric says what to choose for: it goes with --choose")
    output = Output(out, as_json=as_json, as_csv=csv)
    if is_choice and not output.is_for_reading:
        raise Problem("--choose prints YAML and nothing else; send it to a file with >")
    if is_choice:
        show_choices(done, metric)
    elif is_forecast:
        show_forecasts(done, output)
    elif show or certify:
        _show_aspects(done, _tables(done, show, certify, costs), output)
    elif by_factor:
        _show_effects(done, output)
    elif by_level or reference is not None:
        _show_residuals(done, reference, output)
    else:
        _show_estimates(done, output, phase0=is_phase0, greedy=greedy)


def _refuse_two(tables: Mapping[str, bool]) -> None:
    asked = [name for name, is_asked in tables.items() if is_asked]
    if len(asked) > 1:
        raise Problem(f"{' and '.join(asked)} are {len(asked)} tables; ask for one")


def _show_estimates(done: Run, output: Output, *, phase0: bool, greedy: Path | None) -> None:
    def people() -> None:
        if phase0:
            say(warned(phase0_view(_phase0(done, greedy)), _warnings(done, greedy)))
        else:
            say(*done.tables())

    tables = {"estimates": done.estimates, "verdicts": done.verdicts}
    output.show(heading(done), tables, people, rows=done.estimates)


def _tables(
    done: Run, show: str | None, certify: list[str] | None, costs: Path | None
) -> dict[str, pl.DataFrame]:
    tables = aspects_named(done, show, costs) if show else {}
    return tables | ({"certificates": done.certify(*certify)} if certify else {})


def _show_aspects(done: Run, tables: Mapping[str, pl.DataFrame], output: Output) -> None:
    """Print tables; with certificates among them, end with the exit code of their word."""
    if "certificates" not in tables:
        show_tables(done, tables, output)
        return
    word = overall(tables["certificates"]["word"])
    show_tables(done, tables, output, word=word)
    exit_by(word)


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


def _show_residuals(done: Run, reference: str | None, output: Output) -> None:
    study = done.study
    table = done.residuals(reference=reference)

    def people() -> None:
        is_blind = reference is None and study.design == "one-at-a-time" and len(study.vary) > 1
        blind = [CANNOT_SEE] if is_blind else []
        say("", residual_table(table), *residual_notes(table), *blind, *warning_lines(done))

    output.show(heading(done), {"residuals": table}, people, write=write_residuals)


def _show_effects(done: Run, output: Output) -> None:
    table = done.effects()
    output.show(
        heading(done),
        {"effects": table},
        lambda: say("", effect_table(table), *effect_notes(table), *warning_lines(done)),
        write=write_effects,
    )
