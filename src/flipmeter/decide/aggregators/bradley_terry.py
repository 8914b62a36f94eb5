"""Bradley-Terry: the item and the demonstrations as players, whose games give each a strength.

The paper has the item's games alone: a star, where a demonstration that won its one game has no
finite strength. The recommended form adds the games that the labels imply (a higher label beats a
lower one, equal labels tie) and a small Gaussian prior, so that the strengths exist.

Demonstrations of one class with one outcome have one strength, in both. So items with the same
counts share a solution, and a table of 25 demonstrations on five classes has at most 16 unknowns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.outcomes import (
    Aggregated,
    Booleans,
    Comparisons,
    Floats,
    Ints,
    is_paper,
    settle,
)
from flipmeter.types import Mode, Problem

MAX_ITERATIONS, TOLERANCE, FLOOR = 100, 1e-6, 1e-12
"""The paper's loop, and the strength of a player who never won."""
PRIOR = 0.01
"""Penalty of a squared log strength in log likelihood."""
LEVEL_STAR, LEVEL = 1e-9, 1e-6
"""Distances that differ by less are level: what is left of them is rounding."""
LONGEST_STEP, SMALLEST_STEP, MAX_STEPS = 2.0, 1e-5, 200
"""Of Newton's method, whose error after a small step is about the square of that step."""
CHUNK = 512
"""Tables that are solved at once: their matrices fit into the processor's cache."""


