"""Observed counts -> number of items that would settle a verdict, with 80 % power."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

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
    return _counted(rough_size(rate, margin, alpha, POWER)) if rate > margin else None


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
    return _counted(n * (z / float(special.ndtri(1 - p))) ** 2)


def _counted(n: float) -> int | None:
    return math.ceil(n) if n <= MOST else None
