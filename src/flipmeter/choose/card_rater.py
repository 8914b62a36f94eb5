"""Items -> answers of a shipped rater: the one loop, with its store, limits and views."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import numpy as np

from flipmeter.ask.family import World
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.pipelines.averaging import (
    AveragedRanks,
    average_probabilities,
    average_ranks,
    choose,
    median_ranks,
)
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.template import read_template
from flipmeter.run.conditions import adapted, learn
from flipmeter.run.perform import open_engine
from flipmeter.run.progress import Terms
from flipmeter.run.rate import Rated, rate, seated
from flipmeter.run.rows import total_usage
from flipmeter.study.grid import refuse_words
from flipmeter.types import Condition, Decision, Fault, Item, Jury, Rank, Usage, View

PAIR = 2
FEWEST_IN_BATCH = 10
"""Items below which their mean says nothing of a preferred class."""


@dataclass(frozen=True)
class Labelled:
    """The answer for an item: the decision over all positions, and how far they agree.

    `votes` are the classes that single positions give, 0 for none; of one alone there is no
    agreement, and it is NaN. `error` is the first that a call ended with. Decimal scores up to
    `tolerance` ranks apart agree.
    """

    item: Item
    decision: Decision
    votes: tuple[Rank, ...]
    n_calls: int
    usage: Usage
    error: str = ""
    tolerance: int = 0

    @property
    def agreement(self) -> float:
        """The share of positions that give the decided class; a fault never agrees."""
        if len(self.votes) < PAIR:
            return math.nan
        rank = self.decision.rank
        agrees = [bool(vote) and abs(vote - rank) <= self.tolerance for vote in self.votes]
        return sum(agrees) / len(self.votes) if rank else 0.0


Label = Callable[[Sequence[Item]], Awaitable[list[Labelled]]]
"""Gives every item its answer, in their order."""


@asynccontextmanager
async def at_work(
    conditions: Sequence[Condition],
    views: Sequence[View],
    store: Store,
    terms: Terms,
    *,
    jury: Jury | None = None,
    world: World | None = None,
) -> AsyncIterator[Label]:
    """Open the model of a rater, yield a function that labels items, and close it at the end.

    `conditions` are one, or one for each member of a `jury`. Every item is asked under all views;
    their answers are put together. The listener of the `terms` hears how many requests all items
    so far need, and which capabilities the model lacks.
    """
    for one in conditions:
        refuse_words(one.rater)
    grid = [replace(one, view=view, items=()) for view in views for one in conditions]
    able = await learn(grid, store, terms)
    grid, fallbacks = adapted(grid, able)
    for note in (note for notes in fallbacks.values() for note in notes):
        terms.listener.on_note(note)
    worlds = {} if world is None else {conditions[0].dataset: world}
    async with open_engine(grid, worlds, store, terms) as (engine, identities):

        async def label(items: Sequence[Item]) -> list[Labelled]:
            prompt = conditions[0].rater.style.prompt
            if prompt and items:
                known = read_template(prompt, "the prompt of the rater")
                known.check(items[0], conditions[0].task)
            asked = [replace(one, items=tuple(items)) for one in grid]
            before, found = terms.ledger.wanted, list[Rated]()

            def told(n_requests: int) -> None:
                terms.listener.on_plan(before + n_requests)

            async for rated in rate(asked, engine, identities, on_plan=told):
                found += rated
            sides = [found[at : at + len(items)] for at in range(0, len(found), max(1, len(items)))]
            by_view = []
            for at in range(0, len(sides), len(conditions)):
                members = sides[at : at + len(conditions)]
                rows = [list(one) for one in zip(*members, strict=True)]
                by_view.append(members[0] if jury is None else seated(rows, jury))
            return put_together(by_view)

        yield label


def put_together(by_view: Sequence[Sequence[Rated]]) -> list[Labelled]:
    """Put the decisions under several views together, item by item."""
    by_item = list(zip(*by_view, strict=True))
    decisions = (
        _decide_over_views(by_item) if len(by_view) > 1 else [one.decision for (one,) in by_item]
    )
    return [
        Labelled(
            item=rated[0].item,
            decision=decision,
            votes=tuple(vote for one in rated for vote in _position_votes(one)),
            n_calls=sum(len(one.evidence) for one in rated),
            usage=total_usage([found.reply.usage for one in rated for found in one.evidence]),
            error=next(filter(None, (f.reply.error for one in rated for f in one.evidence)), ""),
            tolerance=span.tolerance if (span := rated[0].condition.task.scale.span) else 0,
        )
        for rated, decision in zip(by_item, decisions, strict=True)
    ]


def _position_votes(one: Rated) -> Sequence[Rank]:
    """The classes of the positions that a decision rests on, or the decision's own."""
    is_pointwise = open_pipeline(one.condition.rater.pipeline).traits.paradigm == "pointwise"
    is_jury = one.condition.rater.model.address.startswith("panel/")
    if is_pointwise and not is_jury and len(one.evidence) > 1:
        return [found.answer.rank for found in one.evidence if not found.call.draw]
    return [one.decision.rank]


