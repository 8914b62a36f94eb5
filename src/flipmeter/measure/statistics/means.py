"""Cells of numbers -> their mean, its interval, and their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from flipmeter.measure.inference.differences import (
    Influences,
    average_ends,
    influence_ends,
    mean_influences,
    reasons,
)
from flipmeter.measure.panel.checked import Floats, Ints, ratio
from flipmeter.measure.panel.groups import joined
from flipmeter.types import ALPHA

SAME = 1e-9
ENOUGH_DATASETS = 3
"""With two datasets, an interval over datasets would say nothing."""


@dataclass(frozen=True)
class MeanCell:
    """Numbers by metric with their intervals, what clusters add to them, counts and notes.

    Without `influences` there is no interval.
    """

    value: Floats
    n: Ints
    failed: Ints
    notes: list[str]
    influences: Influences | None = None
    low: Floats = field(default_factory=lambda: np.array([]))
    high: Floats = field(default_factory=lambda: np.array([]))


@dataclass(frozen=True)
class Mean:
    """The mean of some cells, with its parts' values (parts x metrics) and how many count."""

    cell: MeanCell
    parts: Floats

    @property
    def count(self) -> Ints:
        return np.asarray((~np.isnan(self.parts)).sum(axis=0))

    def sd(self, ddof: int) -> Floats:
        return sd_of(self.parts, ddof)


def over_seeds(cells: Mapping[str, MeanCell]) -> Mean:
    """Average the seeds of a dataset that are defined; all seeds of a cluster count once."""
    mean = _averaged(cells)
    found = [cell.influences for cell in cells.values()]
    known = [one for one in found if one is not None]
    nothing = np.full(len(mean.cell.value), np.nan)
    if len(known) < len(found):
        return replace(mean, cell=replace(mean.cell, low=nothing, high=nothing))
    together = mean_influences(known, ~np.isnan(mean.parts))
    low, high = influence_ends(mean.cell.value, together)
    why = reasons(mean.cell.value, together, low)
    notes = [joined(*both) for both in zip(mean.cell.notes, why, strict=True)]
    cell = replace(mean.cell, influences=together, low=low, high=high, notes=notes)
    return replace(mean, cell=cell)


def over_datasets(cells: Mapping[str, MeanCell]) -> Mean:
    """Average the datasets that are defined, which are independent of each other."""
    mean = _averaged(cells)
    lows, highs = (
        np.stack([getattr(cell, end) for cell in cells.values()]) for end in ("low", "high")
    )
    low, high = average_ends(mean.parts, lows, highs)
    return replace(mean, cell=replace(mean.cell, low=low, high=high))


def _averaged(cells: Mapping[str, MeanCell]) -> Mean:
    """Average the cells that are defined; a note that is not everywhere says where it is."""
    parts = np.stack([cell.value for cell in cells.values()])
    notes = []
    for metric in range(parts.shape[1]):
        places: dict[str, list[str]] = {}
        for name, cell in cells.items():
            places.setdefault(cell.notes[metric], []).append(name)
        told = [
            note if len(names) == len(cells) else f"{note} ({', '.join(names)})"
            for note, names in places.items()
            if note
        ]
        notes.append(joined(*told))
    n, failed = (
        np.sum([getattr(cell, name) for cell in cells.values()], axis=0) for name in ("n", "failed")
    )
    return Mean(MeanCell(mean_of(parts), n, failed, notes), parts)


def by_seed(cells: Mapping[str, Mapping[str, MeanCell]]) -> Floats:
    """The mean over datasets of each seed's values (seeds x metrics)."""
    seeds = list(dict.fromkeys(seed for of in cells.values() for seed in of))
    return np.stack(
        [
            mean_of(np.stack([of[seed].value for of in cells.values() if seed in of]))
            for seed in seeds
        ]
    )


def fewest(counts: Sequence[Ints]) -> Ints:
    """The smallest count that is not 0, for each metric; 0 where all are."""
    table = np.stack(counts)
    least = np.where(table > 0, table, np.iinfo(np.int64).max).min(axis=0)
    return np.where((table > 0).any(axis=0), least, 0)


def mean_of(values: Floats) -> Floats:
    """Average along the first axis what is defined."""
    return ratio(np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0))


def sd_of(values: Floats, ddof: int) -> Floats:
    """The SD of the defined values along the first axis; NaN where there are too few."""
    n = (~np.isnan(values)).sum(axis=0)
    squares = np.nansum((values - mean_of(values)) ** 2, axis=0)
    return np.sqrt(ratio(squares, n - ddof))


def spread_interval(value: float, sd: float, n: int) -> tuple[float | None, float | None]:
    """The t interval of a mean over datasets, if there are enough of them."""
    if n < ENOUGH_DATASETS:
        return None, None
    half = float(special.stdtrit(n - 1, 1 - ALPHA / 2)) * sd / np.sqrt(n)
    return value - half, value + half
