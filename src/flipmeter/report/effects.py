"""Interactions as a table: pairs of factors with their levels down, metrics across."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from flipmeter.report.format import Record, p_value, points_between
from flipmeter.report.residuals import (
    factor_title,
    level_title,
    metric_title,
    residuals_latex,
    residuals_markdown,
)
from flipmeter.report.table import Cell, Table, groups_of, markdown, write_table
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


def interaction_table(table: pl.DataFrame) -> Table:
    """Interactions for a terminal; `interaction_notes` belong under them."""
    rows: list[list[str | Cell]] = [[name, *cells] for name, cells in _lines(table)]
    titles = map(metric_title, _metrics(table))
    return Table("Interactions of two factors", ["", *titles], groups_of(rows), lines="head")


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
    rows = [
        [name.text, "", *cells] if name.kind else ["", name.text.strip(), *cells]
        for name, cells in _lines(table)
    ]
    heads = ["factors", "levels", *map(metric_title, _metrics(table))]
    return markdown(Table("", heads, groups_of(rows), interaction_notes(table)))


def term_title(term: str) -> str:
    """A pair of factors in words: "Label format × Demo count"."""
    return " × ".join(map(factor_title, term.split(":")))


def _metrics(table: pl.DataFrame) -> list[str]:
    return table["metric"].unique(maintain_order=True).to_list()


def _lines(table: pl.DataFrame) -> Iterator[tuple[Cell, list[str]]]:
    """A test of two factors, by name, then each pair of their levels; a text for each metric."""
    metrics, n_raters = _metrics(table), table["rater"].n_unique()
    for (rater, term), rows in table.group_by("rater", "term", maintain_order=True):
        title = term_title(str(term))
        whose = " · ".join([str(rater)] * (n_raters > 1) + [title])
        yield Cell(whose, kind="name"), _texts(rows.filter(level=""), metrics)
        levels = rows.filter(pl.col("level") != "")
        for (level,), own in levels.group_by("level", maintain_order=True):
            pair = zip(str(term).split(":"), str(level).split(","), strict=True)
            title = " × ".join(level_title(*each) for each in pair)
            yield Cell(f"  {title}"), _texts(own, metrics)


def _texts(rows: pl.DataFrame, metrics: list[str]) -> list[str]:
    found = {row["metric"]: row for row in rows.to_dicts()}
    return [_text(found[metric]) if metric in found else "" for metric in metrics]


def _text(row: Record) -> str:
    """The test of a pair of factors, or the points of a pair of levels."""
    if row["level"] and row["value"] is not None:
        return points_between(row["value"], row["low"], row["high"])
    if row["level"] or row["p"] is None:
        return "-"
    stars = {"holm": " **", "bh": " *"}.get(row["found_by"], "")
    return f"p {p_value(row['p'])}{stars}"


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
