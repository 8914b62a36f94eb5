"""Cluster totals -> how far a vector of shares lies from where it should be, with an interval.

A distance is never below 0 and its estimate is too large on average: an interval around it must
reach 0 where chance alone could have made it. The squared distance is taken for a scaled
noncentral chi-square with the spread that clusters show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from flipmeter.measure.panel.checked import Floats
from flipmeter.types import ALPHA

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
