"""Counts and samples -> intervals and p-values, each by one named formula.

A distance is never below 0 and its estimate is too large on average: an interval around it must
reach 0 where chance alone could have made it. The squared distance is taken for a scaled
noncentral chi-square with the spread that clusters show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from flipmeter.checks import interval_level
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.bounds import bounded_share
from flipmeter.stats.groups import (
    NO_COUNT,
    Estimates,
    Floats,
    Groups,
    Ints,
    booleans,
    estimates,
    joined_each,
    ratio,
)
from flipmeter.types import ALPHA, LEVEL, Mode

Method = Literal["mid-p", "exact", "paper"]
Alternative = Literal["greater", "two-sided"]
METHODS: tuple[Method, ...] = ("mid-p", "exact", "paper")
ALTERNATIVES: tuple[Alternative, ...] = ("greater", "two-sided")
Counts = npt.NDArray[Any] | Sequence[int]


@overload
def wilson(k: int, n: int, level: float = ...) -> tuple[float, float]: ...
@overload
def wilson(k: Counts, n: Counts | int, level: float = ...) -> tuple[Floats, Floats]: ...
def wilson(
    k: int | Counts, n: int | Counts, level: float = LEVEL
) -> tuple[float, float] | tuple[Floats, Floats]:
    """Wilson score interval of a share k of n, for numbers or arrays; nothing seen gives (0, 1).

    The lower bound is above 0 as soon as k is: "the interval excludes 0" says only "at least one".
    """
    z = float(special.ndtri(0.5 + interval_level(level) / 2))
    if isinstance(k, int) and isinstance(n, int):
        _check_count(k, n)
        low, high = _wilson_ends(float(k), float(max(n, 1)), z**2)
        return 0.0 if k == 0 else float(low), 1.0 if k == n else float(high)
    hits, size = _check_hits_and_sizes(k, n)
    lows, highs = _wilson_ends(hits, np.maximum(size, 1), z**2)
    return np.where(hits == 0, 0.0, lows), np.where(hits == size, 1.0, highs)


def mcnemar(
    b: int, c: int, method: Method = "mid-p", alternative: Alternative = "greater"
) -> float:
    """McNemar's p for b items of one kind against c of the other; `greater` asks if b exceeds c.

    `paper` is the continuity-corrected chi-square to the letter, halved when one-sided. Where b is
    below c its one-sided p is 1 minus that half: halving alone would call a deficit an excess.
    Without any discordant item every p is 1.
    """
    check_known(method, METHODS, "McNemar method")
    check_known(alternative, ALTERNATIVES, "alternative")
    if b < 0 or c < 0:
        raise Problem(f"discordant counts cannot be negative; got b = {b} and c = {c}")
    return float(mcnemar_p(b, c, method, alternative))


def mcnemar_p(
    b: int | Ints, c: int | Ints, method: Method = "mid-p", alternative: Alternative = "greater"
) -> Floats:
    """Compute `mcnemar` for every pair of counts."""
    if alternative == "greater":
        tail = _upper_tail(b, c, method)
    else:
        tail = np.minimum(1.0, 2 * _upper_tail(np.maximum(b, c), np.minimum(b, c), method))
    return np.where(b + c == 0, 1.0, tail)


def mcnemar_statistic(b: int | Ints, c: int | Ints) -> Floats:
    """Continuity-corrected chi-square of the discordant counts, (|b - c| - 1)^2 / (b + c)."""
    return np.where(b + c == 0, 0.0, (np.abs(b - c) - 1) ** 2 / np.maximum(b + c, 1))


def cochran_q(matrix: npt.ArrayLike) -> tuple[float, int, float]:
    """Cochran's Q over items x conditions of yes and no: the statistic, its df and p.

    Where no item tells the conditions apart there is no evidence at all: (0, df, 1), not NaN.
    """
    table = booleans(matrix, "matrix", 2).astype(np.float64)
    n_conditions = table.shape[1]
    if n_conditions < 2:
        raise Problem("Cochran's Q compares conditions; the matrix has only one column")
    rows = table.sum(axis=1)
    q, p = cochran_p(table.sum(axis=0), np.asarray((rows * (n_conditions - rows)).sum()))
    return float(q), n_conditions - 1, float(p)


def cochran_p(hits: Floats, within: Floats) -> tuple[Floats, Floats]:
    """Compute Cochran's Q and its p from counts, for one group or many.

    `hits` counts the items that hold under each condition (the last axis); `within` adds up, over
    items, the conditions that hold times those that do not.
    """
    n_conditions = hits.shape[-1]
    between = ((hits - hits.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    q = (n_conditions - 1) * n_conditions * between / np.where(within == 0, 1, within)
    q = np.where(within == 0, 0.0, q)
    return q, np.asarray(special.chdtrc(n_conditions - 1, q))


def holm(p_values: npt.ArrayLike) -> Floats:
    """Adjust p-values by Holm's step-down; NaN stays NaN and is not counted as a test."""
    p = np.atleast_1d(np.asarray(p_values, dtype=np.float64))
    tested = np.flatnonzero(~np.isnan(p))
    if ((p[tested] < 0) | (p[tested] > 1)).any():
        raise Problem(f"p-values lie between 0 and 1; got {p.tolist()}")
    order = tested[np.argsort(p[tested], kind="stable")]
    steps = p[order] * (len(order) - np.arange(len(order)))
    adjusted = p.copy()
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def _upper_tail(b: int | Ints, c: int | Ints, method: Method) -> Floats:
    if method == "paper":
        half = special.chdtrc(1, mcnemar_statistic(b, c)) / 2
        return np.where(b >= c, half, 1 - half)
    at_least = special.bdtrc(b - 1, b + c, 0.5)
    if method == "exact":
        return np.asarray(at_least)
    return np.asarray((at_least + special.bdtrc(b, b + c, 0.5)) / 2)


