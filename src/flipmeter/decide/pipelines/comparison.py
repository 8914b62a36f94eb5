"""Pipelines that compare an item with demonstrations and put the answers together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.aggregate import Aggregator, Rule, aggregators
from flipmeter.decide.aggregators.outcomes import Aggregated, Comparisons
from flipmeter.decide.aggregators.votes import favourite, nearest_class
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Heard,
    Open,
    Traits,
    pipelines,
    unheard,
)
from flipmeter.types import (
    BACKWARD,
    FORWARD,
    NO_CLASS,
    Answer,
    Ask,
    Decision,
    Fault,
    Item,
    Mode,
    Rank,
)

_WHOLE = frozenset({"demo_order", "placement"})
"""Probes of a block of demonstrations: a prompt that shows one of each class has no such block."""

_FIRST, _SECOND = 1, 2
_BOTH = FORWARD, BACKWARD

Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairwise:
    """Compare with every demonstration, in both orders, and aggregate the outcomes."""

    traits: Traits
    rule: Rule
    mode: Mode = "recommended"

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._about(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in self._about(item, panel)] for item in panel.items]
        outcomes, is_known = comparison_outcomes(panel, heard)
        labels = [demo.rank for demo in panel.demos]
        found = self.rule(Comparisons.of(outcomes, labels, panel.n_classes), self.mode)
        each = zip(is_known, answers, found.ranks, found.tie_decided, found.degenerate, strict=True)
        return [
            Decision(int(rank), tie_decided=bool(tie), degenerate=bool(degenerate))
            if known
            else Decision(NO_CLASS, fault=_main_fault(some))
            for known, some, rank, tie, degenerate in each
        ]

    def _about(self, item: Item, panel: Asked) -> list[Ask]:
        return [
            Ask(item, panel.view, f"{demo.id} {order}") for demo in panel.demos for order in _BOTH
        ]


def comparison_outcomes(panel: Asked, heard: Heard) -> tuple[Ints, Booleans]:
    """Items x demonstrations: +1 where the item is higher up the scale, -1 where lower.

    It is 0 where the two slots disagree or one could not be read. The second table marks the items
    with any readable answer.
    """
    first, second = (_slots(panel, heard, order) for order in _BOTH)
    is_known: Booleans = np.any((first > 0) | (second > 0), axis=1)
    outcomes = consensus(first, second)
    # A reversed view asks which is further down the scale.
    return outcomes if panel.view.is_natural else -outcomes, is_known


def _slots(panel: Asked, heard: Heard, order: str) -> Ints:
    """The slot chosen for every item and demonstration in an order, 0 where none could be read."""
    found = [
        [heard[Ask(item, panel.view, f"{demo.id} {order}")].slot for demo in panel.demos]
        for item in panel.items
    ]
    return np.array(found, dtype=np.int64).reshape(len(panel.items), len(panel.demos))


def consensus(forward: npt.NDArray[Any], backward: npt.NDArray[Any]) -> Ints:
    """+1 where the item was chosen in both slots, -1 where the demonstration was, else 0."""
    is_item = (forward == _FIRST) & (backward == _SECOND)
    is_demo = (forward == _SECOND) & (backward == _FIRST)
    return np.asarray(is_item, dtype=np.int64) - np.asarray(is_demo, dtype=np.int64)


Join = Callable[[Sequence[Rank], int, Mode], Decision]
"""Settle what an item was called behind each group, in which mode, on a scale of so many."""


@dataclass(frozen=True)
class ByGroups:
    """Ask once behind each group with one demonstration of every class, and join the answers."""

    traits: Traits
    join: Join
    mode: Mode = "recommended"

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in _by_group(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in _by_group(item, panel)] for item in panel.items]
        return [
            _fault_if_unread(some) or self.join(_ranks(some), panel.n_classes, self.mode)
            for some in answers
        ]


def _by_group(item: Item, panel: Asked) -> list[Ask]:
    n_groups = min(Counter(demo.gold for demo in panel.demos).values(), default=0)
    return [Ask(item, panel.view, str(group)) for group in range(n_groups)]


def _ranks(answers: Iterable[Answer]) -> list[Rank]:
    return [answer.rank for answer in answers if not answer.fault]


def _fault_if_unread(answers: Sequence[Answer]) -> Decision | None:
    """The fault that most answers have if none could be read."""
    if all(answer.fault for answer in answers):
        return Decision(NO_CLASS, fault=_main_fault(answers))
    return None


def _main_fault(answers: Iterable[Answer]) -> Fault:
    faults = Counter(answer.fault for answer in answers if answer.fault)
    return faults.most_common(1)[0][0] if faults else "unparsed"


def vote(ranks: Sequence[Rank], n_classes: int, mode: Mode) -> Decision:
    """Take the class with most votes; the paper takes, of level ones, the one named first."""
    counts = Counter(ranks)
    if mode == "paper":
        first, most = counts.most_common(1)[0]
        return Decision(first, tie_decided=list(counts.values()).count(most) > 1)
    return _decided(favourite(np.bincount(ranks, minlength=n_classes + 1)[None, 1:]))


def mean_place(ranks: Sequence[Rank], n_classes: int, mode: Mode) -> Decision:
    """Round the mean; at .5 to the class nearer to the middle of the scale, in the paper up."""
    return _decided(nearest_class(np.array([sum(ranks)]), len(ranks), n_classes, mode))


def _decided(one: Aggregated) -> Decision:
    return Decision(int(one.ranks[0]), tie_decided=bool(one.tie_decided[0]))


_GROUPED: Mapping[str, tuple[Traits, Join]] = {
    "listwise": (
        Traits(
            "place among one demonstration of each class, mean over groups",
            "listwise",
            _WHOLE,
            needs_demos=True,
            needs_order=True,
        ),
        mean_place,
    ),
    "listwise_compare": (
        Traits(
            "closest labelled reference, majority over groups; reversed labels reverse the list",
            "listwise_compare",
            _WHOLE,
            needs_demos=True,
        ),
        vote,
    ),
    "listwise_compare+relabel": (
        Traits(
            "closest labelled reference, majority over groups; reversed labels rename them only",
            "listwise_relabel",
            _WHOLE,
            needs_demos=True,
        ),
        vote,
    ),
    "pointwise_vote": (
        Traits(
            "pointwise prompt with one demonstration of each class, majority over groups: as many "
            "calls as listwise",
            "windows",
            needs_demos=True,
        ),
        vote,
    ),
}


def _grouped(name: str) -> Open:
    traits, join = _GROUPED[name]
    return lambda mode: ByGroups(traits, join, mode)


def _pairwise(aggregator: Aggregator) -> Open:
    traits = Traits(
        f"comparisons with every demonstration, {aggregator.about}",
        "pairwise",
        _WHOLE,
        needs_demos=True,
        needs_order=True,
    )
    return lambda mode: Pairwise(traits, aggregator.rule, mode)


pipelines.add("pairwise", _pairwise(aggregators["weighted_sum"]))
aggregators.follow(
    lambda name, aggregator: pipelines.add(f"pairwise+{name}", _pairwise(aggregator))
)
for _name in _GROUPED:
    pipelines.add(_name, _grouped(_name))
