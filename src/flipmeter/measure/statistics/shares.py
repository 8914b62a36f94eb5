"""Hits among trials -> their share with its interval, by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.inference.bounds import bounded_share
from flipmeter.measure.panel.checked import Floats, Ints, ratio
from flipmeter.measure.panel.groups import NO_COUNT, Estimates, Groups, estimates, joined_each
from flipmeter.measure.statistics.formulas import wilson
from flipmeter.types import ALPHA, Mode

Ends = tuple[Floats, Floats]
Marks = npt.NDArray[np.bool_] | Ints
"""The outcome of each item: yes or no, or a number of pairs."""

WILSON = "Wilson interval, items independent"


def share_estimates(
    metric: str,
    hits: Marks,
    trials: Marks,
    groups: Groups,
    *,
    failed: Ints | None = None,
    note: Sequence[str] | str = "",
    mode: Mode = "recommended",
    alpha: float = ALPHA,
) -> Estimates:
    """Share of hits among the trials of every group, with the interval that a verdict has.

    Clusters count once: the share is the mean of theirs. In paper mode items count and the interval
    is Wilson's, which the note says. `n` are the items with a trial and `k` those that are hit, if
    an item has one trial.
    """
    n, has_one = groups.count(trials > 0), bool(trials.max(initial=0) <= 1)
    k = groups.count((hits > 0) & (trials > 0)) if has_one else np.full(groups.n, NO_COUNT)
    told = [note] * groups.n if isinstance(note, str) else note
    if mode == "paper" and has_one:
        low, high = (np.where(n > 0, end, np.nan) for end in wilson(k, n))
        value, told = ratio(k, n), joined_each(told, [WILSON if size else "" for size in n])
    else:
        value, low, high = _by_cluster(hits, trials, groups, alpha)
    return estimates(metric, value, (low, high), n=n, k=k, failed=failed, note=told)


def share_ends(hits: Marks, trials: Marks, groups: Groups, alpha: float = ALPHA) -> Ends:
    """Interval of a share: Clopper-Pearson, or Korn-Graubard over clusters of several trials."""
    _, low, high = _by_cluster(hits, trials, groups, alpha)
    return low, high


def _by_cluster(
    hits: Marks, trials: Marks, groups: Groups, alpha: float
) -> tuple[Floats, Floats, Floats]:
    """Mean share over clusters and its interval, by group."""
    seen = trials > 0
    kept, k, n = groups.among(seen), hits[seen].astype(np.int64), trials[seen].astype(np.int64)
    sums, sizes = (np.bincount(kept.of, of, groups.n).astype(np.int64) for of in (k, n))
    value = ratio(sums, sizes)
    low, high = exact_ends(sums, sizes, alpha)
    for group in _with_several(kept, n).tolist():
        own = kept.of == group
        cluster = np.arange(own.sum()) if kept.cluster is None else kept.cluster[own]
        _, of = np.unique(cluster, return_inverse=True)
        hit, tried = (np.bincount(of, x[own]).astype(np.float64) for x in (k, n))
        found = bounded_share(hit, tried, alpha)
        value[group], low[group], high[group] = found.value, found.low, found.high
    return value, low, high


def exact_ends(k: Ints, n: Ints, alpha: float = ALPHA) -> Ends:
    """Clopper-Pearson interval of every share k of n; NaN where n is 0."""
    size = np.maximum(n, 1)
    low = np.where(k > 0, special.betaincinv(np.maximum(k, 1), size - k + 1, alpha / 2), 0.0)
    inner = np.minimum(k, size - 1)
    high = np.where(k < n, special.betaincinv(inner + 1, size - inner, 1 - alpha / 2), 1.0)
    return np.where(n > 0, low, np.nan), np.where(n > 0, high, np.nan)


def _with_several(groups: Groups, trials: Ints) -> Ints:
    """Groups in which a cluster has several trials."""
    many = np.unique(groups.of[trials > 1])
    if groups.is_apart:
        return many
    pairs, times = np.unique(groups.by_cluster, return_counts=True)
    return np.union1d(many, pairs[times > 1] // groups.n_clusters)
