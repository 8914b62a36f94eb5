"""Decisions written by hand, for tests that know what must come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

PAPER: dict[str, list[Any]] = {
    "label_format": ["numeric", "letter", "natural_language", "neutral_id"],
    "clarity": ["explicit", "minimal", "ordinal_explicit"],
    "mood": ["imperative", "interrogative", "indicative"],
    "separator": ["colon", "space", "tab"],
    "connector": ["newline", "space", "newline_tab"],
    "shots": [5, 0, 1, 3],
}
"""The prompt factors of the paper with their levels, the base first."""


def group(
    base: Sequence[int],
    reversed_: Sequence[int] | None = None,
    *,
    gold: Sequence[int] = (),
    items: Sequence[str] = (),
    views: Mapping[str, Sequence[int]] | None = None,
    **key: Any,
) -> pl.DataFrame:
    """Write the decisions of one group: its base view, its reversed view and others."""
    shown: dict[str, Sequence[int]] = {"base": base} | dict(views or {})
    if reversed_ is not None:
        shown["reversed"] = reversed_
    about = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 5} | key
    names = items or [f"i{place}" for place in range(len(base))]
    rows = [
        about
        | {"view": view, "repeat": 0, "item": name, "rank": rank, "prompt": f"{view} {name}"}
        | {"gold": gold[place] if gold else None}
        for view, ranks in shown.items()
        for place, (name, rank) in enumerate(zip(names, ranks, strict=True))
    ]
    return pl.DataFrame(rows, schema_overrides={"gold": pl.Int64})


def one(table: pl.DataFrame, metric: str, dataset: str = "", **which: Any) -> dict[str, Any]:
    """Return the row of a metric and dataset; "" is the mean over datasets."""
    return table.filter(metric=metric, dataset=dataset, **which).row(0, named=True)
