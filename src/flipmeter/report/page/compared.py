"""Two runs -> a table: the second minus the first, with McNemar's counts and a word."""

from __future__ import annotations

import polars as pl

from flipmeter.report.format import Record
from flipmeter.report.page.markup import counts, keyed, p_values, page_table
from flipmeter.report.residuals import metric_title
from flipmeter.report.table import Cell, Column, Table

KEYS = ("rater", "level", "dataset")


def comparison_grid(comparison: pl.DataFrame) -> Table:
    """Every difference in points; columns with one value for all rows are left out."""
    columns = [
        Column("metric", lambda row: Cell(metric_title(row["metric"]), row["metric"])),
        *keyed(
            [key for key in KEYS if comparison[key].n_unique() > 1],
            {"dataset": "all", "level": "base"},
        ),
        Column("difference [95 %]", _difference),
        counts("b", "only 2nd"),
        counts("c", "only 1st"),
        p_values("p", "p, McNemar"),
        p_values("p_holm", "Holm"),
        p_values("p_bh", "BH"),
        counts("n"),
        Column("reading", _reading),
    ]
    how = (
        "Points: the second run minus the first, on the items that both have. Bootstrap over "
        "items, 95 %, given the datasets and seeds. The verdict follows the interval. 'Only' "
        "counts items that only one run gets right, or flips; p is McNemar's, two-sided mid-p, "
        "where there is one seed, followed by the p-values of Holm and of Benjamini and Hochberg."
    )
    title, kind = "The second run minus the first, x 100", "plain differences"
    more = "flipmeter compare FIRST SECOND --csv"
    return page_table(title, columns, comparison.to_dicts(), [how], more, kind=kind)


def _difference(row: Record) -> Cell:
    if row["value"] is None:
        return Cell("", None, "num")
    ends = "" if row["low"] is None else f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    return Cell(f"{row['value']:+.1f}{ends}", row["value"], "num")


def _reading(row: Record) -> Cell:
    if row["value"] is None:
        return Cell(row["note"] or row["word"], row["word"], "why")
    is_told = row["word"] != "not distinguishable"
    return Cell(row["word"], row["word"], "word flips" if is_told else "why")
