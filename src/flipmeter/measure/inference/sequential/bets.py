"""Values one by one -> evidence that holds whenever one stops to look, by betting.

For runs without a largest n and for claims on the excess; where n is known, `boundaries` needs
fewer items. Capital that grows to 1 / alpha settles a claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.inference.bounds import LOWEST_EXCESS
from flipmeter.measure.panel.checked import Floats
from flipmeter.types import Problem

Side = Literal["below", "above"]

PRIOR = 0.5
"""Both parameters of the beta prior that bets on shares."""

STAKES = np.geomspace(0.01, 0.95, 24)
"""Shares of the largest stake that cannot go broke; capital is spread evenly over them."""


def share_evidence(k: npt.ArrayLike, n: npt.ArrayLike, margin: float, side: Side) -> Floats:
    """Evidence after k of n that a share is below, or above, a margin; valid at any n."""
    hits, size = (np.asarray(x, dtype=np.float64) for x in (k, n))
    if ((hits < 0) | (hits > size)).any():
        raise Problem("a count k must lie between 0 and n")
    a, b = PRIOR + hits, PRIOR + size - hits
    part = special.betainc if side == "below" else special.betaincc
    null = special.xlogy(hits, margin) + special.xlog1py(size - hits, -margin)
    with np.errstate(divide="ignore"):
        seen = special.betaln(a, b) + np.log(part(a, b, margin))
        bet = special.betaln(PRIOR, PRIOR) + np.log(part(PRIOR, PRIOR, margin))
    return np.asarray(np.exp(seen - bet - null))


def share_bounds(k: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Anytime-valid interval of a share after k of n, at 1 - alpha, that agrees with the evidence.

    It is anytime-valid, and wider than one for a number of items fixed in advance.
    """
    if not n:
        return 0.0, 1.0
    enough, rate = 2 / alpha, k / n

    def is_out(side: Side) -> Callable[[float], bool]:
        return lambda margin: bool(share_evidence(k, n, margin, side) >= enough)

    return last_inside(is_out("above"), rate, 0.0, 40), last_inside(is_out("below"), rate, 1.0, 40)


def last_inside(
    is_out: Callable[[float], bool], inside: float, outside: float, n_steps: int
) -> float:
    """The end of an interval between a number that is inside and one that is outside of it."""
    for _ in range(n_steps):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if is_out(middle) else (middle, outside)
    return outside


def mean_evidence(
    values: npt.ArrayLike,
    margin: float,
    side: Side,
    *,
    bottom: float = LOWEST_EXCESS,
    top: float = 1.0,
) -> Floats:
    """Evidence after each cluster's value that their mean is below, or above, a margin.

    Values lie between bottom and top; the default range is that of a block's excess.
    """
    x = np.asarray(values, dtype=np.float64)
    if not bottom < margin < top:
        raise Problem(f"a margin must lie between {bottom} and {top}; got {margin}")
    if ((x < bottom - 1e-9) | (x > top + 1e-9)).any():
        raise Problem(f"values must lie between {bottom} and {top}")
    logs = np.cumsum(growth(x, margin, side, bottom=bottom, top=top), axis=1)
    return capital(logs)


def growth(
    values: Floats, margin: float, side: Side, *, bottom: float = LOWEST_EXCESS, top: float = 1.0
) -> Floats:
    """Logarithm of what every stake (rows) gains by every value."""
    gain = margin - values if side == "below" else values - margin
    most = top - margin if side == "below" else margin - bottom
    return np.asarray(np.log1p(STAKES[:, None] / most * gain))


def capital(logs: Floats) -> Floats:
    """Capital over all stakes (rows), which start alike and add up to 1; at most e^700."""
    return np.asarray(np.exp(np.minimum(special.logsumexp(logs, axis=0), 700)) / len(STAKES))


def mean_bounds(values: npt.ArrayLike, *, alpha: float = 0.05) -> tuple[float, float]:
    """Anytime-valid bounds of a mean, each at 1 - alpha, that agree with `mean_evidence`."""
    x = np.asarray(values, dtype=np.float64)
    if not len(x):
        return LOWEST_EXCESS, 1.0
    mean = float(x.mean())

    def is_out(side: Side) -> Callable[[float], bool]:
        return lambda margin: bool(mean_evidence(x, margin, side).max() >= 1 / alpha)

    low = last_inside(is_out("above"), mean, LOWEST_EXCESS, 40)
    return low, last_inside(is_out("below"), mean, 1.0, 40)
