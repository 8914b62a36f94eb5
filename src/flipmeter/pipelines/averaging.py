"""Answers under several views -> one class, or one without what a slot adds.

`least` is the number of views of an item that must have an answer, all by default: what is
left of an averaged pair is a single view, with all of its slot preference. An item with fewer has
no class.

Every estimate takes `p` by slot and leaves out an item of which a view has no probabilities. The
model behind all of them: a slot multiplies the odds of whichever class it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from flipmeter.chance import draw
from flipmeter.errors import Problem
from flipmeter.pipelines.symmetries import (
    FLOOR,
    OFF_SIMPLEX,
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
from flipmeter.types import Mode

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
    n, total, counted = _sum_ranks(ranks, least)
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
    n, total, counted = _sum_ranks(ranks, least)
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
    average = np.where(n >= _least_views(least, p.shape[1]), average, np.nan)
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
    kept = best & _nearest_to_mean(p, orders, best) if ordered else best
    first = np.arange(p.shape[-1]) if precedence is None else np.asarray(precedence)
    comes = np.take_along_axis(np.broadcast_to(first, p.shape), orders - 1, axis=-1)
    place = np.where(kept, comes, p.shape[-1]).argmin(axis=-1)
    return AveragedRanks(ranks_at(np.where(known, place + 1, 0), orders), tied)


def _nearest_to_mean(p: Floats, orders: Ranks, best: Booleans) -> Booleans:
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


def _sum_ranks(ranks: Ranks, least: int | None) -> tuple[Ranks, Ranks, Booleans]:
    """For each item the number of its classes, their sum, and whether it counts."""
    n = (ranks > 0).sum(axis=1)
    return np.maximum(n, 1), ranks.sum(axis=1), n >= _least_views(least, ranks.shape[1])


def _least_views(least: int | None, n_views: int) -> int:
    if least is None:
        return n_views
    if not 1 <= least <= n_views:
        raise Problem(f"least must be 1 to {n_views}, the number of views; got {least}")
    return least


NULL_TEXTS = ("N/A", "", "[MASK]")
"""Texts without content, for contextual calibration."""
PAPER_NULL_TEXTS = NULL_TEXTS[:1]
N_PSEUDO_TEXTS = 20


@dataclass(frozen=True)
class Prior:
    """A model's preference for slots, how it was estimated, and from how many items."""

    weights: tuple[float, ...]
    form: str
    n_items: int

    def __post_init__(self) -> None:
        if min(self.weights) <= 0 or abs(sum(self.weights) - 1) > OFF_SIMPLEX:
            raise Problem(f"a prior is positive and sums to 1; got {list(self.weights)}")


def pride_paper_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Average probabilities over items and the natural and reversed order, as the paper does.

    What the items say is in it: it is a prior only if their classes are spread evenly.
    """
    p, orders = _complete_rows(p, orders)
    _need_mirrored(orders)
    return _normalized_prior(p.mean(axis=(0, 1)), "pride_paper", p)


def pride_odd_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Estimate what the natural and reversed order tell: preference of a slot over its mirror.

    What a slot and its mirror have in common cannot be told from content, and stays.
    """
    p, orders = _complete_rows(p, orders)
    _need_mirrored(orders)
    mean = logs(p).mean(axis=(0, 1))
    return _normalized_prior(softmax((mean - mean[::-1]) / 2), "pride_odd", p)


def pride_cyclic_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Estimate the whole slot preference from orders in which every class visits every slot."""
    p, orders = _complete_rows(p, orders)
    visits = _visits(orders)
    if (visits != visits[0]).any():
        raise Problem(
            "a cyclic prior needs every class at every slot equally often, as in rotations(M); "
            f"got the orders {orders.tolist()}"
        )
    return _normalized_prior(softmax(logs(p).mean(axis=1)).mean(axis=0), "pride_cyclic", p)


def contextual_prior(
    p: npt.ArrayLike, *, form: Literal["contextual", "domain_context"] = "contextual"
) -> Prior:
    """Average what a model answers to texts without content (null texts x slots), in one order."""
    p = _answered_rows(p)
    return _normalized_prior(p.mean(axis=0), form, p)


def batch_prior(p: npt.ArrayLike) -> Prior:
    """Average what a model answers to a batch (items x slots), in one order.

    The classes of the batch must be about equally frequent: true prevalence is divided out with
    the preference.
    """
    p = _answered_rows(p)
    return _normalized_prior(p.mean(axis=0), "batch", p)


def divide(p: npt.ArrayLike, prior: Prior) -> Floats:
    """Divide probabilities by slot by a prior, and renormalise; what was 0 stays 0."""
    p = probabilities(p)
    if len(prior.weights) != p.shape[-1]:
        raise Problem(f"a prior over {len(prior.weights)} slots does not fit {p.shape[-1]} slots")
    log = np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1.0, p)))
    return softmax(log - np.log(prior.weights))


def pseudo_texts(corpus: Sequence[str], n: int = N_PSEUDO_TEXTS, seed: int = 0) -> tuple[str, ...]:
    """Draw texts with the words of a corpus and no content: domain-context calibration.

    Each has as many words as the corpus has on average, rounded up, and ends in " ."; the order of
    the corpus does not matter.
    """
    words = sorted(word for text in corpus for word in text.lower().split())
    if not words:
        raise Problem(f"no words to draw from in a corpus of {len(corpus)} texts")
    length = -(-len(words) // len(corpus))
    return tuple(
        " ".join(
            words[int(draw("pseudo text", seed, text, word) * len(words))] for word in range(length)
        )
        + " ."
        for text in range(n)
    )


def _normalized_prior(weights: Floats, form: str, p: Floats) -> Prior:
    weights = np.maximum(weights / weights.sum(), FLOOR)
    return Prior(tuple((weights / weights.sum()).tolist()), form, len(p))


def _complete_rows(p: npt.ArrayLike, orders: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The items that have probabilities in every view, and the orders, one per view."""
    p = several_views(p)
    orders = label_orders(orders, p.shape[1:])
    return _check_any_rows(p[~np.isnan(p).any(axis=(1, 2))], len(p)), orders


def _answered_rows(p: npt.ArrayLike) -> Floats:
    p = probabilities(p)
    if p.ndim != 2:
        raise Problem(f"probabilities must be items x slots, of one order; got shape {p.shape}")
    return _check_any_rows(p[~np.isnan(p[:, 0])], len(p))


def _check_any_rows(p: Floats, n_items: int) -> Floats:
    if not len(p):
        raise Problem(f"none of {n_items} items has probabilities; a prior needs at least one")
    return p


def _visits(orders: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Counts of each class (second axis) at each slot (first axis)."""
    ranks = np.arange(orders.shape[1]) + 1
    return np.asarray((orders[:, :, None] == ranks).sum(axis=0))


def _need_mirrored(orders: npt.NDArray[np.int64]) -> None:
    visits = _visits(orders)
    if (visits != visits[::-1]).any():
        raise Problem(
            "this prior needs every class at a slot as often as at its mirror, as in the natural "
            f"and reversed order; got the orders {orders.tolist()}"
        )
