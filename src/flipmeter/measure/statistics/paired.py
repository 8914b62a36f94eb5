"""Paired counts -> the score interval of their difference, for numbers or arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.base.checks import interval_level
from flipmeter.measure.panel.checked import Floats
from flipmeter.types import LEVEL, Problem

STEPS = 48
"""Bisections: enough for the last bit of a share."""

SURE = 1e9
"""A score that nothing reaches: there is no spread, and still a difference."""


def tango(
    b: npt.ArrayLike, c: npt.ArrayLike, n: npt.ArrayLike, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Score interval of (b - c) / n, the difference of two shares of the same n items.

    b items hold only in the first way, c only in the second (Tango 1998). Nothing seen gives
    (-1, 1). One end alone has confidence (1 + level) / 2.
    """
    z = float(special.ndtri(0.5 + interval_level(level) / 2))
    first, second, size = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (b, c, n)))
    if (np.minimum(first, second) < 0).any() or (first + second > size).any():
        raise Problem("b and c count some of n items: none may be negative, nor both exceed n")
    return _end(first, second, size, z), _end(first, second, size, -z)


def tango_p(b: npt.ArrayLike, c: npt.ArrayLike, n: npt.ArrayLike, margin: float) -> Floats:
    """Chance of so small a difference (b - c) / n if the true one were the margin."""
    first, second, size = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (b, c, n)))
    score = _score(first, second, np.maximum(size, 1), np.full(first.shape, margin))
    return np.where(size > 0, np.asarray(special.ndtr(score)), 1.0)


def _end(b: Floats, c: Floats, n: Floats, z: float) -> Floats:
    """Find the difference at which the score is z; the score falls with the difference."""
    low, high = np.full(b.shape, -1.0), np.full(b.shape, 1.0)
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_above = _score(b, c, np.maximum(n, 1), middle) > z
        low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    return np.asarray(np.where(n > 0, (low + high) / 2, -np.sign(z)))


def _score(b: Floats, c: Floats, n: Floats, difference: Floats) -> Floats:
    """Standardise b - c by its spread under a given difference, likeliest otherwise."""
    linear = (2 * n - b + c) * difference - b - c
    constant = -c * difference * (1 - difference)
    root = np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0))
    rarer = np.maximum((root - linear) / (4 * n), 0)
    variance = n * (2 * rarer + difference * (1 - difference))
    away = b - c - n * difference
    known = variance > 1e-12
    return np.where(known, away / np.sqrt(np.where(known, variance, 1)), np.sign(away) * SURE)
