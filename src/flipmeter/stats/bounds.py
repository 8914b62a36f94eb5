"""Cluster means -> bounds that hold at small n; how many items settle one; what counts as shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import polars as pl
from scipy import special

from flipmeter.stats.blocks import Strata
from flipmeter.stats.groups import Booleans, Estimates, Floats, Ints, estimates, undefined
from flipmeter.types import ALPHA

LOWEST_EXCESS = -0.5
"""Smallest possible excess of a block: two views that give both answers equally often."""


@dataclass(frozen=True)
class Bounded:
    """An estimate over n clusters, its two-sided interval and its two one-sided bounds."""

    value: float
    low: float
    high: float
    lower: float
    upper: float
    n: int


# --- shares -----------------------------------------------------------------------------------


def bounded_share(hits: Floats, trials: Floats, alpha: float) -> Bounded:
    """Mean share of hits over the clusters with a trial, with its bounds.

    One trial per cluster: Clopper-Pearson. Else Korn-Graubard on the cluster means.
    """
    seen = trials > 0
    x, per_cluster = hits[seen] / trials[seen], trials[seen]
    n = len(x)
    if not n:
        return Bounded(math.nan, 0.0, 1.0, 0.0, 1.0, 0)
    each = 1.0 if (per_cluster == 1).all() else float(per_cluster.mean())
    hit, missed = (_effective_trials(side, each) for side in (x, 1 - x))
    return Bounded(
        float(x.mean()),
        1 - _beta_upper(missed, alpha / 2),
        _beta_upper(hit, alpha / 2),
        1 - _beta_upper(missed, alpha),
        _beta_upper(hit, alpha),
        n,
    )


@dataclass(frozen=True)
class Effective:
    """A mean of cluster shares, and the number of independent trials that it stands for."""

    mean: float
    n: int
    size: float
    is_exact: bool

    def at(self, alpha: float) -> float:
        """Trials at a level: fewer clusters know less of their own spread."""
        if self.is_exact:
            return self.size
        return self.size / (_t_quantile(self.n - 1, alpha) / float(special.ndtri(1 - alpha))) ** 2


def _effective_trials(x: Floats, per_cluster: float) -> Effective:
    """Korn and Graubard's effective number of trials; with one trial in each, all of them.

    Without the pseudo-cluster that always flips, a few such items among many that rarely do would
    give bounds that are too low.
    """
    n, mean = len(x), float(x.mean())
    if per_cluster == 1 or n < 2:
        return Effective(mean, n, float(n), is_exact=True)
    variance = float(np.append(x, 1.0).var(ddof=1)) / n
    size = min(max(mean * (1 - mean) / variance, n), n * per_cluster) if variance else float(n)
    return Effective(mean, n, size, is_exact=False)


def _beta_upper(of: Effective, alpha: float) -> float:
    """Clopper-Pearson's bound for the effective number of trials."""
    size = of.at(alpha)
    if of.mean * size > size - 1e-9:
        return 1.0
    return float(special.betaincinv(of.mean * size + 1, (1 - of.mean) * size, 1 - alpha))


@lru_cache(maxsize=4096)
def _t_quantile(df: int, alpha: float) -> float:
    return float(special.stdtrit(df, 1 - alpha))


# --- means ------------------------------------------------------------------------------------


def bounded_mean(
    values: Floats, alpha: float, *, bottom: float = -1.0, top: float = 1.0
) -> Bounded:
    """Mean of cluster values that lie between bottom and top, with its bounds."""
    if not len(values):
        return Bounded(math.nan, bottom, top, bottom, top, 0)
    zero = 0.0 if bottom < 0 else top  # seen from below, values begin where they cannot be higher
    below, reach = zero - values, zero - bottom
    return Bounded(
        float(values.mean()),
        zero - float(mean_upper(below, alpha / 2, reach)),
        float(mean_upper(values, alpha / 2, top)),
        zero - float(mean_upper(below, alpha, reach)),
        float(mean_upper(values, alpha, top)),
        len(values),
    )


def mean_upper(values: Floats, alpha: float, top: float = 1.0) -> Floats:
    """One-sided t bound of a mean (of every column), with one pseudo-cluster at the top.

    It is never below Clopper-Pearson's for as many clusters at the top as make this mean: no values
    vary less than hits and misses, and for those the t bound fails in 6 % instead of 5 %.
    """
    n = len(values)
    mean = values.mean(axis=0)
    centre = (n * mean + top) / (n + 1)
    squares = ((values - mean) ** 2).sum(axis=0) + (top - mean) ** 2 * n / (n + 1)
    spread = np.sqrt(squares / n / (n + 1))
    upper = centre + _t_quantile(n, alpha) * spread
    hits = n * mean / top
    whole = np.clip(hits, 0.0, n - 1e-9)
    least = np.where(hits > -1, special.betaincinv(whole + 1, n - whole, 1 - alpha), -np.inf)
    return np.asarray(np.clip(upper, top * least, top))


# --- p-values of the same bounds: the smallest alpha at which a bound is on the other side -------


