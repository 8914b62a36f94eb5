"""The verb effects: what factor levels change, alone, together and from model to model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import RenderableType

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
from flipmeter.cli.output import AsCsv, Output, heading, on_run, warning_lines
from flipmeter.show.residuals import residual_notes, residual_table
from flipmeter.show.screen import CANNOT_SEE, interaction_notes, interaction_table, write_effects

app = verb()

NEEDS = "! interactions need statsmodels: pip install 'flipmeter[effects]'"


@app.command()
def effects(
    folders: RunsOrTable,
    reference: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Also subtract this model from the others."),
    ] = None,
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print what each factor level changes from the base, and what two change together."""
    spare(out, *folders)
    done = open_run(folders, scale, within)
    tables = {"residuals": done.residuals()}
    if reference is not None:
        tables["transfer"] = done.transfer(reference)
    if is_crossed := done.study.design == "factorial":
        tables |= {"interactions": done.effects()} if find_spec("statsmodels") else {}
    blind = [CANNOT_SEE] if not is_crossed and len(done.study.vary) > 1 else []
    blind += [NEEDS] if is_crossed and "interactions" not in tables else []

    def people() -> None:
        say("", *_effect_tables(tables), *blind, *warning_lines(done))

    def write(rows: pl.DataFrame, path: Path) -> None:
        write_effects(tables, rows, path)

    # Rows of a file: all tables below each other, with the columns of each.
    named = [table.with_columns(table=pl.lit(name)) for name, table in tables.items()]
    rows = pl.concat(named, how="diagonal_relaxed") if len(named) > 1 else tables["residuals"]
    steps = on_run(done)
    Output(out, as_json=as_json, as_csv=csv).show(
        heading(done), tables, people, rows=rows, write=write, steps=steps
    )


def _effect_tables(tables: dict[str, pl.DataFrame]) -> list[RenderableType]:
    shown: list[RenderableType] = []
    for name, table in tables.items():
        if name == "interactions":
            shown += [interaction_table(table), *interaction_notes(table)]
        else:
            shown += [residual_table(table), *residual_notes(table)]
    return shown
