"""Tables of gold by class -> how far one more item, right or wrong, may move their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flipmeter.measure.estimates.scores import ScorePolicy, scores
from flipmeter.measure.panel.checked import Floats, Ints, ratio

LARGE_ERROR = 0.75
"""Share of the scale that an error not seen yet may have in a score other than a mean: with half of
it, differences of Spearman's coefficient cover 70 % where errors are rare and large."""


def one_more(
    tables: Floats, values: Floats, names: Sequence[str], n: int, policy: ScorePolicy = "complete"
) -> tuple[Floats, Floats]:
    """Contribution of one extra item to scores if it is right, and the change if it is wrong.

    `tables` are groups x gold x class and `values` groups x names, over n clusters. Classes are as
    frequent as gold. An error is three quarters of the scale large, or half of it if that moves a
    score more; in a mean distance it is all of it.
    """
    gold = tables.sum(axis=2)
    share = np.nan_to_num(ratio(gold, gold.sum(axis=1, keepdims=True)))
    most, places = tables.shape[1] - 1, np.arange(tables.shape[1])

    def moved(gold: Ints, given: Ints) -> Floats:
        """Change of scores by one extra item in a cell: groups x names x cells."""
        more = np.zeros((len(gold), *tables.shape[1:]))
        more[np.arange(len(gold)), gold, given + 1] = 1
        found = scores(tables[:, None] + more, policy, names=names)
        change = np.stack([found[name] for name in names], axis=1) - values[..., None]
        return np.asarray((n + 1) * change)

    def slip(step: int) -> Floats:
        """Root mean square of what errors by so many classes add, with the sign of their mean."""
        gold = np.concatenate([places[step:], places[:-step]])
        away = moved(gold, np.concatenate([places[:-step], places[step:]])) - right[..., gold]
        weight = np.where(np.isnan(away), 0.0, share[:, None, gold])
        away = np.nan_to_num(away)
        size = np.sqrt(np.nan_to_num(ratio((weight * away**2).sum(axis=2), weight.sum(axis=2))))
        return np.where((weight * away).sum(axis=2) > 0, size, -size)

    right = moved(places, places)
    steps = max(1, most // 2), math.ceil(LARGE_ERROR * most), most
    half, large, whole = map(slip, steps)
    large = np.where(np.abs(half) > np.abs(large), half, large)
    is_distance = np.array([name.startswith("mae") for name in names])
    added = (np.nan_to_num(right) * share[:, None]).sum(axis=2)
    return added, np.where(is_distance, whole, large)
