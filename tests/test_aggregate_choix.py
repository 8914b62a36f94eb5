"""Bradley-Terry strengths with the labels' games, held to those of choix."""

from __future__ import annotations

from itertools import product

import choix
import numpy as np
import numpy.typing as npt
import pytest

from flipmeter.pipelines.aggregate import PRIOR, Comparisons, anchored_strengths, bradley_terry
from naive_aggregators import game_matrix

LABELS = [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5]
TIES_WITH_NOBODY = [1] * 10 + [1, 1, 1, -1, -1] + [-1] * 10
NOISY = [1, 1, 0, 1, 1, 0, 1, -1, 1, 1, 0, 0, 1, -1, 1, -1, -1, 0, -1, -1, 1, -1, -1, 0, -1]


def halves(outcomes: list[int], labels: list[int]) -> list[tuple[int, int]]:
    """Return every game twice as (winner, loser), so that a tie is one for each."""
    won = game_matrix(outcomes, labels)
    players = range(len(won))
    return [(a, b) for a, b in product(players, players) for _ in range(round(2 * won[a][b]))]


def ours(outcomes: list[int], labels: list[int]) -> npt.NDArray[np.float64]:
    """Return a log strength for each demonstration and, last, for the item."""
    *by_group, item = anchored_strengths(Comparisons.of(outcomes, labels, 5))[0]
    groups = [
        3 * (label - 1) + 1 - outcome for outcome, label in zip(outcomes, labels, strict=True)
    ]
    return np.array([*(by_group[group] for group in groups), item])


@pytest.mark.parametrize(
    ("outcomes", "labels"),
    [(TIES_WITH_NOBODY, LABELS), (NOISY, LABELS), ([1, 0, -1, 1], [4, 1, 4, 2])],
)
def test_strengths_are_those_of_choix(outcomes: list[int], labels: list[int]) -> None:
    games, n_players = halves(outcomes, labels), len(labels) + 1
    theirs = choix.opt_pairwise(n_players, games, alpha=2 * PRIOR, tol=1e-10)
    assert ours(outcomes, labels) == pytest.approx(theirs, abs=1e-5)


def test_the_example_of_the_method_is_of_class_3_whatever_the_prior() -> None:
    """Equal labels do not play here, and choix has another small prior, on strengths not logs."""
    won = np.array(game_matrix(TIES_WITH_NOBODY, LABELS)) == 1
    games = [(int(a), int(b)) for a, b in np.argwhere(won)]
    *demos, item = choix.ilsr_pairwise(26, games, alpha=0.01)
    means = np.reshape(demos, (5, 5)).mean(axis=1)
    assert [*means, item] == pytest.approx([-5.2, -2.2, 0.35, 2.6, 4.3, 0.61], abs=0.06)
    assert np.abs(means - item).argmin() + 1 == 3
    assert bradley_terry(TIES_WITH_NOBODY, LABELS, 5).tolist() == [3]
