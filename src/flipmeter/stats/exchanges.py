"""Replies of a block -> their exchanges and statistics; exact tails of sums of such units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

from flipmeter.stats.blocks import Repeated
from flipmeter.stats.frame import differ
from flipmeter.stats.groups import Booleans, Floats, Ints

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
    for order in _deal_replies(tuple(positions), tuple(sizes)):
        one = own.copy()
        one[positions] = order
        dealt.append(one)
    return np.array(dealt)


def _deal_replies(replies: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Split replies into hands of these sizes in every way; within a hand order is kept."""
    if not sizes:
        return [()]
    found = []
    for hand in combinations(replies, sizes[0]):
        rest = tuple(reply for reply in replies if reply not in hand)
        found += [hand + others for others in _deal_replies(rest, sizes[1:])]
    return found


# --- what a block says: replies are ... x blocks x positions -----------------------------------


def excess(replies: Ints, shape: Shape, tolerance: int = 0) -> Floats:
    """Disagreement across views minus disagreement of views with themselves; 0 if undefined."""
    if not shape.has_excess:
        return np.zeros(replies.shape[:-1])
    return _differing_pair_share(replies, shape.across, tolerance) - _differing_pair_share(
        replies, shape.within, tolerance
    )


def _differing_pair_share(replies: Ints, pairs: Pairs, tolerance: int) -> Floats:
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


STEPS = (1, 2, 4, 6, 12, 24, 40, 60, 84, 120, 840)
"""Lattices to try: sums are multiples of one over one of these."""

NEGLIGIBLE = 1e-22
"""Mass that may be cut from either end of a distribution; it is added to the tail."""

LONG = 128
"""Shorter distributions are not worth cutting."""

MOST_POINTS = 1 << 14
"""Sums on more lattice points than these are left to draws: decimal scores lie on fine lattices."""


@dataclass(frozen=True)
class Mass:
    """Probabilities of consecutive lattice points from `start`, and what was cut."""

    start: int
    p: Floats
    cut: float = 0.0

    def __add__(self, other: Mass) -> Mass:
        p = np.convolve(self.p, other.p)
        if len(p) < LONG:
            return Mass(self.start + other.start, p, self.cut + other.cut)
        ends = np.flatnonzero(p > NEGLIGIBLE)
        kept = slice(int(ends[0]), int(ends[-1]) + 1)
        cut = float(p[: kept.start].sum() + p[kept.stop :].sum())
        start = self.start + other.start + kept.start
        return Mass(start, p[kept], self.cut + other.cut + cut)


def exact_tail(tables: Sequence[Floats], observed: float, *, two_sided: bool) -> float | None:
    """Chance that a sum with one outcome of each unit is at least the observed one.

    Each table is units x equally likely outcomes. None if they share no lattice, or a too fine one.
    """
    step = _lattice(tables)
    if step is None:
        return None
    outcomes = [np.rint(table * step).astype(np.int64) for table in tables]
    apart = int(np.gcd.reduce([np.gcd.reduce(table, axis=None) for table in outcomes] or [0]))
    if not apart:
        return 1.0
    spread = sum(int(np.ptp(table, axis=1).sum()) for table in outcomes) // apart
    if spread > MOST_POINTS:
        return None
    masses = [mass for table in outcomes for mass in _masses((table // apart).astype(float))]
    total = _convolve_masses(masses)
    points = total.start + np.arange(len(total.p))
    at = round(observed * step) // apart
    is_extreme = np.abs(points) >= abs(at) if two_sided else points >= at
    return min(1.0, float(total.p[is_extreme].sum()) + total.cut + NEGLIGIBLE)


def _lattice(tables: Sequence[Floats]) -> int | None:
    for step in STEPS:
        if all(
            np.abs(table * step - np.rint(table * step)).max(initial=0) < 1e-6 for table in tables
        ):
            return step
    return None


def _masses(outcomes: Floats) -> list[Mass]:
    """Distribution of each row of equally likely outcomes, one and the same for equal rows."""
    rows, times = np.unique(np.sort(outcomes, axis=1), axis=0, return_counts=True)
    starts, ends = rows[:, 0].astype(np.int64), rows[:, -1].astype(np.int64)
    width = int((ends - starts).max(initial=0)) + 1
    cells = (rows - rows[:, :1]).astype(np.int64) + width * np.arange(len(rows))[:, None]
    p = np.bincount(cells.ravel(), minlength=width * len(rows)).reshape(-1, width) / rows.shape[1]
    masses: list[Mass] = []
    for start, end, shares, n in zip(starts, ends, p, times, strict=True):
        masses += [Mass(int(start), shares[: end - start + 1])] * int(n)
    return masses


def _convolve_masses(masses: list[Mass]) -> Mass:
    """Add neighbours until one is left: short distributions first, equal sums once."""
    while len(masses) > 1:
        known: dict[tuple[int, int], Mass] = {}
        halves = []
        for a, b in zip(masses[::2], masses[1::2], strict=False):
            halves.append(known.get((id(a), id(b))) or known.setdefault((id(a), id(b)), a + b))
        masses = halves + masses[len(masses) // 2 * 2 :]
    return masses[0]
