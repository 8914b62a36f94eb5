"""Contributions of items to sums -> a statistic of the sums, with its interval, by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.measure.inference.differences import (
    DECISIVE,
    squares_of,
    student_ends,
    too_few,
)
from flipmeter.measure.panel.checked import Floats, Ints, ratio
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.measure.statistics.kinds import find_kinds
from flipmeter.types import ALPHA

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
    for places, block in _blocks(rows, within, len(metrics)):
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
    return _named(metrics, value, (low, high), within.count(), n, failed)


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


def _blocks(table: Adds, groups: Groups, n_metrics: int) -> Iterator[tuple[Ints, Adds]]:
    """Yield groups of one size, some at a time: their places, and groups x items x columns."""
    sizes = groups.count()
    starts, in_order = np.cumsum(sizes) - sizes, np.argsort(groups.of, kind="stable")
    for size in np.unique(sizes[sizes > 0]).tolist():
        same = np.flatnonzero(sizes == size)
        at_once = max(1, BLOCK // (size * (table.shape[1] + n_metrics)))
        for places in np.array_split(same, -(-len(same) // at_once)):
            rows = in_order[starts[places][:, None] + np.arange(size)]
            yield places, _taken(table, rows)


def _taken(table: Adds, rows: Ints) -> Adds:
    """Some rows of a table, not copied where they follow each other."""
    flat = rows.ravel()
    if (np.diff(flat) == 1).all():
        return table[flat[0] : flat[-1] + 1].reshape(*rows.shape, table.shape[1])
    return np.asarray(table[rows])


def _named(
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
