"""The paper's first table (Phase 0) for a terminal, and as Markdown and LaTeX."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from rich.table import Table
from rich.text import Text

from flipmeter.report.estimate_tables import KEYS, intervals_of, p_value
from flipmeter.report.latex import (
    LATEX_HEAD,
    Block,
    escape_latex,
    latex_name,
    latex_stack,
    latex_tables,
)
from flipmeter.report.residuals import Record
from flipmeter.report.table_files import markdown_table, shade_of, write_table

RATES = ("P1", "P2", "P3", "noise", "total")
HEADS = (*RATES, "McNemar p", "Sig.")


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


def phase0_view(table: pl.DataFrame, mode: str) -> Table:
    """The table for a terminal, intervals under their rates."""
    keys = _keys(table)
    shown = Table(*keys, *HEADS, title=f"Flip rates with {intervals_of(mode)}")
    shown.title_justify = "left"
    for row in table.to_dicts():
        cells = (_cell(row, name).replace(" [", "\n[") for name in RATES)
        names = (Text(str(row[key])) for key in keys)
        shown.add_row(*names, *map(Text, cells), p_value(row["p"]), _sig(row))
    return shown


def phase0_markdown(table: pl.DataFrame) -> str:
    """The table in Markdown."""
    keys = _keys(table)
    rows = [[*keys, *HEADS]]
    for row in table.to_dicts():
        cells = [_cell(row, name) for name in RATES]
        rows.append([*(str(row[key]) for key in keys), *cells, p_value(row["p"]), _sig(row)])
    return markdown_table(rows)


def phase0_latex(table: pl.DataFrame) -> str:
    """The table in LaTeX with booktabs, flip rates shaded by size."""
    keys, rows = _keys(table), table.to_dicts()
    known = [row[name] for row in rows for name in RATES if row.get(name) is not None]
    largest = max(known, default=0.0)
    heads = [" & ".join(escape_latex(title) for title in (*keys, *HEADS)) + r" \\"]
    blocks = (
        Block(
            [
                [
                    *(latex_name(str(row[key])) for key in keys),
                    *(_latex_cell(row, name, largest) for name in RATES),
                    _latex_p(p_value(row["p"])),
                    _sig(row),
                ]
            ]
        )
        for row in rows
    )
    columns = "l" * len(keys) + "c" * len(HEADS)
    return LATEX_HEAD + latex_tables(columns, heads, blocks)


def _keys(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name in ("model", *KEYS[1:])]


def _cell(row: Record, name: str) -> str:
    if row.get(name) is None:
        return "–"
    if row[f"{name}_lo"] is None:  # ruled out by construction
        return f"{row[name]:.3f}"
    return f"{row[name]:.3f} [{row[f'{name}_lo']:.3f}, {row[f'{name}_hi']:.3f}]"


def _sig(row: Record) -> str:
    return {1: "yes", 0: "no"}.get(row["sig"], "")


def _latex_cell(row: Record, name: str, largest: float) -> str:
    value = row.get(name)
    if value is None:
        return "--"
    if row[f"{name}_lo"] is None:  # ruled out by construction
        return f"{value:.3f}"
    ends = f"{{\\scriptsize [{row[f'{name}_lo']:.3f}, {row[f'{name}_hi']:.3f}]}}"
    shown = latex_stack([f"{value:.3f}", ends])
    shade = shade_of(value, largest) // 2  # half the strength keeps black text readable
    return f"\\cellcolor{{residualNegative!{shade}}}{shown}" if value else shown


def _latex_p(text: str) -> str:
    return f"${text}$" if text else ""
