"""Hits among items -> their share with its interval, by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from flipmeter.measure.inference.bounds import bounded_share
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.types import ALPHA

Ends = tuple[Floats, Floats]


def share_estimates(
    metric: str,
    hits: Booleans,
    among: Booleans,
    groups: Groups,
    *,
    failed: Ints | None = None,
    note: Sequence[str] | str = "",
) -> Estimates:
    """Share of hits among some items of every group, with the interval that a verdict has."""
    k, n = groups.count(hits & among), groups.count(among)
    ends = share_ends(hits, among, groups)
    return estimates(metric, ratio(k, n), ends, n=n, k=k, failed=failed, note=note)


def share_ends(hits: Booleans, among: Booleans, groups: Groups, alpha: float = ALPHA) -> Ends:
    """Interval of a share: Clopper-Pearson, or Korn-Graubard over clusters of several items."""
    kept = groups.among(among)
    k, n = kept.count(hits[among]), kept.count()
    low, high = exact_ends(k, n, alpha)
    for group in _with_copies(kept).tolist():
        own = kept.of == group
        assert kept.cluster is not None
        _, cluster = np.unique(kept.cluster[own], return_inverse=True)
        hit, n_items = (np.bincount(cluster, of) for of in (hits[among][own] * 1.0, own[own] * 1.0))
        found = bounded_share(np.asarray(hit, np.float64), np.asarray(n_items, np.float64), alpha)
        low[group], high[group] = found.low, found.high
    return low, high


def exact_ends(k: Ints, n: Ints, alpha: float = ALPHA) -> Ends:
    """Clopper-Pearson interval of every share k of n; NaN where n is 0."""
    size = np.maximum(n, 1)
    low = np.where(k > 0, special.betaincinv(np.maximum(k, 1), size - k + 1, alpha / 2), 0.0)
    inner = np.minimum(k, size - 1)
    high = np.where(k < n, special.betaincinv(inner + 1, size - inner, 1 - alpha / 2), 1.0)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def _with_copies(groups: Groups) -> Ints:
    """Groups in which a cluster has several items."""
    if groups.cluster is None or not len(groups.of):
        return np.array([], dtype=np.int64)
    pairs, times = np.unique(
        np.stack([groups.of, groups.cluster], axis=1), axis=0, return_counts=True
    )
    return np.unique(pairs[times > 1, 0])
