"""Class frequencies of production -> means weighted to them, with bounds over clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from flipmeter.measure.inference.blocks import Booleans, Floats, Ints, Strata
from flipmeter.measure.inference.bounds import Bounded, mean_upper
from flipmeter.measure.panel.groups import Estimates, estimates, undefined


@dataclass(frozen=True)
class Weighing:
    """Counted rows with their class, their cluster among n, and what each weighs in the mean."""

    gold: Ints
    of: Ints
    n: int
    weight: Floats

    def upper(self, values: Floats, alphas: tuple[float, ...], top: float) -> list[float]:
        """Upper bounds of the weighted mean of values that reach up to a top.

        Bounds of a mean over clusters, each of which moves it by as much as its rows lie beside the
        mean of their class. The pseudo-cluster at the top is one of the largest weight: a class
        with few items may make up most of production.
        """
        sums = np.bincount(self.gold, self.weight * values)
        mean = float(sums.sum())
        by_class = sums / np.maximum(np.bincount(self.gold, self.weight), 1e-300)
        beside = self.n * self.weight * (values - by_class[self.gold])
        room = self.n * self.weight * (top - by_class[self.gold])
        moved = mean + np.bincount(self.of, beside, self.n).astype(np.float64)
        most = mean + float(np.bincount(self.of, room, self.n).max())
        return [float(mean_upper(moved, alpha, most)) for alpha in alphas]


def weighted_mean(
    values: Floats,
    counted: Booleans,
    cluster: Ints,
    strata: Strata,
    alpha: float,
    *,
    reach: tuple[float, float] = (0.0, 1.0),
) -> Bounded | None:
    """Mean of the counted rows with every class at its frequency, and its bounds.

    A cluster counts once however many rows it has. None if a class of production has
    no counted row.
    """
    if not counted.any() or uncovered(counted, strata):
        return None
    weighing = _weigh(strata.gold[counted], cluster[counted], strata.weights)
    kept, (bottom, top) = values[counted], reach
    zero = 0.0 if bottom < 0 else top
    upper, high = weighing.upper(kept, (alpha, alpha / 2), top)
    lower, low = (zero - x for x in weighing.upper(zero - kept, (alpha, alpha / 2), zero - bottom))
    mean = float((weighing.weight * kept).sum())
    low, high, lower, upper = (float(np.clip(x, bottom, top)) for x in (low, high, lower, upper))
    return Bounded(mean, low, high, lower, upper, weighing.n)


def _weigh(gold: Ints, cluster: Ints, weights: Floats) -> Weighing:
    names, of = np.unique(cluster, return_inverse=True)
    part = 1 / np.bincount(of)[of]
    held = np.bincount(gold, part, len(weights) + 1)
    each = np.r_[0.0, weights] / np.where(held > 0, held, 1.0)
    return Weighing(gold, of.astype(np.int64), len(names), each[gold] * part)


def uncovered(counted: Booleans, strata: Strata) -> int:
    """The first class of production without a counted row; 0 if there is none."""
    held = np.bincount(strata.gold[counted], minlength=len(strata.weights) + 1)[1:]
    return int(np.argmax(np.r_[False, (held == 0) & (strata.weights > 0)]))


def weighted_estimate(metric: str, mean: Bounded | None, failed: int) -> Estimates:
    """A weighted mean as the estimate of one group."""
    if mean is None:
        found = undefined(metric, ["a class of production has no readable item"])
        return replace(found, failed=np.array([failed]))
    note = "classes at their frequency in production"
    value, low, high = (np.array([x]) for x in (mean.value, mean.low, mean.high))
    counts = {"n": np.array([mean.n]), "failed": np.array([failed])}
    return estimates(metric, value, (low, high), note=note, **counts)
