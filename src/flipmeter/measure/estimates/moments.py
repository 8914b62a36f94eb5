"""Gold and answers as shares of their scale -> scores without classes, from sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio

MOMENT_SCORES = ("accuracy", "pearson", "mae_normalised")
N_MOMENTS = 8
"""Items, right ones, distances, and the five sums of a correlation."""
ERRORS = (0.5, 0.75, 1.0)
"""By how much of the scale an item may be wrong that is not in the sample."""


def moments(gold: Floats, given: Floats, right: Booleans) -> Floats:
    """Contributions of each item (items x moments); gold and answer are shares of the scale."""
    ones = np.ones_like(gold)
    away = np.abs(given - gold)
    parts = [ones, right, away, gold, given, gold**2, given**2, gold * given]
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=-1)


def moment_scores(sums: Floats, names: Sequence[str]) -> dict[str, Floats]:
    """Scores from sums of moments (... x moments)."""
    n, right, away, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0)
    # The rounding error of a constant side is not spread.
    spread = np.where(spread > 1e-18 * np.maximum(n, 1) ** 4, spread, 0.0)
    known = {
        "accuracy": ratio(right, n),
        "pearson": ratio(n * xy - x * y, np.sqrt(spread)),
        "mae_normalised": ratio(away, n),
    }
    return {name: known[name] for name in names}


def moved_by_one(sums: Floats, values: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Contribution of one extra item to scores if it is right, and the change if it is wrong.

    Sums are groups x moments, values groups x names. Gold lies evenly on the scale. An error is
    three quarters of the scale large, or half of it if that moves a score more; in a mean distance
    it is all of it.
    """
    places = np.linspace(0, 1, 9)

    def moved(gold: Floats, given: Floats, *, is_right: bool = False) -> Floats:
        """Mean change of scores by one extra item, times the items."""
        more = moments(gold, given, np.full(len(gold), is_right))
        found = moment_scores(sums[:, None] + more, names)
        change = np.stack([found[name] for name in names], axis=-1) - values[:, None]
        return np.asarray(np.nan_to_num((sums[:, None, :1] + 1) * change).mean(axis=1))

    def slip(error: float) -> Floats:
        """The change by gold and answers that lie so far apart, up and down."""
        upper = places[places >= error]
        return moved(np.r_[upper, upper - error], np.r_[upper - error, upper]) - right

    right = moved(places, places, is_right=True)
    half, large, whole = map(slip, ERRORS)
    large = np.where(np.abs(half) > np.abs(large), half, large)
    is_distance = np.array([name.startswith("mae") for name in names])
    return right, np.where(is_distance, whole, large)


def shares(ranks: Ints, n_ranks: Ints | int) -> Floats:
    """Ranks as shares of their scale."""
    return np.asarray((ranks - 1) / (n_ranks - 1), dtype=np.float64)
