"""Several views of an item -> one class, and whether a tie rule had to decide it.

`least` is the number of views of an item that must have an answer, all by default: what is
left of an averaged pair is a single view, with all of its slot preference. An item with fewer has
no class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from flipmeter.decide.spaces import (
    Booleans,
    Floats,
    Ranks,
    by_class,
    label_orders,
    logs,
    probabilities,
    ranks_at,
    softmax,
    whole,
)
from flipmeter.types import Mode, Problem

TIED = 1e-9
"""Probabilities and distances closer than this are equal: rounding must not pick a class."""


@dataclass(frozen=True)
class AveragedRanks:
    """The class of each item, 0 for none, and where only a tie rule tells it from another."""

    ranks: Ranks
    tie_decided: Booleans


def average_ranks(
    ranks: npt.ArrayLike, *, mode: Mode = "recommended", least: int | None = None
) -> AveragedRanks:
    """Round the mean class over views (items x views), as label and demo averaging do.

    At .5, `paper` takes the upper class. `recommended` takes the one nearer to the first view, so
    that of two neighbouring classes the first view's own is kept.
    """
    ranks = _rank_table(ranks)
    n, total, counted = _summed(ranks, least)
    below, rest = np.divmod(total, n)
    tied = counted & (2 * rest == n)
    up = 2 * rest > n
    up |= tied & (True if mode == "paper" else ranks[:, 0] > below)
    return AveragedRanks(np.where(counted, below + up, 0), tied)


def median_ranks(ranks: npt.ArrayLike, *, least: int | None = None) -> AveragedRanks:
    """Take the class with the least total distance to all views: permutation self-consistency.

    Between two medians it is the class nearest to the mean, then the lower one; the order of the
    views never matters.
    """
    ranks = _rank_table(ranks)
    n, total, counted = _summed(ranks, least)
    ordered = np.sort(ranks, axis=1)
    first = (ranks == 0).sum(axis=1)
    last = ranks.shape[1] - 1
    low, high = (
        np.take_along_axis(ordered, np.minimum(first + middle, last)[:, None], axis=1)[:, 0]
        for middle in ((n - 1) // 2, n // 2)
    )
    nearest = -((n - 2 * total) // (2 * n))
    return AveragedRanks(np.where(counted, np.clip(nearest, low, high), 0), counted & (low != high))


def average_probabilities(
    p: npt.ArrayLike,
    orders: npt.ArrayLike,
    *,
    mean: Literal["geometric", "arithmetic"] = "geometric",
    least: int | None = None,
) -> Floats:
    """The mean over views, by class (items x views x slots in, items x classes out).

    The geometric mean over the natural and the reversed order cancels what is odd in this item's
    slot preference, over all rotations completely; the arithmetic one is how PriDe answers the
    items that it is calibrated on. Nothing is rounded.
    """
    p = several_views(p)
    parts = by_class(p, orders)
    if mean == "geometric":
        parts = logs(parts)
    seen = ~np.isnan(parts[..., :1])
    n = seen.sum(axis=1)
    # Sorted, so that the sum is the same to the last bit in whichever order the views come.
    average = np.sort(np.where(seen, parts, 0.0), axis=1).sum(axis=1) / np.maximum(n, 1)
    average = np.where(n >= _enough(least, p.shape[1]), average, np.nan)
    return softmax(average) if mean == "geometric" else average


def choose(
    p: npt.ArrayLike,
    orders: npt.ArrayLike | None = None,
    *,
    mode: Mode = "recommended",
    precedence: npt.ArrayLike | None = None,
    ordered: bool = True,
) -> AveragedRanks:
    """Take the most probable class; without orders, `p` is by class already.

    Among equals, `paper` takes the first slot. `recommended` takes the class nearest to the mean of
    the distribution, if classes are `ordered`, then the one that comes first by `precedence` (a
    number for each class), the lower one by default.
    """
    p = probabilities(p)
    orders = label_orders(np.arange(p.shape[-1]) + 1 if orders is None else orders, p.shape)
    known = ~np.isnan(p[..., 0])
    best = p >= p.max(axis=-1, keepdims=True) - TIED
    tied = best.sum(axis=-1) > 1
    if mode == "paper":
        return AveragedRanks(ranks_at(np.where(known, p.argmax(axis=-1) + 1, 0), orders), tied)
    kept = best & _nearest(p, orders, best) if ordered else best
    first = np.arange(p.shape[-1]) if precedence is None else np.asarray(precedence)
    comes = np.take_along_axis(np.broadcast_to(first, p.shape), orders - 1, axis=-1)
    place = np.where(kept, comes, p.shape[-1]).argmin(axis=-1)
    return AveragedRanks(ranks_at(np.where(known, place + 1, 0), orders), tied)


def _nearest(p: Floats, orders: Ranks, best: Booleans) -> Booleans:
    """Mark the best classes that lie nearest to the mean of the distribution."""
    mean = (p * orders).sum(axis=-1, keepdims=True)
    distance = np.where(best, np.abs(orders - mean), np.inf)
    return np.asarray(distance <= distance.min(axis=-1, keepdims=True) + TIED)


def several_views(p: npt.ArrayLike) -> Floats:
    """Checked items x views x slots."""
    p = probabilities(p)
    if p.ndim != 3:
        raise Problem(f"probabilities must be items x views x slots; got shape {p.shape}")
    return p


def _rank_table(ranks: npt.ArrayLike) -> Ranks:
    table = whole(ranks, "ranks")
    if table.ndim != 2 or not table.shape[1]:
        raise Problem(f"ranks must be items x views; got an array of shape {table.shape}")
    return table


def _summed(ranks: Ranks, least: int | None) -> tuple[Ranks, Ranks, Booleans]:
    """For each item the number of its classes, their sum, and whether it counts."""
    n = (ranks > 0).sum(axis=1)
    return np.maximum(n, 1), ranks.sum(axis=1), n >= _enough(least, ranks.shape[1])


def _enough(least: int | None, n_views: int) -> int:
    if least is None:
        return n_views
    if not 1 <= least <= n_views:
        raise Problem(f"least must be 1 to {n_views}, the number of views; got {least}")
    return least
