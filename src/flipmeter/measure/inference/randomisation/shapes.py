"""Readable replies of a block -> their possible exchanges, and their statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from flipmeter.measure.inference.blocks import Repeated
from flipmeter.measure.panel.checked import Booleans, Floats, Ints
from flipmeter.measure.panel.units import differ

MOST_ASSIGNMENTS = 720
"""Above this the assignments of a block are drawn, not listed."""

Readable = tuple[tuple[bool, bool], ...]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Shape:
    """Readable replies of a block, by view and repeat; position 2 v + r is repeat r of view v."""

    readable: Readable
    repeated: Repeated

    @cached_property
    def mask(self) -> Booleans:
        return np.array(self.readable, dtype=np.bool_)

    @property
    def n_views(self) -> int:
        return len(self.readable)

    @cached_property
    def positions(self) -> Ints:
        return np.flatnonzero(self.mask.ravel())

    @cached_property
    def views(self) -> tuple[int, ...]:
        """Views with a readable reply."""
        return tuple(np.flatnonzero(self.mask.any(axis=1)).tolist())

    @cached_property
    def full(self) -> tuple[int, ...]:
        """Views with two readable replies."""
        return tuple(np.flatnonzero(self.mask.all(axis=1)).tolist())

    @cached_property
    def has_excess(self) -> bool:
        if self.repeated == "every view":
            return len(self.full) >= 2
        return len(self.full) >= 1 and len(self.views) >= 2

    @cached_property
    def within(self) -> Pairs:
        return tuple((2 * view, 2 * view + 1) for view in self.full)

    @cached_property
    def across(self) -> Pairs:
        """Readable positions in different views; of full views only where all are repeated."""
        views = self.full if self.repeated == "every view" else self.views
        held = [p for p in self.positions.tolist() if p // 2 in views]
        return tuple((p, q) for p, q in combinations(held, 2) if p // 2 != q // 2)

    @cached_property
    def n_assignments(self) -> int:
        return math.factorial(len(self.positions)) // (1 << len(self.full))

    def assignments(self) -> Ints:
        """Every way to deal the readable replies to the views, the observed one first."""
        return _assignments(self.readable)


@lru_cache(maxsize=256)
def shape_of(readable: Readable, repeated: Repeated) -> Shape:
    """The one shape of these readable replies, so that its parts are worked out once."""
    return Shape(readable, repeated)


@lru_cache(maxsize=256)
def _assignments(readable: Readable) -> Ints:
    sizes = [sum(view) for view in readable]
    positions = [2 * v + r for v, view in enumerate(readable) for r in (0, 1) if view[r]]
    own = np.arange(2 * len(readable))
    dealt = []
    for order in _deals(tuple(positions), tuple(sizes)):
        one = own.copy()
        one[positions] = order
        dealt.append(one)
    return np.array(dealt)


def _deals(replies: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Split replies into hands of these sizes in every way; within a hand order is kept."""
    if not sizes:
        return [()]
    found = []
    for hand in combinations(replies, sizes[0]):
        rest = tuple(reply for reply in replies if reply not in hand)
        found += [hand + others for others in _deals(rest, sizes[1:])]
    return found


# --- what a block says: replies are ... x blocks x positions -----------------------------------


def excess(replies: Ints, shape: Shape, tolerance: int = 0) -> Floats:
    """Disagreement across views minus disagreement of views with themselves; 0 if undefined."""
    if not shape.has_excess:
        return np.zeros(replies.shape[:-1])
    return _apart(replies, shape.across, tolerance) - _apart(replies, shape.within, tolerance)


def _apart(replies: Ints, pairs: Pairs, tolerance: int) -> Floats:
    total = np.zeros(replies.shape[:-1])
    for p, q in pairs:
        total += differ(replies[..., p], replies[..., q], tolerance)
    return total / len(pairs)


def rank_lean(replies: Ints, shape: Shape) -> Floats:
    """Mean rank of the second view minus the first; with more views, of each minus the mean."""
    means = np.zeros((*replies.shape[:-1], shape.n_views))
    for view in shape.views:
        held = [2 * view + r for r in (0, 1) if shape.mask[view, r]]
        means[..., view] = replies[..., held].mean(axis=-1)
    if shape.n_views == 2:
        lean = means[..., 1:] - means[..., :1]
        return lean if len(shape.views) == 2 else np.zeros_like(lean)
    centre = replies[..., shape.positions].mean(axis=-1, keepdims=True)
    weights = shape.mask.sum(axis=1)
    return np.asarray((means - centre) * weights)


def place_counts(replies: Ints, shape: Shape, places: Ints, n_places: int) -> Floats:
    """Readable replies at each place beyond what reassignment alone would put there.

    `places` is blocks x views x classes, from 0; every reply is equally likely in every position.
    """
    readable = shape.positions
    blocks = np.arange(len(places))
    counts = np.zeros((*replies.shape[:-1], n_places))
    for p in readable.tolist():
        at = places[blocks, p // 2, replies[..., p] - 1]
        counts += at[..., None] == np.arange(n_places)
        for q in readable.tolist():
            moved = places[blocks, p // 2, replies[..., q] - 1]
            counts -= (moved[..., None] == np.arange(n_places)) / len(readable)
    return counts


def readable_code(mask: npt.NDArray[np.bool_]) -> Ints:
    """A number that tells readability patterns apart: blocks x views x 2 -> blocks."""
    bits = mask.reshape(len(mask), mask.shape[1] * mask.shape[2])
    if bits.shape[1] > 62:
        return np.unique(bits, axis=0, return_inverse=True)[1].astype(np.int64)
    return np.asarray(bits @ (1 << np.arange(bits.shape[1], dtype=np.int64)))
