"""Columns of estimates -> one long frame, sorted by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.measure.panel.checked import Booleans, Ints
from flipmeter.measure.panel.groups import NO_COUNT, Estimates
from flipmeter.metrics import needs_order
from flipmeter.types import Mode, Policy

Column = npt.NDArray[Any]

SCHEMA = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "metric": pl.String,
    "view": pl.String,
    "policy": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "k": pl.Int64,
    "failed": pl.Int64,
    "p": pl.Float64,
    "b": pl.Int64,
    "c": pl.Int64,
    "statistic": pl.Float64,
    "note": pl.String,
    "mode": pl.String,
}

ESTIMATED = ("value", "low", "high", "n", "k", "failed")
TESTED = {"p": np.nan, "b": NO_COUNT, "c": NO_COUNT, "statistic": np.nan}


@dataclass(frozen=True)
class Rows:
    """Some groups, their estimates of one metric, what these are about, and the test's numbers.

    `view` names the view of a score and the contrast of a test.
    """

    group: Ints
    estimates: Estimates
    view: str = ""
    policy: Policy | None = None
    test: Mapping[str, Column] = field(default_factory=dict)

    def column(self, name: str) -> Column:
        """A number for each group, blank where there was no such test."""
        if name in ESTIMATED:
            return np.asarray(getattr(self.estimates, name))
        return self.test.get(name, np.full(len(self.group), TESTED[name]))


def rows_of(
    groups: Booleans,
    estimates: Estimates,
    view: str = "",
    policy: Policy | None = None,
    **test: Column,
) -> Rows:
    """Keep the rows of the marked groups out of columns that cover all groups."""
    return _picked(Rows(np.arange(len(groups)), estimates, view, policy, test), groups)


def _picked(rows: Rows, marked: Booleans) -> Rows:
    at = np.flatnonzero(marked)
    test = {name: column[at] for name, column in rows.test.items()}
    return replace(rows, group=rows.group[at], estimates=rows.estimates.take(at), test=test)


def counted_rows(
    groups: Booleans, found: Iterable[Estimates], view: str, policy: Policy = "complete"
) -> Iterator[Rows]:
    """Rows of estimates in the marked groups, where an item counts."""
    for one in found:
        yield rows_of(groups & (one.n > 0), one, view, policy)


def as_frame(
    parts: Sequence[Rows], keys: pl.DataFrame, mode: Mode, nominal: Booleans | None = None
) -> pl.DataFrame:
    """Put rows into one table, sorted by group and then in the order given; no number is null.

    Groups marked `nominal` have no number that needs an order of classes.
    """
    has_order = np.ones(keys.height, dtype=np.bool_) if nominal is None else ~nominal
    kept = (
        _picked(part, has_order[part.group]) if needs_order(part.estimates.metric) else part
        for part in parts
    )
    parts = [part for part in kept if len(part.group)]
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    group = np.concatenate([part.group for part in parts])
    order = np.argsort(group, kind="stable")
    part_of = np.repeat(np.arange(len(parts)), [len(part.group) for part in parts])[order]
    words: dict[str, list[str | None]] = {
        "metric": [part.estimates.metric for part in parts],
        "view": [part.view for part in parts],
        "policy": [part.policy for part in parts],
    }
    columns = {
        **keys[group[order]].to_dict(),
        **{name: pl.Series(of, dtype=pl.String)[part_of] for name, of in words.items()},
        **{
            name: np.concatenate([part.column(name) for part in parts])[order]
            for name in (*ESTIMATED, *TESTED)
        },
        "note": pl.Series([note for part in parts for note in part.estimates.note])[order],
        "mode": pl.repeat(mode, len(order), eager=True),
    }
    counts = pl.col("k", "b", "c")
    return pl.DataFrame({name: columns[name] for name in SCHEMA}, schema=SCHEMA).with_columns(
        pl.col(pl.Float64).fill_nan(None), pl.when(counts != NO_COUNT).then(counts)
    )
