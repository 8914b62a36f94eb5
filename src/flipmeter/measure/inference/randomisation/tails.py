"""Outcomes of independent units -> the exact tail of their sum, by convolution on a lattice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.measure.panel.checked import Floats

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
    total = _summed(masses)
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


def _summed(masses: list[Mass]) -> Mass:
    """Add neighbours until one is left: short distributions first, equal sums once."""
    while len(masses) > 1:
        known: dict[tuple[int, int], Mass] = {}
        halves = []
        for a, b in zip(masses[::2], masses[1::2], strict=False):
            halves.append(known.get((id(a), id(b))) or known.setdefault((id(a), id(b)), a + b))
        masses = halves + masses[len(masses) // 2 * 2 :]
    return masses[0]
