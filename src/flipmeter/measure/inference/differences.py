"""Contributions of clusters to some numbers -> intervals, for small samples and rare errors.

Student's interval from leaving each cluster out, for each end with one more cluster unlike those
seen: without it, raters that agree on all of 20 items would differ by exactly 0. docs/log.md lists
the methods that were tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio
from flipmeter.types import ALPHA

FEWEST_CLUSTERS = 5
DECISIVE = "no interval: undefined without one of the items"

Ends = tuple[Floats, Floats]
"""Low and high ends, NaN where there is no interval."""


@dataclass(frozen=True)
class Influences:
    """Contributions of clusters (columns) to some numbers (rows).

    `moves` is how much a number falls when the cluster is left out, NaN where it is undefined then;
    `counted` marks the clusters that a number rests on. `unseen` is how far from the number one
    more cluster may lie, below and above; `reach` are the ends of what is possible.
    """

    clusters: Ints
    moves: Floats
    counted: Booleans
    unseen: Floats
    reach: Floats


def influence_ends(value: Floats, found: Influences) -> Ends:
    """95 % interval of every number, NaN where there is none."""
    n = found.counted.sum(axis=-1)
    low, high = student_ends(value, squares_of(found.moves, found.counted), n, found.unseen)
    return np.maximum(low, found.reach[..., 0]), np.minimum(high, found.reach[..., 1])


def squares_of(moves: Floats, counted: Booleans) -> Floats:
    """Sum of squared influences around their mean, from what leaving out clusters changes."""
    n = counted.sum(axis=-1, keepdims=True)
    influence = np.where(counted, moves, 0.0) * (n - 1)
    away = np.where(counted, influence - ratio(influence.sum(axis=-1, keepdims=True), n), 0.0)
    return np.asarray((away**2).sum(axis=-1))


def student_ends(
    value: Floats, squares: Floats, n: Ints, unseen: Floats, alpha: float = ALPHA
) -> Ends:
    """Student's interval with one more cluster beyond each end; NaN with too few clusters."""
    size = np.maximum(n, 1)
    t = special.stdtrit(size, 1 - alpha / 2)
    ends = []
    for place, side in enumerate((-1.0, 1.0)):
        away = unseen[..., place]
        spread = np.sqrt((squares + away**2 * size / (size + 1)) / size / (size + 1))
        end = value + away / (size + 1) + side * t * spread
        ends.append(
            np.where(n >= FEWEST_CLUSTERS, side * np.maximum(side * end, side * value), np.nan)
        )
    return ends[0], ends[1]


def reasons(value: Floats, found: Influences, low: Floats) -> list[str]:
    """Reason why a number has no interval; empty if it has one, or if there is no number."""
    n = found.counted.sum(axis=-1).tolist()
    return [
        "" if np.isnan(number) or not np.isnan(end) else too_few(size) or DECISIVE
        for number, end, size in zip(value, low, n, strict=True)
    ]


def too_few(n: int) -> str:
    """Say that so many clusters are too few for an interval; empty if they are not."""
    few = f"no interval: {n} items; at least {FEWEST_CLUSTERS} are needed"
    return few if n < FEWEST_CLUSTERS else ""


# --- seeds and datasets -----------------------------------------------------------------------


def mean_influences(parts: Sequence[Influences], defined: Booleans) -> Influences:
    """Influences on the mean of numbers over the same clusters, as those of several seeds.

    `defined` (parts x rows) says which numbers the mean is of.
    """
    clusters = np.unique(np.concatenate([part.clusters for part in parts]))
    shape = len(parts[0].moves), len(clusters)
    moves, counted = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    for part, has in zip(parts, defined, strict=True):
        places = np.searchsorted(clusters, part.clusters)
        moves[:, places] += np.where(has[:, None], part.moves, 0.0)
        counted[:, places] |= part.counted & has[:, None]
    n = defined.sum(axis=0)[:, None]
    unseen, reach = (
        ratio(np.where(defined[..., None], np.stack(of), 0.0).sum(axis=0), n)
        for of in ([part.unseen for part in parts], [part.reach for part in parts])
    )
    return Influences(clusters, ratio(moves, n), counted, unseen, reach)


def average_ends(values: Floats, lows: Floats, highs: Floats) -> Ends:
    """Interval of the mean of independent numbers (rows), as those of several datasets.

    The distances of the ends add up like standard errors (MOVER). None where one has none.
    """
    defined = ~np.isnan(values)
    n = defined.sum(axis=0)
    mean = ratio(np.where(defined, values, 0.0).sum(axis=0), n)
    below, above = (
        ratio(np.sqrt(np.where(defined, (end - values) ** 2, 0.0).sum(axis=0)), n)
        for end in (lows, highs)
    )
    return mean - below, mean + above
