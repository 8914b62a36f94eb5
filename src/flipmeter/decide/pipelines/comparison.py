"""Pipelines that compare an item with demonstrations and put the answers together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.aggregate import Aggregator, Rule, aggregators
from flipmeter.decide.aggregators.bins import weighted
from flipmeter.decide.aggregators.outcomes import Aggregated, Comparisons
from flipmeter.decide.aggregators.votes import favourite, nearest_class
from flipmeter.decide.debiasers.calibraeval import fit_fair_map
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Calibration,
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
    RENAMED,
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
MORE_SPREAD = 0.5

Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


Outcomes = Callable[[Asked, Heard, Mode], "tuple[Ints, Booleans]"]
"""Comparison outcomes, items x demonstrations, and the items with any readable answer."""


@dataclass(frozen=True)
class Pairwise:
    """Compare with every demonstration, in several orders, and aggregate the outcomes."""

    traits: Traits
    rule: Rule
    orders: tuple[str, ...]
    outcomes: Outcomes
    mode: Mode = "recommended"

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._about(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in self._about(item, panel)] for item in panel.items]
        outcomes, is_known = self.outcomes(panel, heard, self.mode)
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
            Ask(item, panel.view, f"{demo.id} {order}")
            for demo in panel.demos
            for order in self.orders
        ]


def plain_outcomes(panel: Asked, heard: Heard, mode: Mode) -> tuple[Ints, Booleans]:
    """Items x demonstrations: +1 where the item is higher up the scale, -1 where lower.

    It is 0 where the two slots disagree or one could not be read.
    """
    first, second = (_asked(panel, heard, order, lambda answer: answer.slot) for order in _BOTH)
    is_known: Booleans = np.any((first > 0) | (second > 0), axis=1)
    return _in_frame(panel, consensus(first, second)), is_known


def fair_outcomes(panel: Asked, heard: Heard, mode: Mode) -> tuple[Ints, Booleans]:
    """The outcomes after the probabilities of all pairs went through one fair map.

    A map that the published weight makes flat is fitted again with more spread, but in the paper's
    mode.
    """
    first = _asked(panel, heard, FORWARD, partial(_probability, slot=_FIRST))
    second = _asked(panel, heard, BACKWARD, partial(_probability, slot=_FIRST))
    renamed = _asked(panel, heard, RENAMED, partial(_probability, slot=_SECOND))
    is_known: Booleans = np.any(~np.isnan(first + second), axis=1)
    if np.isnan(first + second + renamed).all():
        return np.zeros_like(first, dtype=np.int64), np.zeros_like(is_known)
    fair = fit_fair_map(first.ravel(), renamed.ravel(), second.ravel())
    if fair.is_flat and mode == "recommended":
        fair = fit_fair_map(first.ravel(), renamed.ravel(), second.ravel(), spread=MORE_SPREAD)
    return _in_frame(panel, consensus(_chosen(fair(first)), _chosen(fair(second)))), is_known


def _probability(answer: Answer, slot: int) -> float:
    return answer.probabilities[slot - 1] if answer.probabilities else nan


def _chosen(p: npt.NDArray[np.float64]) -> Ints:
    """The chosen passage, 0 for neither."""
    return np.where(p > 0.5, _FIRST, np.where(p < 0.5, _SECOND, 0))


def _asked(
    panel: Asked, heard: Heard, order: str, read: Callable[[Answer], float]
) -> npt.NDArray[np.float64]:
    """The answers about every item and demonstration in an order."""
    found = [
        [read(heard[Ask(item, panel.view, f"{demo.id} {order}")]) for demo in panel.demos]
        for item in panel.items
    ]
    return np.array(found, dtype=np.float64).reshape(len(panel.items), len(panel.demos))


def _in_frame(panel: Asked, outcomes: Ints) -> Ints:
    """Turn outcomes round that were asked for as "further down the scale"."""
    return outcomes if panel.view.is_natural else -outcomes


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
    return [Ask(item, panel.view, part) for part in group_parts(panel)]


def group_parts(panel: Asked) -> list[str]:
    """The numbers of the groups with one demonstration of every class."""
    n_groups = min(Counter(demo.gold for demo in panel.demos).values(), default=0)
    return [str(group) for group in range(n_groups)]


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


def mean_gap(ranks: Sequence[Rank], n_classes: int, mode: Mode) -> Decision:
    """Round the mean of gaps: gap 1 is before the first class, gap 2 between the first two."""
    middles = np.clip(2 * np.array(ranks) - 1, 2, 2 * n_classes)
    return _decided(nearest_class(np.array([middles.sum()]), 2 * len(ranks), n_classes, mode))


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
    "listwise+insertion": (
        Traits(
            "gap between demonstrations where an item belongs, mean over groups",
            "insertion",
            _WHOLE,
            needs_demos=True,
            needs_order=True,
        ),
        mean_gap,
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
    return lambda mode: ByGroups(replace(traits, shows=frozenset({"grouping"})), join, mode)


def _pairwise(
    ending: str,
    rule: Rule,
    orders: tuple[str, ...] = _BOTH,
    outcomes: Outcomes = plain_outcomes,
    calibration: Calibration = "",
) -> Open:
    traits = Traits(
        f"comparisons with every demonstration, {ending}",
        "pairwise",
        _WHOLE,
        needs_demos=True,
        needs_scores=outcomes is fair_outcomes,
        needs_order=True,
        calibration=calibration,
    )
    return lambda mode: Pairwise(traits, rule, orders, outcomes, mode)


def _self_supervised(compared: Comparisons, mode: Mode) -> Aggregated:
    """Cut the weighted sum where the items themselves say, in either mode."""
    return weighted(compared, "recommended", thresholds="self")


def _add_pairwise(name: str, aggregator: Aggregator) -> None:
    pipelines.add(f"pairwise+{name}", _pairwise(aggregator.about, aggregator.rule))


_DEFAULT = aggregators["weighted_sum"]
pipelines.add("pairwise", _pairwise(_DEFAULT.about, _DEFAULT.rule))
aggregators.follow(_add_pairwise)
pipelines.add(
    "pairwise+weighted_sum_self",
    _pairwise(
        "the sum of outcome times label, cut by quantiles too",
        _self_supervised,
        calibration="batch",
    ),
)
pipelines.add(
    "pairwise+calibraeval",
    _pairwise(
        "made fair by CalibraEval, " + _DEFAULT.about,
        _DEFAULT.rule,
        (*_BOTH, RENAMED),
        fair_outcomes,
        "batch",
    ),
)
for _name in _GROUPED:
    pipelines.add(_name, _grouped(_name))
