"""The paper's first table (Phase 0) for a terminal, and as Markdown and LaTeX."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from flipmeter.report.estimate_tables import KEYS, intervals_of
from flipmeter.report.format import Record, bounds, p_value
from flipmeter.report.table import LATEX_HEAD, Cell, Column, Table, latex, markdown, write_table

NAMES = ("model", *KEYS[1:])
RATES = ("P1", "P2", "P3", "noise", "total")


def write_phase0(table: pl.DataFrame, path: Path) -> None:
    """Write the table to a file: all columns as .csv or .parquet, the paper's as .md or .tex."""
    write_table(
        table,
        path,
        {
            ".md": lambda rows: phase0_markdown(rows) + "\n",
            ".tex": lambda rows: phase0_latex(rows) + "\n",
        },
    )


def phase0_view(table: pl.DataFrame, mode: str = "") -> Table:
    """The table, intervals under their rates."""
    columns = [
        *(Column(key, is_name=True) for key in table.columns if key in NAMES),
        *(Column(name, partial(_cell, of=name), shade=-0.5) for name in RATES),
        Column("McNemar p", lambda row: p_value(row["p"])),
        Column("Sig.", lambda row: {1: "yes", 0: "no"}.get(row["sig"], "")),
    ]
    return Table.of(f"Flip rates with {intervals_of(mode)}", columns, table.to_dicts())


def phase0_markdown(table: pl.DataFrame) -> str:
    """The table in Markdown."""
    return markdown(phase0_view(table))


def phase0_latex(table: pl.DataFrame) -> str:
    """The table in LaTeX with booktabs, flip rates shaded by size: black text stays readable."""
    return LATEX_HEAD + latex(phase0_view(table))


def _cell(row: Record, of: str) -> Cell:
    value, low, high = (row.get(name) for name in (of, f"{of}_lo", f"{of}_hi"))
    return Cell(bounds(value, low, high).replace(" [", "\n[") or "–", value)
