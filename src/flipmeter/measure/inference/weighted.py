"""Class frequencies of production -> means weighted to them, with bounds over clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flipmeter.measure.inference.blocks import Strata
from flipmeter.measure.inference.bounds import Bounded, mean_upper
from flipmeter.measure.panel.checked import Booleans, Floats, Ints
from flipmeter.measure.panel.groups import Estimates, estimates, undefined


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

    A cluster counts once however many rows it has. None if a class of production has no counted
    row. Bounds are those of a mean over clusters, each of which moves it by as much as its rows lie
    beside the mean of their class. The pseudo-cluster at the top is one of the largest weight: a
    class with few items may make up most of production.
    """
    if not counted.any() or uncovered(counted, strata):
        return None
    gold, kept, (bottom, top) = strata.gold[counted], values[counted], reach
    names, of = np.unique(cluster[counted], return_inverse=True)
    part, n = 1 / np.bincount(of)[of], len(names)
    held = np.bincount(gold, part, len(strata.weights) + 1)
    each = np.r_[0.0, strata.weights] / np.where(held > 0, held, 1.0)
    weight = each[gold] * part

    def uppers(values: Floats, top: float) -> list[float]:
        """Upper bounds of the weighted mean of values that reach up to a top."""
        sums = np.bincount(gold, weight * values)
        mean = float(sums.sum())
        by_class = sums / np.maximum(np.bincount(gold, weight), 1e-300)
        moved = mean + np.bincount(of, n * weight * (values - by_class[gold]), n).astype(np.float64)
        most = mean + float(np.bincount(of, n * weight * (top - by_class[gold]), n).max())
        return [float(mean_upper(moved, level, most)) for level in (alpha, alpha / 2)]

    zero = 0.0 if bottom < 0 else top
    upper, high = uppers(kept, top)
    lower, low = (zero - x for x in uppers(zero - kept, zero - bottom))
    low, high, lower, upper = (float(np.clip(x, bottom, top)) for x in (low, high, lower, upper))
    return Bounded(float((weight * kept).sum()), low, high, lower, upper, n)


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