def share_p(x: Floats, margin: float, alpha: float, per_cluster: float) -> float:
    """p of a mean of cluster shares being at the margin or above, by `bounded_share`."""
    of = _effective_trials(x, per_cluster)
    p = _beta_p(of, margin, alpha)
    # The effective size shrinks with alpha: at p itself it is smaller than at alpha.
    return p if of.is_exact or not 0 < p < alpha else _beta_p(of, margin, p)


def _beta_p(of: Effective, margin: float, alpha: float) -> float:
    size = of.at(alpha)
    if of.mean * size > size - 1e-9:
        return 1.0
    return float(special.betaincc(of.mean * size + 1, (1 - of.mean) * size, margin))


def mean_p(values: Floats, margin: float, top: float = 1.0) -> Floats:
    """p of a mean (of every column) being at the margin or above, by `mean_upper`."""
    n, mean = len(values), values.mean(axis=0)
    centre = (n * mean + top) / (n + 1)
    squares = ((values - mean) ** 2).sum(axis=0) + (top - mean) ** 2 * n / (n + 1)
    spread = np.maximum(np.sqrt(squares / n / (n + 1)), 1e-12)
    by_t = special.stdtr(n, (centre - margin) / spread)
    hits = n * mean / top
    whole = np.clip(hits, 0.0, n - 1e-9)
    least = np.where(hits > -1, special.betaincc(whole + 1, n - whole, min(margin / top, 1.0)), 0.0)
    return np.asarray(np.maximum(by_t, least))


MOST = 20_000
POWER = 0.8


def fewest(holds: Callable[[int], bool], start: int = 1, most: float = MOST) -> int | None:
    """Smallest n from start on for which a growing condition holds; None beyond the most."""
    high = max(start, 1)
    while not holds(high):
        high *= 2
        if high > most:
            return None
    low = start - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def needed_below(rate: float, margin: float, alpha: float) -> int | None:
    """Fewest items with which a share of this true rate is shown to be below the margin."""
    if not rate < margin:
        return None

    def first_with(flips: int) -> int | None:
        return fewest(lambda n: bool(special.bdtr(flips, n, margin) < alpha), flips + 1)

    def suffices(allowed: int) -> bool:
        n = first_with(allowed - 1)
        return n is None or bool(special.bdtr(allowed - 1, n, rate) >= POWER)

    allowed = fewest(suffices)
    return None if allowed is None else first_with(allowed - 1)


def needed_above(rate: float, margin: float, alpha: float) -> int | None:
    """Items with which a share of this true rate is shown to be above the margin (normal)."""
    return _ceil_within_limit(rough_size(rate, margin, alpha, POWER)) if rate > margin else None


def rough_size(rate: float, margin: float, alpha: float, power: float) -> float:
    """Items needed to distinguish a share from a margin, by the normal approximation."""
    z, y = float(special.ndtri(1 - alpha)), float(special.ndtri(power))
    reach = z * math.sqrt(margin * (1 - margin)) + y * math.sqrt(rate * (1 - rate))
    return (reach / (rate - margin)) ** 2


def needed_mean_below(mean: float, spread: float, margin: float, alpha: float) -> int | None:
    """Clusters with which a mean of this spread gets a t bound below the margin."""
    if not mean < margin:
        return None
    y = float(special.ndtri(POWER))

    def suffices(n: int) -> bool:
        seen = mean + y * spread / math.sqrt(n)
        centre = (n * seen + 1) / (n + 1)
        squares = n * spread**2 + (1 - seen) ** 2 * n / (n + 1)
        t = float(special.stdtrit(n, 1 - alpha))
        bound = centre + t * math.sqrt(squares / n / (n + 1))
        return bool(max(bound, 1 - alpha ** (1 / n)) < margin)

    return fewest(suffices, 2)


def needed_real(p: float, n: int, alpha: float) -> int | None:
    """Clusters with which an effect that has this p with n clusters would be found."""
    if p >= 0.5:
        return None
    z = float(special.ndtri(1 - alpha)) + float(special.ndtri(POWER))
    return _ceil_within_limit(n * (z / float(special.ndtri(1 - p))) ** 2)


def _ceil_within_limit(n: float) -> int | None:
    return math.ceil(n) if n <= MOST else None


FoundBy = Literal["", "holm", "bh"]


def is_shown(p: float, alpha: float = ALPHA) -> bool:
    """Whether a p-value shows an effect."""
    return p < alpha


def shown(p: pl.Series, alpha: float = ALPHA) -> pl.Series:
    """Whether each p-value shows an effect; null where there is none."""
    return p < alpha


def found_by(p_holm: float | None, p_bh: float | None) -> FoundBy:
    """The correction that an effect passes: Holm, or only Benjamini and Hochberg."""
    if p_holm is not None and is_shown(p_holm):
        return "holm"
    return "bh" if p_bh is not None and is_shown(p_bh) else ""


def side_of_zero() -> pl.Expr:
    """The word for a difference by its interval (columns value, low and high)."""
    return (
        pl.when(pl.col("value").is_null())
        .then(pl.lit("undefined"))
        .when(pl.col("low") > 0)
        .then(pl.lit("higher"))
        .when(pl.col("high") < 0)
        .then(pl.lit("lower"))
        .otherwise(pl.lit("not distinguishable"))
    )


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