def _decide_over_views(by_item: Sequence[Sequence[Rated]]) -> list[Decision]:
    """Decide over views: the mean of probabilities if all have them, else the middle class.

    Of decimal scores it is their mean. More than half of the views must have an answer.
    """
    ranks = np.array([[one.decision.rank for one in rated] for rated in by_item])
    n_views, least = ranks.shape[1], ranks.shape[1] // 2 + 1
    if by_item and by_item[0][0].condition.task.scale.span is not None:
        mean = average_ranks(ranks, least=least)
        return _averaged_decisions(
            by_item, AveragedRanks(mean.ranks, np.zeros_like(mean.tie_decided))
        )
    if all(one.decision.probabilities or not one.decision.rank for r in by_item for one in r):
        nothing = (math.nan,) * len(by_item[0][0].condition.task.scale)
        p = np.array([[one.decision.probabilities or nothing for one in row] for row in by_item])
        averaged = average_probabilities(p, [range(1, len(nothing) + 1)] * n_views, least=least)
        return [
            replace(one, probabilities=tuple(row) if one.rank else None)
            for one, row in zip(
                _averaged_decisions(by_item, choose(averaged)), averaged.tolist(), strict=True
            )
        ]
    if n_views == PAIR:
        return _averaged_decisions(by_item, average_ranks(ranks, least=least))
    return _averaged_decisions(by_item, median_ranks(ranks, least=least))


def _averaged_decisions(
    by_item: Sequence[Sequence[Rated]], choice: AveragedRanks
) -> list[Decision]:
    found = []
    for rated, rank, is_tied in zip(
        by_item, choice.ranks.tolist(), choice.tie_decided.tolist(), strict=True
    ):
        faults: Iterator[Fault] = (f for one in rated if (f := one.decision.fault))
        masses = [m for one in rated if (m := one.decision.label_mass) is not None]
        fault: Fault | None = None if rank else next(faults, "unparsed")
        found.append(
            Decision(rank, fault=fault, tie_decided=is_tied, label_mass=min(masses, default=None))
        )
    return found


def refuse_in_parts(pipeline: str, n_items: int | None = None) -> None:
    """Refuse a pipeline that learns from all items at once where they come in parts, or are few.

    In parts they come unless their number is given.
    """
    if open_pipeline(pipeline).traits.calibration != "batch":
        return
    why = f"the pipeline '{pipeline}' learns from all items at once"
    if n_items is None:
        raise Problem(
            f"{why}, but here they come in parts: the answers would depend on how they are cut; "
            "choose another pipeline"
        )
    if 0 < n_items < FEWEST_IN_BATCH:
        raise Problem(
            f"{why} and needs at least {FEWEST_IN_BATCH} of mixed classes; got {n_items}; choose "
            "a pipeline that learns from items set apart, such as orbit(calibrated)"
        )


def check_abstention(share: float | None, views: Sequence[View], pipeline: str) -> None:
    """Refuse to abstain by agreement where a single position is asked."""
    if share is None:
        return
    if not 0 < share <= 1:
        raise Problem(f"abstain_below is {share}; it must be above 0 and at most 1")
    traits = open_pipeline(pipeline).traits
    averages = traits.paradigm == "pointwise" and (traits.consumes or traits.turns)
    if len(views) == 1 and not averages:
        raise Problem(
            "abstaining needs several views; average over one of label_order, demo_order, placement"
        )
