"""The aggregators once more: one item at a time, in the words of their definitions.

The tests hold the fast forms to these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor, isclose
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from flipmeter.types import Mode


class Settled(NamedTuple):
    """A class, and how it was chosen."""

    rank: int
    tie_decided: bool = False
    last_resort: bool = False
    degenerate: bool = False


Naive = Callable[[Sequence[int], Sequence[int], int, Mode], Settled]
Outcomes = Sequence[int]
Labels = Sequence[int]


def votes(outcomes: Outcomes, labels: Labels, n_classes: int) -> list[int]:
    shifted = zip(outcomes, labels, strict=True)
    return [min(max(label + outcome, 1), n_classes) for outcome, label in shifted]


def majority_vote(outcomes: Outcomes, labels: Labels, n_classes: int, mode: Mode) -> Settled:
    cast = votes(outcomes, labels, n_classes)
    counted = Counter(cast)
    top = max(counted.values())
    level = sorted(rank for rank, n in counted.items() if n == top)
    is_tied = len(level) > 1
    if mode == "paper":
        return Settled(counted.most_common(1)[0][0], is_tied, is_tied)
    mean, middle = Fraction(sum(cast), len(cast)), Fraction(median(cast))
    near = {rank: (abs(rank - mean), abs(rank - middle)) for rank in level}
    left = [rank for rank in level if near[rank] == min(near.values())]
    return Settled(left[0], is_tied, len(left) > 1)


def mean_score(outcomes: Outcomes, labels: Labels, n_classes: int, mode: Mode) -> Settled:
    cast = votes(outcomes, labels, n_classes)
    mean = Fraction(sum(cast), len(cast))
    if mean.denominator != 2:
        return Settled(floor(mean + Fraction(1, 2)))
    return on_a_cut(floor(mean), n_classes, mode)


def weighted_sum(outcomes: Outcomes, labels: Labels, n_classes: int, mode: Mode) -> Settled:
    score = sum(f * y for f, y in zip(outcomes, labels, strict=True))
    if mode == "paper":
        return equal_bins(score, sum(labels), n_classes, mode)
    ideal = [sum(sign(c - y) * y for y in labels) for c in range(1, n_classes + 1)]
    cuts = [Fraction(a + b, 2) for a, b in pairwise(ideal)]
    lowest, highest = 1 + sum(cut < score for cut in cuts), 1 + sum(cut <= score for cut in cuts)
    return central(list(range(lowest, highest + 1)), n_classes)


def copeland(outcomes: Outcomes, labels: Labels, n_classes: int, mode: Mode) -> Settled:
    return equal_bins(sum(outcomes), len(labels), n_classes, mode)


def bradley_terry(outcomes: Outcomes, labels: Labels, n_classes: int, mode: Mode) -> Settled:
    if mode == "paper":
        strengths, slack = star(outcomes), 1e-9
    else:
        strengths, slack = anchored(outcomes, labels), 1e-6
    *demos, item = strengths
    means = {c: fmean(s for s, y in zip(demos, labels, strict=True) if y == c) for c in set(labels)}
    away = {c: abs(mean - item) for c, mean in means.items()}
    level = sorted(c for c in away if away[c] <= min(away.values()) + slack)
    if mode == "paper":
        return Settled(level[0], len(level) > 1, len(level) > 1, any(outcomes))
    return central(level, n_classes)


def star(outcomes: Outcomes) -> list[float]:
    """Return the paper's strengths of the demonstrations and, last, of the item."""
    n = len(outcomes)
    won = [(1 - f) / 2 for f in outcomes] + [sum((1 + f) / 2 for f in outcomes)]
    strengths = [1.0] * (n + 1)
    for _ in range(100):
        item = strengths[n]
        moved = [won[i] * (strengths[i] + item) for i in range(n)]
        moved.append(won[n] / sum(1 / (item + strengths[i]) for i in range(n)))
        moved = [max(strength, 1e-12) for strength in moved]
        mean = sum(moved) / (n + 1)
        moved = [strength / mean for strength in moved]
        change = max(abs(a - b) for a, b in zip(moved, strengths, strict=True))
        strengths = moved
        if change < 1e-6:
            break
    return strengths


def game_matrix(outcomes: Outcomes, labels: Labels) -> list[list[float]]:
    """Return what each player gets from each other; the item is the last player."""
    item = [(1 + f) / 2 for f in outcomes]
    rows = [
        [0.0 if i == j else (1 + sign(a - b)) / 2 for j, b in enumerate(labels)] + [1 - item[i]]
        for i, a in enumerate(labels)
    ]
    return [*rows, [*item, 0.0]]


def anchored(outcomes: Outcomes, labels: Labels, prior: float = 0.01) -> list[float]:
    """Return the most probable log strengths, every demonstration a player of its own."""
    won = np.array(game_matrix(outcomes, labels))
    games, logs = won + won.T, np.zeros(len(won))
    for _ in range(500):
        chance = 1 / (1 + np.exp(logs[None, :] - logs[:, None]))
        slope = (won - games * chance).sum(axis=1) - 2 * prior * logs
        weight = games * chance * (1 - chance)
        curve = np.diag(weight.sum(axis=1) + 2 * prior) - weight
        step = np.linalg.solve(curve, slope)
        logs += step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-10:
            break
    assert np.allclose(slope, 0, atol=1e-8)
    return [float(log) for log in logs]


def equal_bins(score: int, limit: int, n_classes: int, mode: Mode) -> Settled:
    at = Fraction((score + limit) * n_classes, 2 * limit)
    if at.denominator == 1 and 0 < at < n_classes:
        return on_a_cut(int(at), n_classes, mode)
    return Settled(min(floor(at) + 1, n_classes))


def on_a_cut(below: int, n_classes: int, mode: Mode) -> Settled:
    if mode == "paper":
        return Settled(below + 1, True, True)
    return central([below, below + 1], n_classes)


def central(level: list[int], n_classes: int) -> Settled:
    """Choose the class nearest the middle of the scale, and the lower of two."""
    middle = (n_classes + 1) / 2
    nearest = min(abs(rank - middle) for rank in level)
    left = [rank for rank in level if isclose(abs(rank - middle), nearest)]
    return Settled(left[0], len(level) > 1, len(left) > 1)


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


NAIVE: dict[str, Naive] = {
    "majority_vote": majority_vote,
    "mean_score": mean_score,
    "weighted_sum": weighted_sum,
    "copeland": copeland,
    "bradley_terry": bradley_terry,
}