def bradley_terry(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The class whose demonstrations' mean log strength is nearest the item's.

    Level classes: the one nearest the middle of the scale, then the lower. Paper mode has no games
    among demonstrations, compares strengths rather than their logarithms, and takes the lowest of
    level classes. A class without demonstrations is never the answer.
    """
    return nearest_in_strength(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def nearest_in_strength(compared: Comparisons, mode: Mode) -> Aggregated:
    """Take the class that is nearest in Bradley-Terry strength."""
    return _star(compared) if is_paper(mode) else _anchored(compared)


# The paper's star


def _star(compared: Comparisons) -> Aggregated:
    counts = _counts(compared)
    records, which = _distinct(counts.sum(axis=1))
    demos, item = _star_strengths(records)
    means = _class_means(counts, demos[which][:, None, :])
    settled = settle(_nearest(means, item[which], LEVEL_STAR), "lowest")
    # Only a tie is a game with a finite answer.
    return replace(settled, degenerate=(compared.outcomes != 0).any(axis=1))


def _star_strengths(records: Ints) -> tuple[Floats, Floats]:
    """The strengths of beaten, level and winning demonstrations, and of the item.

    A record is the item's wins, ties and losses. All are updated at once, floored, and divided by
    their mean, until none moves by the tolerance or the iterations are used up.
    """
    is_there = np.column_stack([records > 0, np.ones(len(records), dtype=np.bool_)])
    players = np.column_stack([records, np.ones(len(records), dtype=np.int64)])
    points = records @ np.array([1.0, 0.5, 0.0])
    strengths = np.ones((len(records), 4))
    is_moving = np.ones(len(records), dtype=np.bool_)
    for _ in range(MAX_ITERATIONS):
        together = strengths[:, :3] + strengths[:, 3:]
        demos = np.array([0.0, 0.5, 1.0]) * together
        item = points / (records / together).sum(axis=1)
        moved = np.maximum(np.column_stack([demos, item]), FLOOR)
        moved /= (players * moved).sum(axis=1, keepdims=True) / players.sum(axis=1, keepdims=True)
        change = np.where(is_there, np.abs(moved - strengths), 0).max(axis=1)
        strengths = np.where(is_moving[:, None], moved, strengths)
        is_moving &= change >= TOLERANCE
    return strengths[:, :3], strengths[:, 3]


# With the games that the labels imply


def _anchored(compared: Comparisons) -> Aggregated:
    counts, which = _distinct(_flat(_counts(compared)))
    candidates = []
    for start in range(0, len(counts), CHUNK):
        strengths = _solved(counts[start : start + CHUNK], compared.n_classes)
        by_class = counts[start : start + CHUNK].reshape(-1, compared.n_classes, 3)
        means = _class_means(by_class, strengths[:, :-1].reshape(by_class.shape))
        candidates.append(_nearest(means, strengths[:, -1], LEVEL))
    return settle(np.concatenate(candidates), "central").at(which)


def anchored_strengths(compared: Comparisons) -> Floats:
    """Log strengths by class and outcome (wins, ties, losses), then of the item, per item.

    Where there is no such demonstration the strength is what one would have had.
    """
    return _solved(_flat(_counts(compared)), compared.n_classes)


def _solved(counts: Ints, n_classes: int) -> Floats:
    """Solve tables of counts by class and outcome, all from the solution of their mean."""
    players = np.column_stack([counts, np.ones(len(counts))])
    results = _results(n_classes)
    middle = players.mean(axis=0, keepdims=True)
    start = log_strengths(middle @ results.T, middle[:, None, :])
    return log_strengths(players @ results.T, players[:, None, :], start)


def _results(n_classes: int) -> Floats:
    """Points of a row's player from one game with a column's: 1, ½ or 0."""
    classes = np.repeat(np.arange(n_classes), 3)
    results = np.full((len(classes) + 1, len(classes) + 1), 0.5)
    results[:-1, :-1] += np.sign(classes[:, None] - classes) / 2
    results[-1, :-1] = np.tile([1, 0.5, 0], n_classes)
    results[:-1, -1] = 1 - results[-1, :-1]
    return results


def log_strengths(
    points: Floats, games: Floats, start: Floats | None = None, *, prior: float = PRIOR
) -> Floats:
    """The most probable log strengths of the players of many tables, by Newton's method.

    `points` (tables x players) is what each player got from all its games, half of one for a tie;
    `games` (tables x players x players, or what can be spread to that) how many there were.
    """
    logs = np.zeros_like(points) if start is None else start + np.zeros_like(points)
    diagonal = np.arange(points.shape[1])
    for _ in range(MAX_STEPS):
        strengths = np.exp(logs)
        chance = strengths[:, :, None] / (strengths[:, :, None] + strengths[:, None, :])
        expected = games * chance
        slope = points - expected.sum(axis=2) - 2 * prior * logs
        curve = expected * (chance - 1)
        curve[:, diagonal, diagonal] += 2 * prior - curve.sum(axis=2)
        step = np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        logs += step * np.minimum(1, LONGEST_STEP / np.maximum(longest, LONGEST_STEP))
        if longest.max() < SMALLEST_STEP:
            return logs
    raise Problem(
        f"Bradley-Terry strengths were not found in {MAX_STEPS} steps for {points.shape[1]} "
        f"players; use a prior above {prior:g} or another aggregator"
    )


# What both share


def _counts(compared: Comparisons) -> Ints:
    """Items x classes x (wins, ties, losses)."""
    return np.stack([compared.wins, compared.ties, compared.losses], axis=2)


def _flat(counts: Ints) -> Ints:
    return counts.reshape(len(counts), -1)


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """The rows that differ, and which of them each row is."""
    # As bytes they are compared ten times faster than number by number (np.unique with an axis).
    packed = np.ascontiguousarray(rows, dtype=np.min_scalar_type(rows.max()))
    keys = packed.view(np.dtype((np.void, packed.itemsize * packed.shape[1])))[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return rows[first], which


def _class_means(counts: Ints, strengths: Floats) -> Floats:
    """The mean strength of each class's demonstrations, NaN where there are none."""
    sizes = counts.sum(axis=2)
    total = (counts * strengths).sum(axis=2)
    return np.where(sizes > 0, total / np.maximum(sizes, 1), np.nan)


def _nearest(means: Floats, item: Floats, level: float) -> Booleans:
    """Say which classes are as near the item as any."""
    distance = np.abs(means - item[:, None])
    is_near: Booleans = distance <= np.nanmin(distance, axis=1, keepdims=True) + level
    return is_near
