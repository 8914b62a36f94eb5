"""Tables of gold by class -> how far one more item, right or wrong, may move their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    places = np.arange(tables.shape[1])
    with_one = _WithOne(tables, values, names, n, policy)
    right = with_one.at(places, places)
    half, large, whole = (_slip(with_one, right, share, step) for step in _steps(tables.shape[1]))
    large = np.where(np.abs(half) > np.abs(large), half, large)
    is_distance = np.array([name.startswith("mae") for name in names])
    added = (np.nan_to_num(right) * share[:, None]).sum(axis=2)
    return added, np.where(is_distance, whole, large)


@dataclass(frozen=True)
class _WithOne:
    """Tables that get one more item, and their scores without it."""

    tables: Floats
    values: Floats
    names: Sequence[str]
    n: int
    policy: ScorePolicy

    def at(self, gold: Ints, given: Ints) -> Floats:
        """Change of scores by one extra item in a cell: groups x names x cells."""
        more = np.zeros((len(gold), *self.tables.shape[1:]))
        more[np.arange(len(gold)), gold, given + 1] = 1
        found = scores(self.tables[:, None] + more, self.policy, names=self.names)
        moved = np.stack([found[name] for name in self.names], axis=1) - self.values[..., None]
        return np.asarray((self.n + 1) * moved)


def _slip(with_one: _WithOne, right: Floats, share: Floats, step: int) -> Floats:
    """Root mean square of what errors by so many classes add, with the sign of their mean."""
    places = np.arange(share.shape[1])
    gold = np.concatenate([places[step:], places[:-step]])
    given = np.concatenate([places[:-step], places[step:]])
    away = with_one.at(gold, given) - right[..., gold]
    weight = np.where(np.isnan(away), 0.0, share[:, None, gold])
    away = np.nan_to_num(away)
    size = np.sqrt(np.nan_to_num(ratio((weight * away**2).sum(axis=2), weight.sum(axis=2))))
    return np.where((weight * away).sum(axis=2) > 0, size, -size)


def _steps(n_classes: int) -> tuple[int, int, int]:
    most = n_classes - 1
    return max(1, most // 2), math.ceil(LARGE_ERROR * most), most
