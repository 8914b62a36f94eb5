"""Counts -> intervals and p-values, each by one named formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.base.checks import interval_level
from flipmeter.measure.panel.checked import Floats, Ints, booleans
from flipmeter.registry import suggestion
from flipmeter.types import LEVEL, Problem

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
    hits, size = _counts(k, n)
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


def _counts(k: int | Counts, n: int | Counts) -> tuple[Floats, Floats]:
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
