"""Flip rates by slice of the items -> a table with a picture of every interval."""

from __future__ import annotations

from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.format import Record, percent, visible
from flipmeter.report.page.draw import axis_for, drawn
from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.page.markup import (
    MOST_ROWS,
    count,
    counts,
    groups_under,
    keyed,
    left_out,
    p_values,
    rate,
)
from flipmeter.report.table import Cell, Column, Table

MARKS = {"higher": "flips", "lower": "stable"}
"""The style of a slice that differs from the rest."""


def slices_grid(found: pl.DataFrame, column: str, contrast: str, items_at: str = "") -> Table:
    """The slices of a column by rater, highest first; `items_at` is where items are listed."""
    keys = [name for name in ("dataset", "level") if found[name].n_unique() > 1]
    known = found.filter(pl.col("n_clusters") > 0)

    def linked(row: Record) -> Cell:
        told = {name: row[name] for name in ("rater", "dataset", "level", "contrast")}
        told["level"] = told["level"] or NAMELESS["level"]
        query = urlencode({**told, "by": column, "slice": row["slice"], "show": "flipped"})
        link = Markup('<a href="{}?{}">{}</a>').format(items_at, query, visible(row["slice"]))
        return Cell(link if items_at else row["slice"], row["slice"])

    columns = [
        Column(visible(column), linked),
        *keyed(keys),
        Column("flips [95 %]", rate),
        drawn(
            axis_for(known["high"].to_list(), low=0.0),
            lambda row: MARKS.get(row["word"], "inconclusive"),
        ),
        Column("the rest", lambda row: Cell(percent(row["rest"]), row["rest"], "num")),
        Column("against the rest", _reading),
        p_values("p_holm", "p, Holm"),
        counts("n_clusters", "items"),
        Column("not read", lambda row: count(row["n_unreadable"] or None)),
    ]
    groups, cut = [], list[str]()
    for (rater,), rows in known.group_by("rater", maintain_order=True):
        ordered = rows.sort(*keys, "value", descending=[False] * len(keys) + [True])
        groups.append((str(rater), ordered.head(MOST_ROWS).to_dicts()))
        cut += left_out(len(rows) - MOST_ROWS, "rows", "narrow by model or level")
    how = (
        "Flip rates on readable pairs, seeds pooled, with the intervals of the verdicts. Each "
        "slice is compared with all others of its rater, dataset and level by exchanging items "
        f"between them, two-sided; p by Holm over all {len(known):,} rows. A red dot is higher "
        "than the rest, a ring lower, a grey dot not distinguishable."
    )
    listed = groups_under(columns, groups)
    return Table(f"{contrast} by {column}", columns, listed, [how, *cut], "forest slices")


def _reading(row: Record) -> Cell:
    word = row["word"]
    return Cell(word or "not tested", word, "" if word in MARKS else "why")
