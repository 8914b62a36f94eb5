"""What items add to some sums -> a statistic of the sums, with its bootstrap interval, by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.panel.checked import Floats, Ints
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.measure.statistics.means import NO_WIDTH
from flipmeter.measure.statistics.resample import RESAMPLES, SEED
from flipmeter.types import ALPHA

LOST = "no interval: undefined in most resamples"
BLOCK = 4_000_000
"""How many numbers are held at once; a larger block is not faster."""

Sums = npt.NDArray[Any]
"""In double precision for the items as they are, in single for resamples."""

Statistic = Callable[[Sums], Sums]
"""From sums (..., columns) to values (..., metrics), NaN where a value is undefined."""

Drawn = npt.NDArray[np.float32]
Scale = Literal["fisher", "logit"]
SCALES: Mapping[Scale, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "fisher": (np.arctanh, np.tanh),
    "logit": (special.logit, special.expit),
}


def means(sums: Sums) -> Sums:
    """Divide all columns but the last by the last, which counts the items."""
    return over(sums[..., :-1], sums[..., -1:])


def over(part: Sums, whole: Sums) -> Sums:
    """Divide, with NaN where there is nothing to divide by, in the precision of the numbers."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(whole > 0, part / whole, np.nan).astype(part.dtype, copy=False)


def bootstrap(
    metrics: Sequence[str],
    adds: Sequence[npt.NDArray[np.generic]],
    groups: Groups,
    statistic: Statistic = means,
    *,
    n: Ints,
    failed: Ints | None = None,
    spans: Floats | None = None,
) -> dict[str, Estimates]:
    """Estimate metrics that are functions of sums over items, with 95 % BCa intervals.

    `adds` are columns of numbers by item. Items are drawn with replacement within each group; the
    ends are corrected for bias, skewness and few items. An interval without width is none.
    `spans` (groups x metrics) say how far an item may lie from 0: the interval is widened as if
    half an item had been seen at either end, because rare items may not be in the sample.
    """
    table = _stacked(adds)
    value, low, high, lost = (np.full((groups.n, len(metrics)), np.nan) for _ in range(4))
    spans = np.zeros_like(value) if spans is None else spans
    for places, block in _blocks(table, groups, RESAMPLES * (table.shape[1] + len(metrics))):
        value[places] = statistic(block.sum(axis=1))
        drawn = _resampled(block.astype(np.float32), statistic)
        defined = (~np.isnan(drawn)).sum(axis=-1)
        without = _left_out(block, statistic)
        ends = _bca(drawn, defined, value[places], without, spans[places])
        low[places], high[places] = ends
        lost[places] = RESAMPLES - defined
    rare = lost > RESAMPLES / 2
    kept = (np.where(rare, np.nan, low), np.where(rare, np.nan, high))
    return _named(metrics, value, kept, np.where(rare, LOST, ""), n, failed)