N = TypeVar("N", float, Floats)


def _wilson_ends(k: N, n: N, z_squared: float) -> tuple[N, N]:
    weight, rate = z_squared / n, k / n
    middle = rate + weight / 2
    half = np.sqrt(rate * (1 - rate) * weight + weight * weight / 4)
    return (middle - half) / (1 + weight), (middle + half) / (1 + weight)


def _check_count(k: int, n: int) -> None:
    if not 0 <= k <= n:
        raise Problem(f"a count k must lie between 0 and n; got k = {k} and n = {n}")


def _check_hits_and_sizes(k: int | Counts, n: int | Counts) -> tuple[Floats, Floats]:
    hits, size = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    try:
        hits, size = np.broadcast_arrays(hits, size)
    except ValueError as error:
        raise Problem(f"k has shape {hits.shape} but n has {size.shape}; pair them") from error
    if not ((hits >= 0) & (hits <= size)).all():
        raise Problem(f"a count k must lie between 0 and n; got k = {k} and n = {n}")
    return hits, size


def check_known(name: str, names: Sequence[str], what: str) -> None:
    """Refuse a name that is none of these."""
    if name not in names:
        raise Problem(f"no {what} named '{name}'{suggestion(name, list(names))}")


FAMILY = ("metric", "policy")


