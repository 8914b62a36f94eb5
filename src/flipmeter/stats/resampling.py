"""Contributions of items -> a statistic with its interval: jackknife, resamples, cells of means."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.stats.differences import (
    DECISIVE,
    Influences,
    average_ends,
    influence_ends,
    mean_influences,
    reasons,
    squares_of,
    student_ends,
    too_few,
)
from flipmeter.stats.groups import Estimates, Floats, Groups, Ints, estimates, joined, ratio
from flipmeter.types import ALPHA

Column = npt.NDArray[Any]

MANY = 1000
"""Number of items to look at together from which on it is worth while to look for equal ones."""


@dataclass(frozen=True)
class Kinds:
    """The first item of every kind, and the kind of every item."""

    first: Ints
    of: Ints

    def __len__(self) -> int:
        return len(self.first)


def find_kinds(columns: Sequence[Column], n_together: int) -> Kinds | None:
    """The kinds of items that are looked at so many together.

    None if that are few, or there are not half as few kinds: looking at each item costs no more.
    """
    if n_together < MANY:
        return None
    weights = np.random.default_rng(0).integers(1 << 63, size=len(columns), dtype=np.uint64)
    codes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, weight in zip(columns, 2 * weights + 1, strict=True):
        # Numbers that are equal where those of the column are.
        bits = column.view(np.uint64) if column.itemsize == 8 else column.astype(np.uint64)
        codes += bits * weight
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    if 2 * len(first) > n_together:
        return None
    # Two kinds may have one code, although hardly ever.
    is_same = all((column[first][of] == column).all() for column in columns)
    return Kinds(first, of) if is_same else None


BLOCK = 4_000_000
"""Number of values in memory at once."""
HELD = 500_000
"""Number of values that a statistic is computed from at once: it makes several copies."""
Adds = npt.NDArray[Any]
"""Contributions of items to sums: items x columns of numbers of any kind."""

Statistic = Callable[[Floats], Floats]
"""From sums (..., columns) to values (..., metrics), NaN where a value is undefined."""

Unseen = Callable[[Floats, Floats, int], Floats]
"""Largest change of a value by one extra item: sums (groups x columns), values (groups x metrics)
and the number of clusters -> groups x metrics x 2 (below and above)."""

Reach = Sequence[tuple[float, float]] | Floats
"""Lowest and highest value that is possible: by metric, or groups x metrics x 2."""


def means(sums: Floats) -> Floats:
    """Divide all columns but the last by the last, which counts the items."""
    return ratio(sums[..., :-1], sums[..., -1:])


def jackknife(
    metrics: Sequence[str],
    adds: Sequence[npt.NDArray[np.generic]],
    groups: Groups,
    statistic: Statistic = means,
    *,
    reach: Reach,
    n: Ints,
    failed: Ints | None = None,
    unseen: Unseen | None = None,
    alpha: float = ALPHA,
) -> dict[str, Estimates]:
    """Estimate metrics that are functions of sums over items, with intervals for small samples.

    `adds` are columns of numbers by item, kept as small as they come. A cluster counts once, as
    the mean of its items, and is left out in turn. With `unseen` the interval holds although
    rare items may not be in the sample; by default one more item may have any value within
    reach.
    """
    rows, within = _by_cluster(np.stack([np.asarray(one) for one in adds], 1), groups)
    shape = groups.n, len(metrics)
    value, low, high = (np.full(shape, np.nan) for _ in range(3))
    limits = np.broadcast_to(np.asarray(reach, dtype=np.float64), (*shape, 2))
    for places, block in _equal_size_blocks(rows, within, len(metrics)):
        total = block.sum(axis=1, dtype=np.float64)
        value[places] = statistic(total)
        # Contiguous, so that a group adds up to the last bit as it would alone.
        without = np.ascontiguousarray(np.moveaxis(_left_out(statistic, total, block), 1, -1))
        moves = value[places][..., None] - without
        away = limits[places] - value[places][..., None]
        if unseen is not None:
            away = unseen(total, value[places], block.shape[1])
        counted = np.ones(moves.shape, dtype=np.bool_)
        size = np.full(moves.shape[:-1], moves.shape[-1])
        low[places], high[places] = student_ends(
            value[places], squares_of(moves, counted), size, away, alpha
        )
    low, high = np.maximum(low, limits[..., 0]), np.minimum(high, limits[..., 1])
    return _name_estimates(metrics, value, (low, high), within.count(), n, failed)


def _left_out(statistic: Statistic, total: Floats, block: Adds) -> Floats:
    """The statistic without each item in turn, once for items that add the same, or in parts."""
    rows = block.reshape(-1, block.shape[2])
    if (kinds := find_kinds([*rows.T], block.shape[1])) is not None:
        without = statistic(total[:, None] - rows[kinds.first])
        return np.take_along_axis(without, kinds.of.reshape(*block.shape[:2], 1), axis=1)
    at_once = max(1, HELD // (block.shape[0] * block.shape[2]))
    starts = range(0, block.shape[1], at_once)
    found = [statistic(total[:, None] - block[:, one : one + at_once]) for one in starts]
    return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def any_of(rows: Floats, statistic: Statistic) -> Unseen:
    """One more item that adds any one of some rows."""

    def away(total: Floats, value: Floats, n: int) -> Floats:
        moved = np.nan_to_num((n + 1) * (statistic(total[:, None] + rows) - value[:, None]))
        return np.stack([moved.min(axis=1).clip(max=0), moved.max(axis=1).clip(min=0)], axis=-1)

    return away


def _by_cluster(adds: Adds, groups: Groups) -> tuple[Adds, Groups]:
    """Mean of the items of each cluster; those that add nothing do not count."""
    counted = (adds != 0).any(axis=1)
    if not counted.all():
        adds, groups = adds[counted], groups.among(counted)
    if groups.is_apart:
        return adds, Groups(groups.of, groups.n)
    kept, of, size = np.unique(groups.by_cluster, return_inverse=True, return_counts=True)
    sums = np.zeros((len(kept), adds.shape[1]))
    np.add.at(sums, of, adds)
    sums /= size[:, None]
    return sums, Groups(kept // groups.n_clusters, groups.n)


def _equal_size_blocks(table: Adds, groups: Groups, n_metrics: int) -> Iterator[tuple[Ints, Adds]]:
    """Yield groups of one size, some at a time: their places, and groups x items x columns."""
    sizes = groups.count()
    starts, in_order = np.cumsum(sizes) - sizes, np.argsort(groups.of, kind="stable")
    for size in np.unique(sizes[sizes > 0]).tolist():
        same = np.flatnonzero(sizes == size)
        at_once = max(1, BLOCK // (size * (table.shape[1] + n_metrics)))
        for places in np.array_split(same, -(-len(same) // at_once)):
            rows = in_order[starts[places][:, None] + np.arange(size)]
            yield places, _take_rows(table, rows)


def _take_rows(table: Adds, rows: Ints) -> Adds:
    """Some rows of a table, not copied where they follow each other."""
    flat = rows.ravel()
    if (np.diff(flat) == 1).all():
        return table[flat[0] : flat[-1] + 1].reshape(*rows.shape, table.shape[1])
    return np.asarray(table[rows])


def _name_estimates(
    metrics: Sequence[str],
    value: Floats,
    ends: tuple[Floats, Floats],
    n_clusters: Ints,
    n: Ints,
    failed: Ints | None,
) -> dict[str, Estimates]:
    """Put columns under their names; where there is no interval, say why."""
    low, high = ends
    few = [too_few(size) for size in n_clusters.tolist()]
    none = ["" if size else "no complete item" for size in n.tolist()]

    def why(at: int) -> list[str]:
        lost = np.isnan(low[:, at]) & ~np.isnan(value[:, at])
        return [
            nothing or ((short or DECISIVE) if is_lost else "")
            for nothing, short, is_lost in zip(none, few, lost.tolist(), strict=True)
        ]

    return {
        metric: estimates(
            *(metric, value[:, at], (low[:, at], high[:, at])), n=n, failed=failed, note=why(at)
        )
        for at, metric in enumerate(metrics)
    }


Weights = npt.NDArray[np.float32]
"""Count of each item (column) in each sample (row); whole numbers, so sums are exact."""

RESAMPLES = 2000
RESAMPLES_HELD = 1 << 22
"""Number of counts in memory at once: all resamples of up to 2,097 items."""
SEED = 20260731
"""Every resample is drawn with this seed: the same decisions give the same numbers."""


def resamples(n_items: int, dataset: str) -> Iterator[Weights]:
    """Yield the number of times each item is drawn, some resamples at a time.

    The first row of all is the sample itself. The draw depends on the dataset and the number of
    items alone: two sides of a residual, and all seeds, are resampled together, and two datasets
    apart.
    """
    chance = np.random.default_rng([SEED, zlib.crc32(dataset.encode())])
    size = max(1, RESAMPLES_HELD // n_items)
    for start in range(0, RESAMPLES, size):
        n = min(size, RESAMPLES - start)
        places = chance.integers(n_items, size=(n, n_items))
        places += np.arange(n)[:, None] * n_items
        counts = np.bincount(places.ravel(), minlength=n * n_items)
        drawn = counts.reshape(n, n_items).astype(np.float32)
        yield drawn if start else np.concatenate([as_is(n_items), drawn])


def as_is(n_items: int) -> Weights:
    """The one sample in which every item appears once."""
    return np.ones((1, n_items), dtype=np.float32)


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
    mean = _average_cells(cells)
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
    mean = _average_cells(cells)
    lows, highs = (
        np.stack([getattr(cell, end) for cell in cells.values()]) for end in ("low", "high")
    )
    low, high = average_ends(mean.parts, lows, highs)
    return replace(mean, cell=replace(mean.cell, low=low, high=high))


def _average_cells(cells: Mapping[str, MeanCell]) -> Mean:
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
