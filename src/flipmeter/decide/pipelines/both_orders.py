"""Pipelines for a judge of pairs: one order of the answers, or both and what they agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from flipmeter.decide.pipelines.orbit import orbit
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Counted,
    Heard,
    Pointwise,
    Traits,
    drawn,
    pipelines,
    unheard,
)
from flipmeter.decide.symmetries import Turns
from flipmeter.types import NO_CLASS, Answer, Ask, Decision, Item, Places, Rank

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
    return _tied(places)


def _tied(places: Places) -> Decision:
    tie = even_class(places)
    return Decision(tie, tie_decided=True) if tie else Decision(NO_CLASS, fault="ambiguous")


def most_said(ranks: Sequence[Rank], places: Places) -> Decision:
    """The most frequent class; of several that are equally frequent, what they agree on."""
    counts = Counter(ranks)
    most = max(counts.values())
    return agreed([rank for rank, n in counts.items() if n == most], places)


@dataclass(frozen=True)
class BothOrders:
    """Ask about a pair in both orders, once or several times, and put the answers together."""

    traits: Traits
    n_draws: int = 1

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._asks(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in self._asks(item, panel)] for item in panel.items]
        return [self._decided(some, panel.places) for some in answers]

    def _decided(self, answers: Sequence[Answer], places: Places | None) -> Decision:
        """Decide where both orders have an answer; one order alone would bring its bias back."""
        assert places is not None, "only a dataset with a pair of fields is asked in both orders"
        each = answers[: self.n_draws], answers[self.n_draws :]
        for some in each:
            if not any(answer.rank for answer in some):
                return Decision(NO_CLASS, fault=some[0].fault or "unparsed")
        ranks = [answer.rank for some in each for answer in some if answer.rank]
        return agreed(ranks, places) if self.n_draws == 1 else most_said(ranks, places)

    def _asks(self, item: Item, panel: Asked) -> list[Ask]:
        return [
            Ask(item, drawn(view, draw))
            for view in _BOTH(panel.view, n_places=2)
            for draw in range(self.n_draws)
        ]


_BOTH = Turns(places="reversal")
_ONE = Traits(
    "a pair of answers in the order of the view, one answer; 1 call",
    takes_numbers=True,
    moves="pair",
)
_AGREE = Traits(
    "a pair in both orders; contradicting answers are a tie; 2 calls", turns=_BOTH, moves="pair"
)
pipelines.add("pair", lambda mode: Pointwise(_ONE))
pipelines.add("pair+agree", lambda mode: BothOrders(_AGREE))
pipelines.add(
    "pair+mean",
    orbit("probabilities of a pair in both orders, geometric mean; 2 calls", _BOTH, moves="pair"),
)


def _vote(n_draws: int) -> BothOrders:
    about = "a pair in both orders, the most frequent class; 2 calls per draw"
    return BothOrders(Traits(about, turns=_BOTH, moves="pair"), n_draws)


pipelines.add("pair+vote", Counted(_vote, USUAL_DRAWS, MOST_DRAWS))