def jackknife(
    metrics: Sequence[str],
    adds: Sequence[npt.NDArray[np.generic]],
    groups: Groups,
    statistic: Statistic,
    *,
    n: Ints,
    failed: Ints | None = None,
    scale: Scale,
) -> dict[str, Estimates]:
    """Estimate smooth functions of sums over items, with 95 % t intervals from leaving items out.

    It takes as many evaluations as there are items, where a bootstrap takes thousands. The numbers
    are taken to a scale without ends and back: Fisher's for agreement, logits for shares.
    """
    table = _stacked(adds)
    value, low, high = (np.full((groups.n, len(metrics)), np.nan) for _ in range(3))
    there, back = SCALES[scale]
    for places, block in _blocks(table, groups, int(groups.count().max()) * table.shape[1]):
        value[places] = statistic(block.sum(axis=1))
        n_items = block.shape[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            without = there(_left_out(block, statistic))
            squares = ((without - without.mean(axis=-1, keepdims=True)) ** 2).mean(axis=-1)
            half = special.stdtrit(max(n_items - 1, 1), 1 - ALPHA / 2) * np.sqrt(
                (n_items - 1) * squares
            )
            low[places], high[places] = (
                back(there(value[places]) + sign * half) for sign in (-1, 1)
            )
    return _named(metrics, value, (low, high), np.full(value.shape, ""), n, failed)


def _stacked(adds: Sequence[npt.NDArray[np.generic]]) -> Floats:
    return np.stack([np.asarray(column, dtype=np.float64) for column in adds], axis=1)


def _named(
    metrics: Sequence[str],
    value: Floats,
    ends: tuple[Floats, Floats],
    why: npt.NDArray[np.str_],
    n: Ints,
    failed: Ints | None,
) -> dict[str, Estimates]:
    """Put columns under their names; where there is no interval, say why."""
    low, high = ends
    lost = ~(high - low > 1e-6 * (1 + np.abs(np.nan_to_num(value))))
    why = np.where((why == "") & lost & ~np.isnan(value), NO_WIDTH, why)
    why = np.where(n[:, None] > 0, why, "no complete item")
    low, high = (np.where(lost, np.nan, end) for end in (low, high))
    return {
        metric: estimates(
            *(metric, value[:, at], (low[:, at], high[:, at])),
            n=n,
            failed=failed,
            note=why[:, at].tolist(),
        )
        for at, metric in enumerate(metrics)
    }


def _blocks(table: Floats, groups: Groups, held: int) -> Iterator[tuple[Ints, Floats]]:
    """Yield groups of one size, some at a time: their places, and groups x items x columns.

    `held` is how many numbers one group takes.
    """
    sizes = groups.count()
    starts, in_order = np.cumsum(sizes) - sizes, np.argsort(groups.of, kind="stable")
    for size in np.unique(sizes[sizes > 0]).tolist():
        same = np.flatnonzero(sizes == size)
        at_once = max(1, BLOCK // held)
        for places in np.array_split(same, -(-len(same) // at_once)):
            rows = in_order[starts[places][:, None] + np.arange(size)]
            yield places, table[rows]


def _resampled(block: Drawn, statistic: Statistic) -> Drawn:
    """Return the statistic in all resamples: groups x metrics x resamples."""
    n_groups, n_items, n_columns = block.shape
    flat = np.ascontiguousarray(block.transpose(1, 0, 2)).reshape(n_items, -1)
    drawn = []
    for start in range(0, RESAMPLES, rows := max(1, min(RESAMPLES, BLOCK // n_items))):
        sums = _weights(n_items, start, min(start + rows, RESAMPLES)) @ flat
        drawn.append(statistic(sums.reshape(-1, n_groups, n_columns)))
    together = np.concatenate(drawn).astype(np.float32, copy=False)
    return np.ascontiguousarray(np.moveaxis(together, 0, -1))


@lru_cache(maxsize=8)
def _weights(n_items: int, start: int, stop: int) -> Drawn:
    """Return how often each item (column) stands in each of some resamples (rows)."""
    chance = np.random.default_rng([SEED, n_items, start])
    shape = stop - start, n_items
    places = chance.integers(n_items, size=shape) + np.arange(shape[0])[:, None] * n_items
    return np.bincount(places.ravel(), minlength=places.size).reshape(shape).astype(np.float32)


def _left_out(block: Floats, statistic: Statistic) -> Floats:
    """Return the statistic without each of the items: groups x metrics x items."""
    without = statistic(block.sum(axis=1, keepdims=True) - block)
    return np.asarray(np.moveaxis(without, 1, -1), dtype=np.float64)


def _bca(
    drawn: Drawn, defined: Ints, value: Floats, left_out: Floats, spans: Floats
) -> tuple[Floats, Floats]:
    """Return the ends of the bias-corrected and accelerated interval, widened as t is over z.

    `defined` counts the resamples in which there is a value.
    """
    near = (1e-6 * (1 + np.abs(value))).astype(np.float32)[..., None]
    middle = value.astype(np.float32)[..., None]
    below = ((drawn < middle - near).sum(axis=-1) + (drawn <= middle + near).sum(axis=-1)) / 2
    bias = special.ndtri(np.clip(below / np.maximum(defined, 1), 1e-3, 1 - 1e-3))
    known = np.where(np.isnan(left_out), value[..., None], left_out)
    pull = np.nan_to_num(known.mean(axis=-1, keepdims=True) - known)
    squares = (pull**2).sum(axis=-1)
    skew = (pull**3).sum(axis=-1) / (6 * np.where(squares > 0, squares, np.inf) ** 1.5)
    n_items, free = left_out.shape[-1], max(left_out.shape[-1] - 1, 1)
    spread = np.where(squares > 0, squares * free * n_items, np.inf)
    reach = special.stdtrit(free, 1 - ALPHA / 2) * np.sqrt((1 + spans**2 / spread) * n_items / free)
    ordered = np.sort(drawn, axis=-1)
    # With a handful of items the denominator could turn negative, and the ends change places.
    shifts = [bias + (bias + z) / np.maximum(1 - skew * (bias + z), 0.1) for z in (-reach, reach)]
    low, high = (_at(ordered, defined, special.ndtr(shift)) for shift in shifts)
    return low, high


def _at(ordered: Drawn, defined: Ints, chance: Floats) -> Floats:
    """Return a quantile of sorted numbers, between two of them; NaNs stand at the end."""
    place = np.clip(chance, 0, 1) * np.maximum(defined - 1, 0)
    lower = np.floor(place).astype(np.int64)
    upper = np.minimum(lower + 1, np.maximum(defined - 1, 0))
    ends = [np.take_along_axis(ordered, at[..., None], -1)[..., 0] for at in (lower, upper)]
    return np.asarray(ends[0] + (place - lower) * (ends[1] - ends[0]), dtype=np.float64)
