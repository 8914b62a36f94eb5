"""Interactions as a table: pairs of factors with their levels down, metrics across."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from flipmeter.report.estimate_tables import p_value
from flipmeter.report.residuals import (
    Record,
    factor_title,
    level_title,
    metric_title,
    plain_points,
    points,
)
from flipmeter.report.table_files import (
    escape_markdown,
    residuals_latex,
    residuals_markdown,
    write_table,
)
from flipmeter.types import ALPHA

CANNOT_SEE = (
    "! one factor at a time: this run cannot see interactions, and the sum of single effects may "
    "mislead; use `design: factorial`"
)
ABOUT = (
    "p: Wald test that a pair of factors only adds up, linear model, errors by item; "
    f"** below {ALPHA} by Holm over all tests of a rater, * by Benjamini and Hochberg only",
    "a level: what the two do together beyond the sum of each alone, x 100 [95 %]; given these "
    "cells, datasets and seeds",
)
INTERACTIONS = "interactions"
Line = tuple[str, bool, tuple[str, ...]]
"""A title, whether it stands for a test, and a cell for each metric."""


def interaction_table(table: pl.DataFrame) -> Table:
    """Interactions for a terminal; `interaction_notes` belong under them."""
    shown = Table(
        "",
        *map(metric_title, _metrics(table)),
        title="Interactions of two factors",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for title, is_test, cells in _lines(table):
        name = Text(title if is_test else f"  {title}", style="bold" if is_test else "")
        shown.add_row(name, *map(Text, cells))
    return shown


def interaction_notes(table: pl.DataFrame) -> list[str]:
    """The notes of the table."""
    n_cells, n_items = table.select(pl.max("n_cells", "n_items")).row(0)
    notes = table.filter(pl.col("note") != "", level="")
    told = [
        f"{', '.join(dict.fromkeys(map(term_title, rows['term'])))}: {note}"
        for (note,), rows in notes.group_by("note", maintain_order=True)
    ]
    mode = f"mode: {table['mode'][0]}; {n_cells} cells, {n_items} items"
    return [mode, *ABOUT, *told]


def interactions_markdown(table: pl.DataFrame) -> str:
    """The table in Markdown, with its notes as a list."""
    titles = [escape_markdown(metric_title(metric)) for metric in _metrics(table)]
    rows = [["factors", "levels", *titles], ["---"] * (2 + len(titles))]
    for title, is_test, cells in _lines(table):
        names = (title, "") if is_test else ("", title)
        rows.append([escape_markdown(text) for text in (*names, *cells)])
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = (f"- {escape_markdown(note)}\n" for note in interaction_notes(table))
    return f"{lines}\n\n{''.join(notes)}"


def term_title(term: str) -> str:
    """A pair of factors in words: "Label format × Demo count"."""
    return " × ".join(map(factor_title, term.split(":")))


def _metrics(table: pl.DataFrame) -> list[str]:
    return table["metric"].unique(maintain_order=True).to_list()


def _lines(table: pl.DataFrame) -> Iterator[Line]:
    metrics, n_raters = _metrics(table), table["rater"].n_unique()
    for (rater, term), rows in table.group_by("rater", "term", maintain_order=True):
        title = term_title(str(term))
        whose = " · ".join([str(rater)] * (n_raters > 1) + [title])
        yield whose, True, _cells(rows.filter(level=""), metrics, _test_text)
        levels = rows.filter(pl.col("level") != "")
        for (level,), own in levels.group_by("level", maintain_order=True):
            pair = zip(str(term).split(":"), str(level).split(","), strict=True)
            title = " × ".join(level_title(*each) for each in pair)
            yield title, False, _cells(own, metrics, _level_text)


def _cells(
    rows: pl.DataFrame, metrics: list[str], text: Callable[[Record], str]
) -> tuple[str, ...]:
    found = {row["metric"]: row for row in rows.to_dicts()}
    return tuple(text(found[metric]) if metric in found else "" for metric in metrics)


def _test_text(row: Record) -> str:
    if row["p"] is None:
        return "-"
    stars = {"holm": " **", "bh": " *"}.get(row["found_by"], "")
    return f"p {p_value(row['p'])}{stars}"


def _level_text(row: Record) -> str:
    if row["value"] is None:
        return "-"
    ends = f"[{plain_points(row['low'])}, {plain_points(row['high'])}]"
    return f"{points(row['value'])} {ends}"


def write_effects(tables: Mapping[str, pl.DataFrame], rows: pl.DataFrame, path: Path) -> None:
    """Write residuals, transfer and interactions to a file: all `rows`, or the tables as text."""

    def markdown(_: pl.DataFrame) -> str:
        return "\n".join(
            interactions_markdown(table) if name == INTERACTIONS else residuals_markdown(table)
            for name, table in tables.items()
        )

    def latex(_: pl.DataFrame) -> str:
        known = (table for name, table in tables.items() if name != INTERACTIONS)
        return "\n".join(map(residuals_latex, known))

    write_table(rows, path, {".md": markdown, ".tex": latex})
