"""Aggregators that vote: a demonstration votes for its label, moved one step by the outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.outcomes import (
    Aggregated,
    Comparisons,
    Ints,
    is_paper,
    place,
    settle,
)
from flipmeter.types import Mode


def majority_vote(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The class with most votes.

    Level classes: the one nearest the mean of all votes, then nearest their median, then the lower.
    Paper mode takes the one whose vote stands first, which depends on the demonstrations' order.
    """
    return most_voted(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def mean_score(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """The rounded mean of the votes; a half goes towards the middle of the scale.

    Paper mode rounds a half up. In both, far demonstrations pull every item to the middle, even
    under a perfect comparator: `recommended` fixes the rounding and no more.
    """
    return mean_voted(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def most_voted(compared: Comparisons, mode: Mode) -> Aggregated:
    """Take the class with most votes."""
    votes = _votes(compared)
    if not is_paper(mode):
        return favourite(votes)
    is_level = votes == votes.max(axis=1, keepdims=True)
    return replace(settle(is_level, "lowest"), ranks=_first_seen(compared, is_level))


def favourite(votes: Ints) -> Aggregated:
    """The class with most votes (items x classes); see `majority_vote` for level ones."""
    n_classes = votes.shape[1]
    classes = np.arange(1, n_classes + 1)
    n_votes, total = votes.sum(axis=1, keepdims=True), (votes @ classes)[:, None]
    is_level = votes == votes.max(axis=1, keepdims=True)
    from_mean = np.abs(n_votes * classes - total)
    from_median = np.abs(2 * classes - _twice_the_median(votes)[:, None])
    # One whole number per class: distance from the mean first, from the median second.
    distance = from_mean * (2 * n_classes + 1) + from_median
    distance[~is_level] = np.iinfo(np.int64).max
    nearest = settle(distance == distance.min(axis=1, keepdims=True), "lowest")
    return replace(nearest, tie_decided=is_level.sum(axis=1) > 1)


def mean_voted(compared: Comparisons, mode: Mode) -> Aggregated:
    """Round the mean of the votes."""
    return nearest_class(
        _votes(compared) @ compared.classes, len(compared.labels), compared.n_classes, mode
    )


def nearest_class(total: Ints, n: int, n_classes: int, mode: Mode) -> Aggregated:
    """Round total / n to a class; a half goes towards the middle of the scale, in the paper up."""
    cuts = n * (2 * np.arange(1, n_classes) + 1)
    return place(2 * total, cuts, "highest" if is_paper(mode) else "central")


def _votes(compared: Comparisons) -> Ints:
    """Count the votes for each class (items x classes)."""
    votes = compared.ties.copy()
    votes[:, 1:] += compared.wins[:, :-1]
    votes[:, -1] += compared.wins[:, -1]
    votes[:, :-1] += compared.losses[:, 1:]
    votes[:, 0] += compared.losses[:, 0]
    return votes


def _twice_the_median(votes: Ints) -> Ints:
    """The sum of the two middle votes, which are one and the same if their number is odd."""
    up_to = votes.cumsum(axis=1)
    n_votes = up_to[:, -1:]
    below, above = ((up_to <= place).sum(axis=1) for place in ((n_votes - 1) // 2, n_votes // 2))
    twice: Ints = below + above + 2
    return twice


def _first_seen(compared: Comparisons, is_level: npt.NDArray[np.bool_]) -> Ints:
    """Of the level classes, the one that the first demonstration voted for."""
    votes = np.clip(compared.labels + compared.outcomes, 1, compared.n_classes)
    first = np.take_along_axis(is_level, votes - 1, axis=1).argmax(axis=1)
    return np.take_along_axis(votes, first[:, None], axis=1)[:, 0]
