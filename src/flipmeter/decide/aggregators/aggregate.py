"""Aggregators by name, and what each makes of a perfect comparator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.bins import net_wins, weighted
from flipmeter.decide.aggregators.bradley_terry import nearest_in_strength
from flipmeter.decide.aggregators.outcomes import Aggregated, Comparisons
from flipmeter.decide.aggregators.votes import mean_voted, most_voted
from flipmeter.registry import Registry
from flipmeter.types import Mode, Problem, Rank

Rule = Callable[[Comparisons, Mode], Aggregated]
BOTH: frozenset[Mode] = frozenset({"recommended", "paper"})
PAPER: frozenset[Mode] = frozenset({"paper"})


@dataclass(frozen=True)
class Aggregator:
    """A rule from comparisons to classes, and the laws it does not keep, by mode.

    `order_dependent`: the order of the demonstrations can change a class.
    `lopsided`: mirroring the scale and all outcomes need not mirror the class, even where no last
    resort decided.
    `imperfect`: a perfect comparator does not always get the true class.
    """

    rule: Rule
    about: str
    order_dependent: frozenset[Mode] = frozenset()
    lopsided: frozenset[Mode] = frozenset()
    imperfect: frozenset[Mode] = frozenset()


aggregators: Registry[Aggregator] = Registry("aggregator")
aggregators.add(
    "majority_vote",
    Aggregator(most_voted, "the class with the most votes", order_dependent=PAPER),
)
aggregators.add("mean_score", Aggregator(mean_voted, "the mean vote, rounded", imperfect=BOTH))
aggregators.add(
    "weighted_sum",
    Aggregator(weighted, "the sum of outcome times label, cut", lopsided=BOTH, imperfect=PAPER),
)
aggregators.add("copeland", Aggregator(net_wins, "the net number of wins, cut"))
aggregators.add(
    "bradley_terry",
    Aggregator(nearest_in_strength, "the class nearest in strength", lopsided=PAPER),
)


def aggregate(
    name: str,
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Aggregated:
    """The class of each item by a named aggregator, and how it came about."""
    return aggregators[name].rule(Comparisons.of(outcomes, labels, n_classes), mode)


def oracle_check(
    aggregator: str, n_classes: int = 5, shots: int = 5, *, mode: Mode = "recommended"
) -> tuple[Rank, ...]:
    """The class that each true class gets from a perfect comparator.

    It wins against lower classes, loses to higher ones and ties with its own: an aggregator that
    does not answer 1, 2, ..., M is wrong before any model is asked.
    """
    if shots < 1:
        raise Problem(f"shots is {shots}; a perfect comparator needs one demonstration per class")
    classes = np.arange(1, n_classes + 1)
    labels = np.repeat(classes, shots)
    outcomes = np.sign(classes[:, None] - labels)
    return tuple(aggregate(aggregator, outcomes, labels, n_classes, mode=mode).ranks.tolist())
