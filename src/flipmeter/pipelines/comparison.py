"""Pipelines that compare an item with demonstrations and put the answers together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from flipmeter.pipelines.aggregate import (
    Aggregated,
    Aggregator,
    Comparisons,
    aggregators,
    favourite,
    nearest_class,
)
from flipmeter.pipelines.pipeline import Asked, ByItem, Open, Traits, pipelines
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


def _pairwise_pipeline(aggregator: Aggregator) -> Open:
    """Compare with every demonstration, in both orders, and aggregate the outcomes."""
    traits = Traits(
        f"comparisons with every demonstration, {aggregator.about}",
        "pairwise",
        _WHOLE,
        needs_demos=True,
        needs_order=True,
    )

    def asks(item: Item, panel: Asked) -> list[Ask]:
        orders = (FORWARD, BACKWARD)
        return [
            Ask(item, panel.view, f"{demo.id} {order}") for demo in panel.demos for order in orders
        ]

    def settle(panel: Asked, answers: Sequence[Sequence[Answer]], mode: Mode) -> list[Decision]:
        slots = np.array([[one.slot for one in some] for some in answers], dtype=np.int64)
        forward, backward = np.moveaxis(slots.reshape(len(answers), len(panel.demos), 2), -1, 0)
        # Two orders that disagree, or one that could not be read, are a tie.
        is_item = (forward == _FIRST) & (backward == _SECOND)
        is_demo = (forward == _SECOND) & (backward == _FIRST)
        outcomes = is_item.astype(np.int64) - is_demo
        if not panel.view.is_natural:  # a reversed view asks which is further down the scale
            outcomes = -outcomes
        labels = [demo.rank for demo in panel.demos]
        found = aggregator.rule(Comparisons.of(outcomes, labels, panel.n_classes), mode)
        each = zip(answers, found.ranks, found.tie_decided, found.degenerate, strict=True)
        return [
            Decision(int(rank), tie_decided=bool(tie), degenerate=bool(degenerate))
            if any(one.slot for one in some)
            else Decision(NO_CLASS, fault=_main_fault(some))
            for some, rank, tie, degenerate in each
        ]

    return lambda mode: ByItem(traits, asks, lambda panel, answers: settle(panel, answers, mode))


def _by_group(about: str, paradigm: str, join: Join, *, needs_order: bool = False) -> Open:
    """Ask once behind each group with one demonstration of every class, and join the answers."""
    consumes = frozenset[str]() if paradigm == "windows" else _WHOLE
    traits = Traits(about, paradigm, consumes, needs_demos=True, needs_order=needs_order)

    def asks(item: Item, panel: Asked) -> list[Ask]:
        n_groups = min(Counter(demo.gold for demo in panel.demos).values(), default=0)
        return [Ask(item, panel.view, str(group)) for group in range(n_groups)]

    def settle(some: Sequence[Answer], n_classes: int, mode: Mode) -> Decision:
        ranks = [answer.rank for answer in some if not answer.fault]
        if not ranks:
            return Decision(NO_CLASS, fault=_main_fault(some))
        return join(ranks, n_classes, mode)

    return lambda mode: ByItem(
        traits,
        asks,
        lambda panel, answers: [settle(some, panel.n_classes, mode) for some in answers],
    )


def _main_fault(answers: Iterable[Answer]) -> Fault:
    """The fault that most answers have."""
    faults = Counter(answer.fault for answer in answers if answer.fault)
    return faults.most_common(1)[0][0] if faults else "unparsed"


Join = Callable[[Sequence[Rank], int, Mode], Decision]
"""Settle what an item was called behind each group, in which mode, on a scale of so many."""


def vote(ranks: Sequence[Rank], n_classes: int, mode: Mode) -> Decision:
    """Take the class with most votes; the paper takes, of level ones, the one named first."""
    counts = Counter(ranks)
    if mode == "paper":
        first, most = counts.most_common(1)[0]
        return Decision(first, tie_decided=list(counts.values()).count(most) > 1)
    return _first_decision(favourite(np.bincount(ranks, minlength=n_classes + 1)[None, 1:]))


def mean_place(ranks: Sequence[Rank], n_classes: int, mode: Mode) -> Decision:
    """Round the mean; at .5 to the class nearer to the middle of the scale, in the paper up."""
    return _first_decision(nearest_class(np.array([sum(ranks)]), len(ranks), n_classes, mode))


def _first_decision(one: Aggregated) -> Decision:
    return Decision(int(one.ranks[0]), tie_decided=bool(one.tie_decided[0]))


pipelines.add("pairwise", _pairwise_pipeline(aggregators["weighted_sum"]))
aggregators.follow(
    lambda name, aggregator: pipelines.add(f"pairwise+{name}", _pairwise_pipeline(aggregator))
)
pipelines.add(
    "listwise",
    _by_group(
        "place among one demonstration of each class, mean over groups",
        "listwise",
        mean_place,
        needs_order=True,
    ),
)
pipelines.add(
    "listwise_compare",
    _by_group(
        "closest labelled reference, majority over groups; reversed labels reverse the list",
        "listwise_compare",
        vote,
    ),
)
pipelines.add(
    "listwise_compare+relabel",
    _by_group(
        "closest labelled reference, majority over groups; reversed labels rename them only",
        "listwise_relabel",
        vote,
    ),
)
pipelines.add(
    "pointwise_vote",
    _by_group(
        "pointwise prompt with one demonstration of each class, majority over groups: as many "
        "calls as listwise",
        "windows",
        vote,
    ),
)
