"""Decimal scores in decisions -> the range of each group, and what counts as the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure.panel.checked import Booleans, Floats, Ints
from flipmeter.types import Problem, Span

RANGE = ("scale_from", "scale_to", "tolerance")
"""The columns with the range of decimal scores; null where there are classes."""


@dataclass(frozen=True)
class ScaleUnits:
    """The range of every group, None for one with classes.

    Ranks of a range count its steps: a difference in ranks times `step` is one in its units, and
    one of at most `tolerance` ranks is none. Of classes both are as if they were not there.
    """

    spans: Sequence[Span | None]

    @cached_property
    def decimal(self) -> Booleans:
        """Mark the groups with decimal scores."""
        return np.array([span is not None for span in self.spans], dtype=np.bool_)

    @cached_property
    def step(self) -> Floats:
        return np.array([1.0 if span is None else span.step for span in self.spans])

    @cached_property
    def tolerance(self) -> Ints:
        tolerances = [0 if span is None else span.tolerance for span in self.spans]
        return np.array(tolerances, dtype=np.int64)


def differ(
    first: npt.NDArray[np.integer[Any]],
    second: npt.NDArray[np.integer[Any]],
    tolerance: Ints | int = 0,
) -> Booleans:
    """Mark ranks that are not the same: of decimal scores those farther apart than counts."""
    return np.asarray(np.abs(first - second) > tolerance)


def read_span(low: float | None, high: float, tolerance: int | None) -> Span | None:
    """The range that a row of decisions names, None where it has classes."""
    if low is None:
        return None
    found = Span(low, high)
    return Span(low, high, (tolerance or 0) * found.step)


def check_spans(table: pl.LazyFrame) -> None:
    """Refuse ranges that do not fit the number of ranks beside them."""
    known = table.filter(pl.col("scale_from").is_not_null()).select(*RANGE, "n_classes")
    for *told, n_ranks in known.unique().pipe(collected, "streaming").iter_rows():
        span = read_span(*told)
        if span is None or span.n_ranks != n_ranks:
            raise Problem(f"the decisions have {n_ranks} ranks on a scale that has others: {span}")


IS_OTHER = (pl.col("rank") - pl.col("gold")).abs() > pl.col("tolerance").fill_null(0)
"""Whether the class of a row is not its gold class, or its score too far from it."""

STEP = (
    pl.when(pl.col("scale_from").is_not_null())
    .then((pl.col("scale_to") - pl.col("scale_from")) / (pl.col("n_classes") - 1))
    .otherwise(1.0)
)
"""Size of one rank in the units of a row's scale."""
