"""Cells of numbers -> their mean, their spread, and the interval of their resamples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Floats, Ints, ratio
from flipmeter.measure.panel.groups import joined
from flipmeter.types import ALPHA

ENDS = (2.5, 97.5)
SAME = 1e-9
NO_WIDTH = "no interval: the same in every resample"
ENOUGH_DATASETS = 3
"""With two datasets, an interval over datasets would say nothing."""


@dataclass(frozen=True)
class MeanCell:
    """Residuals by metric, their resamples (metrics x resamples), counts and notes."""

    value: Floats
    drawn: Floats
    n: Ints
    failed: Ints
    notes: list[str]


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


def mean_cell(cells: Mapping[str, MeanCell]) -> Mean:
    """Average the cells that are defined; a note that is not everywhere says where it is."""
    parts = np.stack([cell.value for cell in cells.values()])
    counts = ~np.isnan(parts)
    drawn = np.stack(
        [
            np.where(counted[:, None], cell.drawn, 0.0)
            for counted, cell in zip(counts, cells.values(), strict=True)
        ]
    )
    notes = [
        _gathered({name: cell.notes[metric] for name, cell in cells.items()})
        for metric in range(parts.shape[1])
    ]
    cell = MeanCell(
        mean_of(parts),
        ratio(drawn.sum(axis=0), counts.sum(axis=0)[:, None]),
        np.sum([cell.n for cell in cells.values()], axis=0),
        np.sum([cell.failed for cell in cells.values()], axis=0),
        notes,
    )
    return Mean(cell, parts)


def _gathered(notes: Mapping[str, str]) -> str:
    places: dict[str, list[str]] = {}
    for name, note in notes.items():
        if note:
            places.setdefault(note, []).append(name)
    return joined(
        *(
            note if len(names) == len(notes) else f"{note} ({', '.join(names)})"
            for note, names in places.items()
        )
    )


def by_seed(cells: Mapping[str, Mapping[str, MeanCell]]) -> Floats:
    """Return the mean over datasets of each seed's values (seeds x metrics)."""
    seeds = list(dict.fromkeys(seed for of in cells.values() for seed in of))
    return np.stack(
        [
            mean_of(np.stack([of[seed].value for of in cells.values() if seed in of]))
            for seed in seeds
        ]
    )


def fewest(counts: Sequence[Ints]) -> Ints:
    """Return the smallest count that is not 0, for each metric; 0 where all are."""
    table = np.stack(counts)
    least = np.where(table > 0, table, np.iinfo(np.int64).max).min(axis=0)
    return np.where((table > 0).any(axis=0), least, 0)


def mean_of(values: Floats) -> Floats:
    """Average along the first axis what is defined."""
    return ratio(np.nansum(values, axis=0), (~np.isnan(values)).sum(axis=0))


def sd_of(values: Floats, ddof: int) -> Floats:
    """Return the SD along the first axis of what is defined; NaN where there is too little."""
    n = (~np.isnan(values)).sum(axis=0)
    squares = np.nansum((values - mean_of(values)) ** 2, axis=0)
    return np.sqrt(ratio(squares, n - ddof))


def interval(drawn: Floats, value: float) -> tuple[float | None, float | None, str]:
    """Return the 95 % percentile interval, or why there is none."""
    defined = drawn[~np.isnan(drawn)]
    if np.isnan(value) or not len(defined):
        return None, None, ""
    lost = f"undefined in {len(drawn) - len(defined)} of {len(drawn)} resamples"
    if len(defined) < len(drawn) / 2:
        return None, None, f"no interval: {lost}"
    low, high = np.percentile(defined, ENDS).tolist()
    if high - low < SAME:
        return None, None, NO_WIDTH
    return low, high, lost if len(defined) < len(drawn) else ""


def spread_interval(value: float, sd: float, n: int) -> tuple[float | None, float | None]:
    """Return the t interval of a mean over datasets, if there are enough of them."""
    if n < ENOUGH_DATASETS:
        return None, None
    half = float(special.stdtrit(n - 1, 1 - ALPHA / 2)) * sd / np.sqrt(n)
    return value - half, value + half
