"""Two runs -> a grid: the second minus the first, with McNemar's counts and a word."""

from __future__ import annotations

import polars as pl

from flipmeter.report.format import p_value
from flipmeter.report.page.markup import Cell, Grid, Record, RowGroup, capped, count, heads
from flipmeter.report.residuals import metric_title

KEYS = ("rater", "level", "dataset")


def comparison_grid(comparison: pl.DataFrame) -> Grid:
    """Every difference in points; columns with one value for all rows are left out."""
    keys = [key for key in KEYS if comparison[key].n_unique() > 1]
    rows = [_row(row, keys) for row in comparison.to_dicts()]
    shown, left_out = capped(rows, "flipmeter compare FIRST SECOND --csv")
    titles = ["metric", *heads(keys), "difference [95 %]", "only 2nd", "only 1st"]
    how = (
        "Points: the second run minus the first, on the items that both have. Bootstrap over "
        "items, 95 %, given the datasets and seeds. The verdict follows the interval. 'Only' "
        "counts items that only one run gets right, or flips; p is McNemar's, two-sided mid-p, "
        "where there is one seed, followed by the p-values of Holm and of Benjamini and Hochberg."
    )
    return Grid(
        "The second run minus the first, x 100",
        [*titles, "p, McNemar", "Holm", "BH", "n", "reading"],
        [RowGroup(shown)],
        [how, *left_out],
        "plain differences",
    )


def _row(row: Record, keys: list[str]) -> list[Cell]:
    nameless = {"dataset": "all", "level": "base"}
    is_told = row["value"] is not None and row["word"] != "not distinguishable"
    reading = row["word"] if row["value"] is not None else row["note"] or row["word"]
    return [
        Cell(metric_title(row["metric"]), row["metric"]),
        *(Cell(str(row[key]) or nameless.get(key, ""), row[key]) for key in keys),
        _difference(row),
        count(row["b"]),
        count(row["c"]),
        *(Cell(p_value(row[name]), row[name], "num") for name in ("p", "p_holm", "p_bh")),
        count(row["n"]),
        Cell(reading, row["word"], "word flips" if is_told else "why"),
    ]


def _difference(row: Record) -> Cell:
    if row["value"] is None:
        return Cell("", None, "num")
    ends = "" if row["low"] is None else f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    return Cell(f"{row['value']:+.1f}{ends}", row["value"], "num")
