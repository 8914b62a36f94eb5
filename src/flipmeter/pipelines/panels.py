"""Judges of pairs: one order of the answers or both, and panels of several judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from flipmeter.pipelines.comparison import mean_place, vote
from flipmeter.pipelines.orbit import orbit
from flipmeter.pipelines.pipeline import (
    Asked,
    ByItem,
    Traits,
    drawn,
    pipelines,
    pointwise,
    with_draws,
)
from flipmeter.pipelines.symmetries import Turns
from flipmeter.types import (
    NO_CLASS,
    Answer,
    Ask,
    Decision,
    Fault,
    Item,
    JuryRule,
    Places,
    Rank,
    Task,
)

USUAL_DRAWS, MOST_DRAWS = 3, 99


def even_class(places: Places) -> Rank:
    """The class that prefers neither answer, the nearest to the middle; 0 where there is none."""
    ranks = range(1, len(places.forms) + 1)
    even = [rank for rank in ranks if places.favoured(rank) is None]
    return min(even, key=lambda rank: (_off_middle(rank, places), rank), default=NO_CLASS)


def _off_middle(rank: Rank, places: Places) -> float:
    return abs(rank - (len(places.forms) + 1) / 2)


def agreed(ranks: Sequence[Rank], places: Places) -> Decision:
    """The class that two orders agree on.

    Two grades for the same answer make the milder one, answers that contradict each other a tie.
    Where the scale has no tie, a contradiction has no class: the fault `ambiguous`.
    """
    if len(set(ranks)) == 1:
        return Decision(ranks[0])
    favoured = {places.favoured(rank) for rank in ranks}
    if len(favoured) == 1 and favoured != {None}:
        return Decision(min(ranks, key=lambda rank: _off_middle(rank, places)))
    tie = even_class(places)
    return Decision(tie, tie_decided=True) if tie else Decision(NO_CLASS, fault="ambiguous")


def most_said(ranks: Sequence[Rank], places: Places) -> Decision:
    """The most frequent class; of several that are equally frequent, what they agree on."""
    counts = Counter(ranks)
    most = max(counts.values())
    return agreed([rank for rank, n in counts.items() if n == most], places)


def _both_orders(about: str, settle: Settle, n_draws: int = 1) -> ByItem:
    """Ask about a pair in both orders, once or several times, and put the answers together."""

    def asks(item: Item, panel: Asked) -> list[Ask]:
        views = _BOTH(panel.view, n_places=2)
        return [Ask(item, drawn(view, draw)) for view in views for draw in range(n_draws)]

    def decide(answers: Sequence[Answer], places: Places | None) -> Decision:
        """Decide where both orders have an answer; one order alone would bring its bias back."""
        assert places is not None, "only a dataset with a pair of fields is asked in both orders"
        for some in (answers[:n_draws], answers[n_draws:]):
            if not any(answer.rank for answer in some):
                return Decision(NO_CLASS, fault=some[0].fault or "unparsed")
        return settle([answer.rank for answer in answers if answer.rank], places)

    return ByItem(
        Traits(about, turns=_BOTH, moves="pair"),
        asks,
        lambda panel, answers: [decide(some, panel.places) for some in answers],
    )


Settle = Callable[[Sequence[Rank], Places], Decision]
_BOTH = Turns(places="reversal")
_ONE = Traits(
    "a pair of answers in the order of the view, one answer; 1 call",
    takes_numbers=True,
    moves="pair",
)
_AGREE = "a pair in both orders; contradicting answers are a tie; 2 calls"
_VOTE = "a pair in both orders, the most frequent class; 2 calls per draw"
_MEAN = "probabilities of a pair in both orders, geometric mean; 2 calls"


def _both_orders_vote(n_draws: int) -> ByItem:
    return _both_orders(_VOTE, most_said if n_draws > 1 else agreed, n_draws)


pipelines.add("pair", lambda mode: pointwise(_ONE))
pipelines.add("pair+agree", lambda mode: _both_orders(_AGREE, agreed))
pipelines.add("pair+mean", orbit(_MEAN, _BOTH, moves="pair"))
pipelines.add("pair+vote", with_draws(_both_orders_vote, USUAL_DRAWS, MOST_DRAWS))


def settle_jury(decisions: Sequence[Decision], by: JuryRule, task: Task) -> Decision:
    """Put the decisions of all members together: the class of most of them, or the mean.

    More than half of the members must have an answer. Where one was never answered there is no
    decision: it would be that of another panel.
    """
    if any(one.fault == "error" for one in decisions):
        return Decision(NO_CLASS, fault="error")
    ranks = [one.rank for one in decisions if one.rank]
    if 2 * len(ranks) <= len(decisions):
        return Decision(NO_CLASS, fault=_main_fault(decisions))
    masses = [mass for one in decisions if (mass := one.label_mass) is not None]
    return replace(
        _mean_decision(ranks, task) if by == "mean" else _majority_decision(ranks, task),
        probabilities=_mean_probabilities(decisions),
        label_mass=min(masses, default=None),
    )


def _mean_decision(ranks: Sequence[Rank], task: Task) -> Decision:
    if task.scale.span is None:
        return mean_place(ranks, len(task.scale), "recommended")
    return Decision((2 * sum(ranks) + len(ranks)) // (2 * len(ranks)))


def _majority_decision(ranks: Sequence[Rank], task: Task) -> Decision:
    """The class of most members; judges of pairs that are evenly split say that it is a tie."""
    places = task.places
    if places is not None and places.kind == "pair" and even_class(places):
        return most_said(ranks, places)
    return vote(ranks, len(task.scale), "recommended")


def _mean_probabilities(decisions: Sequence[Decision]) -> tuple[float, ...] | None:
    """The mean of what all members give each class, None if one gives nothing."""
    known = [one.probabilities for one in decisions if one.probabilities is not None]
    if len(known) < len(decisions):
        return None
    return tuple(np.mean(known, axis=0).tolist())


def _main_fault(decisions: Sequence[Decision]) -> Fault:
    faults = Counter(one.fault for one in decisions if one.fault)
    return faults.most_common(1)[0][0] if faults else "unparsed"
