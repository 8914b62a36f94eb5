"""Flip rates by slice of the items -> a table with a picture of every interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.format import interval, p_value, visible
from flipmeter.report.page.draw import Axis, axis_for, scale, span
from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.page.markup import Cell, Grid, RowGroup, capped, count

MARKS = {"higher": "flips", "lower": "stable"}
"""The style of a slice that differs from the rest."""


def slices_grid(found: pl.DataFrame, column: str, contrast: str, items_at: str = "") -> Grid:
    """The slices of a column by rater, highest first; `items_at` is where items are listed."""
    keys = [name for name in ("dataset", "level") if found[name].n_unique() > 1]
    known = found.filter(pl.col("n_clusters") > 0)
    axis = axis_for(known["high"].to_list(), low=0.0)
    groups = []
    for (rater,), rows in known.group_by("rater", maintain_order=True):
        ordered = rows.sort(*keys, "value", descending=[False] * len(keys) + [True])
        shown, notes = capped(
            [_row(row, keys, axis, column, items_at) for row in ordered.iter_rows(named=True)],
            "narrow by model or level",
        )
        groups.append((RowGroup(shown, str(rater)), notes))
    heads: list[str | Markup] = [visible(column), *keys, "flips [95 %]", scale(axis)]
    how = (
        "Flip rates on readable pairs, seeds pooled, with the intervals of the verdicts. Each "
        "slice is compared with all others of its rater, dataset and level by exchanging items "
        f"between them, two-sided; p by Holm over all {len(known):,} rows. A red dot is higher "
        "than the rest, a ring lower, a grey dot not distinguishable."
    )
    return Grid(
        f"{contrast} by {column}",
        [*heads, "the rest", "against the rest", "p, Holm", "items", "not read"],
        [group for group, _ in groups],
        [how, *(note for _, notes in groups for note in notes)],
        "forest slices",
    )


def _row(
    row: Mapping[str, Any], keys: list[str], axis: Axis, column: str, items_at: str
) -> list[Cell]:
    told = {name: row[name] for name in ("rater", "dataset", "level", "contrast")}
    told["level"] = told["level"] or NAMELESS["level"]
    query = urlencode({**told, "by": column, "slice": row["slice"], "show": "flipped"})
    name = visible(row["slice"])
    link = Markup('<a href="{}">{}</a>').format(f"{items_at}?{query}", name) if items_at else name
    bounds = (row["value"], row["low"], row["high"])
    rest = "" if row["rest"] is None else f"{100 * row['rest']:.1f} %"
    return [
        Cell(link, row["slice"]),
        *(Cell(row[key] or NAMELESS.get(key, ""), row[key]) for key in keys),
        Cell(interval(row), row["value"], "num"),
        Cell(span(axis, bounds, None, MARKS.get(row["word"], "inconclusive")), None, "picture"),
        Cell(rest, row["rest"], "num"),
        Cell(row["word"] or "not tested", row["word"], "why" if row["word"] not in MARKS else ""),
        Cell("" if row["p_holm"] is None else p_value(row["p_holm"]), row["p_holm"], "num"),
        count(row["n_clusters"]),
        count(row["n_unreadable"] or None),
    ]
