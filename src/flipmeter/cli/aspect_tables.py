"""Aspects and certificates of a run on stdout, for people or for a machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.output import Output
from flipmeter.cli.printing import heading
from flipmeter.measure import ASPECTS
from flipmeter.measure.panel.checked import Floats
from flipmeter.report import aspect_notes, aspect_table, certificate_table, warned
from flipmeter.run.results.aspects import aspects_of
from flipmeter.types import Problem


def aspects_named(done: Run, names: str, costs: Path | None) -> dict[str, pl.DataFrame]:
    """Measure the aspects that are named, with commas between them; `all` is every one."""
    wanted = list(ASPECTS) if names == "all" else [name.strip() for name in names.split(",")]
    return aspects_of(done.source, wanted, None if costs is None else _read_costs(costs))


def _read_costs(path: Path) -> Floats:
    """Read a matrix of costs: M rows (gold) of M numbers (given), with commas between them."""
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise Problem(f"cannot read costs from {path}: {error}") from error


def show_tables(
    done: Run, tables: Mapping[str, pl.DataFrame], output: Output, **about: str
) -> None:
    """Print tables of one run, or write them; `certificates` is one of their names."""

    def people() -> None:
        for name, table in tables.items():
            _print(done, name, table)

    output.show(heading(done) | about, tables, people, rows=_in_one(tables))


def _print(done: Run, name: str, table: pl.DataFrame) -> None:
    if table.is_empty():
        say("", f"{name}: this run has nothing to measure it on")
    elif name == "certificates":
        say("", warned(certificate_table(table), done.warnings))
    else:
        say("", warned(aspect_table(table, name), done.warnings), *aspect_notes(table))


def _in_one(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    named = [table.select(pl.lit(name).alias("aspect"), pl.all()) for name, table in tables.items()]
    return pl.concat(named, how="diagonal")
