"""Columns of estimates -> one long frame, sorted by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    at = np.flatnonzero(groups)
    picked = {name: column[at] for name, column in test.items()}
    return Rows(at, estimates.take(at), view, policy, picked)


def as_frame(
    parts: Sequence[Rows], keys: pl.DataFrame, mode: Mode, nominal: Booleans | None = None
) -> pl.DataFrame:
    """Put rows into one table, sorted by group and then in the order given; no number is null.

    Groups marked `nominal` have no number that needs an order of classes.
    """
    parts = [part if nominal is None else _without_order(part, nominal) for part in parts]
    parts = [part for part in parts if len(part.group)]
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
        **{name: _joined(parts, name)[order] for name in (*ESTIMATED, *TESTED)},
        "note": pl.Series([note for part in parts for note in part.estimates.note])[order],
        "mode": pl.repeat(mode, len(order), eager=True),
    }
    counts = pl.col("k", "b", "c")
    return pl.DataFrame({name: columns[name] for name in SCHEMA}, schema=SCHEMA).with_columns(
        pl.col(pl.Float64).fill_nan(None), pl.when(counts != NO_COUNT).then(counts)
    )


def _without_order(part: Rows, nominal: Booleans) -> Rows:
    if not needs_order(part.estimates.metric) or not nominal[part.group].any():
        return part
    at = np.flatnonzero(~nominal[part.group])
    picked = {name: column[at] for name, column in part.test.items()}
    return Rows(part.group[at], part.estimates.take(at), part.view, part.policy, picked)


def _joined(parts: Sequence[Rows], name: str) -> Column:
    return np.concatenate([part.column(name) for part in parts])