def benjamini_hochberg(p_values: npt.ArrayLike) -> Floats:
    """Adjust p-values by Benjamini and Hochberg's step-up, for tables that explore.

    Below alpha after adjusting, at most that share is expected to be false. NaN stays NaN and is
    not counted as a test.
    """
    p = np.atleast_1d(np.asarray(p_values, dtype=np.float64))
    tested = np.flatnonzero(~np.isnan(p))
    if ((p[tested] < 0) | (p[tested] > 1)).any():
        raise Problem(f"p-values lie between 0 and 1; got {p.tolist()}")
    order = tested[np.argsort(p[tested], kind="stable")[::-1]]
    steps = p[order] * len(order) / np.arange(len(order), 0, -1)
    adjusted = p.copy()
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def adjusted(table: pl.DataFrame, family: Sequence[str] = FAMILY) -> pl.DataFrame:
    """Add `p_holm` and `p_bh` beside `p`; a family is the rows that are equal in these columns.

    Holm holds for every claim of the family at once, Benjamini-Hochberg for exploring.
    """
    missing = [name for name in ("p", *family) if name not in table.columns]
    if missing:
        raise Problem(f"cannot adjust p-values: the table lacks {', '.join(missing)}")
    numbered = table.with_row_index("place")
    parts = []
    for part in numbered.partition_by(*family, maintain_order=True) if table.height else []:
        p = part["p"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        columns = {"p_holm": holm(p), "p_bh": benjamini_hochberg(p)}
        parts.append(part.with_columns(pl.Series(name, of) for name, of in columns.items()))
    if not parts:
        return table.with_columns(
            pl.lit(None, pl.Float64).alias(name) for name in ("p_holm", "p_bh")
        )
    whole = pl.concat(parts).sort("place").drop("place")
    return whole.with_columns(pl.col("p_holm", "p_bh").fill_nan(None))


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


def correlations(x: Floats, y: Floats, groups: Groups) -> Floats:
    """Pearson's correlation in every group, NaN where a side is constant."""
    n = groups.count()
    a, b = (of - ratio(groups.total(of), n)[groups.of] for of in (x, y))
    return ratio(groups.total(a * b), np.sqrt(groups.total(a**2) * groups.total(b**2)))


def midranks(numbers: Floats) -> Floats:
    """The rank of each number, equal ones sharing the mean of theirs."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def by_group(values: Floats, groups: Groups, make: Callable[[Floats], Floats]) -> Floats:
    """Apply a function to the numbers of each group by themselves."""
    order = np.argsort(groups.of, kind="stable")
    parts = np.split(values[order], np.cumsum(groups.count())[:-1])
    found = np.empty(len(values))
    found[order] = np.concatenate([make(part) if len(part) else part for part in parts])
    return found


FAR = 1e7
"""No distance is so many times its own spread."""


@dataclass(frozen=True)
class Length:
    """A distance with its interval; `n` clusters."""

    value: float
    low: float
    high: float
    n: int


def length_of(away: Floats, adds: Floats, *, reach: float) -> Length:
    """The length of a vector and its interval.

    `adds` (clusters x dimensions) are what each cluster adds to it, with mean 0; `reach` is what
    one more cluster could add at most, which stands for what so few clusters did not show.
    """
    value, n = float(np.sqrt((away**2).sum())), len(adds)
    if n < 2:
        return Length(value, math.nan, math.nan, n)
    width = adds.shape[1]
    covariance = adds.T @ adds * n / (n - 1) + np.eye(width) * reach**2 / width
    total, square = float(np.trace(covariance)), float((covariance**2).sum())
    if total <= 0:
        return Length(value, value, value, n)
    unit, df = square / total, total**2 / square
    # Few clusters know their own spread badly: as t is wider than the normal, so is this.
    widen = (special.stdtrit(n - 1, 1 - ALPHA / 2) / special.ndtri(1 - ALPHA / 2)) ** 2
    scale = unit * float(widen)
    seen = value**2 / scale
    # Less than chance alone makes as a rule must not look like certainty: no interval is just 0.
    usual = float(special.chdtri(df, 0.5))
    low = _noncentrality(seen, df, 1 - ALPHA / 2)
    high = _noncentrality(max(seen, usual), df, ALPHA / 2)
    return Length(value, math.sqrt(low * scale), math.sqrt(high * scale), n)


def _noncentrality(seen: float, df: float, p: float) -> float:
    """The noncentrality under which a chi-square stays below what was seen with probability p."""
    if special.chdtr(df, seen) <= p:
        return 0.0
    found = float(special.chndtrinc(seen, df, p))
    if math.isfinite(found) and 0 <= found < FAR:
        return found
    from scipy.optimize import brentq

    top = (math.sqrt(seen) + 10) ** 2 + df
    return float(brentq(lambda nc: float(special.chndtr(seen, df, nc)) - p, 0.0, top))
