"""Replies of a contrast -> checked blocks: items by views by repeats, and the cluster of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, permutations
from typing import Literal

import numpy as np
import numpy.typing as npt

from flipmeter.errors import Problem
from flipmeter.stats.frame import differ
from flipmeter.stats.groups import Booleans, Floats, Ints
from flipmeter.types import Span

Repeated = Literal["every view", "some views", "no view"]

UNREADABLE, NOT_ASKED = 0, -1


@dataclass(frozen=True)
class Row:
    """One contrast as `verdict` takes it, for `verdicts` over many of them.

    `gold` is the class of every row of pairs, `weights` the frequency of every class in production
    and `names` what classes are called, both from class 1. `by_construction` says why answers
    cannot differ, where that is proved. Decimal scores have a `span`, of which the pairs hold
    ranks.
    """

    pairs: npt.ArrayLike
    repeats: npt.ArrayLike | None = None
    clusters: npt.ArrayLike | None = None
    reproducible: bool = False
    nominal: bool = False
    slots: npt.ArrayLike | None = None
    gold: npt.ArrayLike | None = None
    weights: npt.ArrayLike | None = None
    names: Sequence[str] = ()
    by_construction: str = ""
    span: Span | None = None


@dataclass(frozen=True)
class Strata:
    """The class of every block (0 if unknown) and the frequency of every class, from class 1."""

    gold: Ints
    weights: Floats


@dataclass(frozen=True)
class Blocks:
    """Replies as blocks x views x 2 (first and repeat); clusters are numbered from 0.

    `slots` is blocks x views x classes, the place of every class in every view, 0 where unknown.
    Replies up to `tolerance` apart are the same; on a `span` ranks are steps.
    """

    replies: Ints
    cluster: Ints
    n_clusters: int
    nominal: bool = False
    slots: Ints | None = None
    strata: Strata | None = None
    names: Sequence[str] = ()
    span: Span | None = None

    @property
    def tolerance(self) -> int:
        return 0 if self.span is None else self.span.tolerance

    def differ(self, first: Ints, second: Ints) -> Booleans:
        """Mark replies that are not the same; both must be readable."""
        return differ(first, second, self.tolerance)

    def name(self, of_class: int) -> str:
        """A class, or a score, as a reader knows it."""
        if self.span is not None:
            return self.span.name(of_class)
        named = 0 < of_class <= len(self.names)
        return f"'{self.names[of_class - 1]}'" if named else f"class {of_class}"

    @property
    def n_views(self) -> int:
        return int(self.replies.shape[1])

    @property
    def flat(self) -> Ints:
        """Blocks x positions: first reply and repeat of the first view, then of the second ..."""
        return self.replies.reshape(len(self.replies), 2 * self.n_views)

    @cached_property
    def repeated(self) -> Repeated:
        """The views asked twice, in at least one block."""
        first, again = self.replies[:, :, 0], self.replies[:, :, 1]
        twice = (first != NOT_ASKED) & (again != NOT_ASKED)
        if not twice.any():
            return "no view"
        whole = twice | (first == NOT_ASKED)
        return "every view" if (whole.all(axis=1) & twice.any(axis=1)).any() else "some views"

    def totals(self, of_blocks: npt.NDArray[np.generic]) -> Floats:
        """Sum of a number of each block, by cluster."""
        weights = np.asarray(of_blocks, dtype=np.float64)
        return np.bincount(self.cluster, weights, self.n_clusters).astype(np.float64)

    def means(self, of_blocks: Floats, counted: Booleans) -> Floats:
        """Mean over the counted blocks of each cluster that has one."""
        n = self.totals(counted)
        return self.totals(np.where(counted, of_blocks, 0.0))[n > 0] / n[n > 0]


@dataclass(frozen=True)
class Counts:
    """Pairs of views of each cluster: compared, readable and different."""

    asked: Floats
    read: Floats
    differ: Floats


def read_blocks(row: Row) -> Blocks:
    """Check the arrays of a row and bring them into one shape."""
    first = _check_block_classes(row.pairs, "pairs")
    if first.ndim != 2 or first.shape[1] < 2:
        raise Problem(f"pairs must be items x views, two views or more; got shape {first.shape}")
    again = (
        np.full_like(first, NOT_ASKED)
        if row.repeats is None
        else _check_block_classes(row.repeats, "repeats")
    )
    if again.shape != first.shape:
        raise Problem(f"repeats has shape {again.shape} but pairs has {first.shape}; align them")
    replies = np.stack([first, np.where(first == NOT_ASKED, NOT_ASKED, again)], axis=2)
    cluster, n_clusters = _number_block_clusters(row.clusters, len(first))
    slots = None if row.slots is None else placed(np.asarray(row.slots), first, again)
    strata = None if row.weights is None else _check_strata(row, len(first))
    kept = slots if row.nominal else None
    names = tuple(row.names)
    return Blocks(replies, cluster, n_clusters, row.nominal, kept, strata, names, row.span)


def as_ranks(
    pairs: npt.ArrayLike, repeats: npt.ArrayLike | None, within: float
) -> tuple[tuple[Ints, Ints | None], Span]:
    """Decimal scores as ranks of the range that they lie in, 0 where there is none (NaN)."""
    scores = [np.asarray(one, dtype=np.float64) for one in (pairs, repeats) if one is not None]
    known = np.concatenate([one[np.isfinite(one)] for one in scores])
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    span = Span(low, max(high, low + within + 1.0), within)
    ranks = [
        np.where(np.isfinite(one), np.rint((np.nan_to_num(one) - low) / span.step) + 1, UNREADABLE)
        for one in scores
    ]
    whole = [one.astype(np.int64) for one in ranks]
    return (whole[0], whole[1] if len(whole) > 1 else None), span


def _check_strata(row: Row, n: int) -> Strata:
    """Check the classes of rows and the frequencies of classes."""
    weights = np.asarray(row.weights, dtype=np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
        raise Problem(f"weights must be one finite number from 0 per class; got {row.weights}")
    if not weights.sum() > 0:
        raise Problem("weights must not all be 0")
    if row.gold is None:
        raise Problem("weights need the class of every row of pairs; give gold")
    gold = _check_block_classes(row.gold, "gold")
    if gold.shape != (n,) or gold.max(initial=0) > len(weights):
        raise Problem(
            f"gold must contain one class from 1 to {len(weights)} per row of pairs ({n}); "
            f"got shape {gold.shape}, largest {gold.max(initial=0)}"
        )
    return Strata(np.maximum(gold, 0), weights / weights.sum())


def count_pairs(blocks: Blocks) -> Counts:
    """Count the pairs of first replies in every cluster."""
    return Counts(*map(blocks.totals, block_pairs(blocks)))


def repeated_pairs(blocks: Blocks) -> Counts:
    """Count the views of every cluster that were asked twice, read twice, and differ."""
    first, again = blocks.replies[:, :, 0], blocks.replies[:, :, 1]
    asked = (first != NOT_ASKED) & (again != NOT_ASKED)
    both = (first > UNREADABLE) & (again > UNREADABLE)
    counts = (asked, both, both & blocks.differ(first, again))
    return Counts(*(blocks.totals(one.sum(axis=1)) for one in counts))


def block_pairs(blocks: Blocks) -> tuple[Ints, Ints, Ints]:
    """Pairs of first replies in every block: compared, readable and different."""
    return pairs_in(blocks.replies[:, :, 0], blocks.tolerance)


def pairs_in(first: Ints, tolerance: Ints | int = 0) -> tuple[Ints, Ints, Ints]:
    """Pairs of views in every row of replies (items x views): compared, readable and different."""
    asked, read, apart = np.zeros((3, len(first)), dtype=np.int64)
    for one, other in combinations(range(first.shape[1]), 2):
        a, b = first[:, one], first[:, other]
        is_read = (a > UNREADABLE) & (b > UNREADABLE)
        asked += (a != NOT_ASKED) & (b != NOT_ASKED)
        read += is_read
        apart += is_read & differ(a, b, tolerance)
    return asked, read, apart


def _check_block_classes(values: npt.ArrayLike, what: str) -> Ints:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise Problem(f"{what} must contain whole numbers (0 = unreadable); got {array.dtype}")
    if array.size and array.min() < NOT_ASKED:
        raise Problem(f"{what} must contain classes from 1, 0 or -1; got {array.min()}")
    return array.astype(np.int64)


def _number_block_clusters(clusters: npt.ArrayLike | None, n: int) -> tuple[Ints, int]:
    if clusters is None:
        return np.arange(n), n
    ids = np.asarray(clusters)
    if ids.shape != (n,):
        raise Problem(f"clusters must name one cluster per row of pairs ({n}); got {ids.shape}")
    names, cluster = np.unique(ids, return_inverse=True)
    return cluster.astype(np.int64), len(names)


# --- slots ------------------------------------------------------------------------------------


def placed(slots: npt.NDArray[np.generic], first: Ints, again: Ints) -> Ints:
    """Place of every class in every view of every block.

    Slots may be given whole (blocks x views x classes) or, in the shape of the pairs, only for the
    answers that were given. The rest then follows from what the row shows: a class with the same
    place in all items, or a view that moves places alike in all items. Items with different numbers
    of options need the whole.
    """
    n_classes = int(max(first.max(initial=1), again.max(initial=1)))
    if slots.ndim == 3 and slots.shape[:2] == first.shape and slots.shape[2] >= n_classes:
        return _check_block_classes(slots, "slots")
    if slots.shape != first.shape:
        raise Problem(
            f"slots must have the shape of pairs {first.shape}, or that x classes; "
            f"got {slots.shape}"
        )
    shown = _check_block_classes(slots, "slots")
    table = np.zeros((*first.shape, n_classes), dtype=np.int64)
    rows, views = np.nonzero((first > UNREADABLE) & (shown > 0))
    table[rows, views, first[rows, views] - 1] = shown[rows, views]
    return _by_view(_by_class(table))


def shown_alike(classes: Ints, places: Ints, n_classes: int) -> Ints | None:
    """Place of every class in every view (views x classes), if all items were shown alike.

    Whoever says where a class stood counts: answers, and right answers. The last class of a view
    has the last place. None if two items contradict each other.
    """
    table = np.zeros((classes.shape[1], n_classes), dtype=np.int64)
    for view, (those, there) in enumerate(zip(classes.T, places.T, strict=True)):
        known = (those > UNREADABLE) & (there > 0)
        table[view, those[known] - 1] = there[known]
        if (table[view, those[known] - 1] != there[known]).any():
            return None
        missing, left = np.flatnonzero(table[view] == 0), set(range(1, n_classes + 1))
        left -= set(table[view].tolist())
        if len(missing) == len(left) == 1:
            table[view, missing[0]] = left.pop()
    return table


def _by_class(table: Ints) -> Ints:
    """Fill in the classes that have one place per view throughout the row."""
    highest = table.max(axis=0, initial=0)
    lowest = np.where(table > 0, table, highest).min(axis=0, initial=np.iinfo(np.int64).max)
    return table if (lowest < highest).any() else np.broadcast_to(highest, table.shape).copy()


def _by_view(table: Ints) -> Ints:
    """Fill in a place in one view from that in another, where views move places alike."""
    filled = table.copy()
    for one, other in permutations(range(table.shape[1]), 2):
        moved = _moved_places(table[:, one], table[:, other], table.shape[2])
        is_open = (filled[:, other] == 0) & (table[:, one] > 0)
        filled[:, other] = np.where(is_open, moved[table[:, one]], filled[:, other])
    return filled


def _moved_places(one: Ints, other: Ints, n_classes: int) -> Ints:
    """Place in the other view by place in this one, 0 if unknown.

    A place that no agreeing pair shows is taken to be mirrored if all others are.
    """
    both = (one > 0) & (other > 0)
    steps = np.unique(np.stack([one[both], other[both]], axis=1), axis=0)
    n_places = max(int(max(one.max(initial=0), other.max(initial=0))), n_classes)
    moved = np.zeros(n_places + 1, dtype=np.int64)
    if len(np.unique(steps[:, 0])) < len(steps):
        return moved
    ends = np.unique(steps.sum(axis=1)) if len(steps) else np.array([n_places + 1])
    if len(ends) == 1:
        moved[1:] = np.maximum(ends[0] - np.arange(1, n_places + 1), 0)
    moved[steps[:, 0]] = steps[:, 1]
    return moved
