"""Run -> columns of its items: what items can be told apart by, as names of slices."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.report.findings import class_name
from flipmeter.run.record.folder import Run
from flipmeter.run.record.generation import ITEMS
from flipmeter.types import Problem

GOLD, LENGTH = "gold class", "length"
KEY = ("dataset", "item")
MOST_VALUES = 20
"""Values of one column that are slices of their own; the rarer ones are one together."""
QUARTERS = (0.25, 0.5, 0.75)
OTHERS = "other values"
NONE = "none"
"""The name of a missing value."""


def item_texts(run: Run, text: str = "") -> pl.LazyFrame:
    """Dataset, id, text and gold of every rated item in the order of the study, not yet read.

    With a text, the items that have it in their id, text or fields, in capitals or not.
    """
    tested = run.scan(ITEMS).filter(pl.col("role") == "test").with_row_index("nth")
    found = tested.rename({"id": "item"})
    if not text.strip():
        return found
    sought = text.strip().lower()
    return found.filter(
        pl.any_horizontal(
            pl.col(name).fill_null("").str.to_lowercase().str.contains(sought, literal=True)
            for name in ("item", "text", "fields")
        )
    )


@dataclass(frozen=True)
class ItemColumns:
    """The value of every rated item (a row of `keys`) in every column, by column name."""

    keys: pl.DataFrame
    by_name: Mapping[str, pl.Series]

    def of(self, name: str) -> pl.DataFrame:
        """Dataset, item and `slice` of one column."""
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise Problem(f"no column '{name[:80]}' to slice by; known: {known}")
        return self.keys.with_columns(self.by_name[name].alias("slice"))


def item_columns(run: Run) -> ItemColumns:
    """Whatever the items of a run can be told apart by: gold class, length, columns of the data."""
    names = run.scan(ITEMS).collect_schema().names()
    own = [name for name in ("fields", "columns") if name in names]
    length = pl.col("text").str.len_chars().cast(pl.Float64)
    items = item_texts(run).select(*KEY, "gold", *own, n_chars=length).pipe(collected)
    found = {
        GOLD: pl.Series(_golds(run, items), dtype=pl.String),
        LENGTH: _binned(items["n_chars"], "characters"),
        **{name: _sliced(values) for name, values in _told(items, own)},
    }
    several = {name: values for name, values in found.items() if values.n_unique() > 1}
    return ItemColumns(items.select(KEY), several)


def _golds(run: Run, items: pl.DataFrame) -> list[str]:
    scales = run.scales
    rows = items.select("dataset", "gold").iter_rows()
    decimal = {name for name, scale in scales.items() if scale.span is not None}
    return [
        NONE if gold is None or dataset in decimal else class_name(scales, dataset, gold)
        for dataset, gold in rows
    ]


def _told(items: pl.DataFrame, own: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the fields and columns that items have beside their texts."""
    for source in own:
        rows: list[Mapping[str, object]] = [
            json.loads(text) if text else {} for text in items[source].to_list()
        ]
        names = dict.fromkeys(name for row in rows for name in row if name != "text")
        for name in names:
            yield name, [str(row.get(name) or NONE) for row in rows]


def _sliced(values: list[str]) -> pl.Series:
    """A column as slices: a range of numbers in quarters, else its most frequent values."""
    texts = pl.Series("value", values, dtype=pl.String)
    if texts.n_unique() <= MOST_VALUES:
        return texts
    numbers = texts.replace(NONE, None).cast(pl.Float64, strict=False)
    if numbers.null_count() == (texts == NONE).sum():
        return _binned(numbers)
    counts = texts.value_counts(sort=True).head(MOST_VALUES - 1)
    often = set(counts.filter(pl.col("count") > 1)["value"])
    return pl.Series([value if value in often else OTHERS for value in values], dtype=pl.String)


def _binned(numbers: pl.Series, unit: str = "") -> pl.Series:
    """Numbers by quarter of the items: about as many in every one."""
    cuts = sorted({float(cut) for part in QUARTERS if (cut := numbers.quantile(part)) is not None})
    end = f" {unit}" if unit else ""

    def called(value: float | None) -> str:
        if value is None:
            return NONE
        at = bisect_left(cuts, value)
        low = f"above {cuts[at - 1]:g}" if at else ""
        high = f"up to {cuts[at]:g}" if at < len(cuts) else ""
        return f"{', '.join(filter(None, (low, high)))}{end}"

    return pl.Series([called(value) for value in numbers.to_list()], dtype=pl.String)
