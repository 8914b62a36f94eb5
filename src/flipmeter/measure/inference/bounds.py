"""Cluster means -> bounds that hold at small n and under any correlation within clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Floats

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
    hit, missed = (_effective(side, each) for side in (x, 1 - x))
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
        return self.size / (_t(self.n - 1, alpha) / float(special.ndtri(1 - alpha))) ** 2


def _effective(x: Floats, per_cluster: float) -> Effective:
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
def _t(df: int, alpha: float) -> float:
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
    upper = centre + _t(n, alpha) * spread
    hits = n * mean / top
    whole = np.clip(hits, 0.0, n - 1e-9)
    least = np.where(hits > -1, special.betaincinv(whole + 1, n - whole, 1 - alpha), -np.inf)
    return np.asarray(np.clip(upper, top * least, top))


# --- p-values of the same bounds: the smallest alpha at which a bound is on the other side -------


def share_p(x: Floats, margin: float, alpha: float, per_cluster: float) -> float:
    """p of a mean of cluster shares being at the margin or above, by `bounded_share`."""
    of = _effective(x, per_cluster)
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
