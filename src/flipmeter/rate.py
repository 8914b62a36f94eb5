"""Condition -> Decision: the loop of calls, plan, model and parse, until nothing is left to ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from flipmeter.decide import pipelines
from flipmeter.model import Engine, request_for
from flipmeter.parse import parse
from flipmeter.plan import Plan, plan
from flipmeter.probe import order_demos
from flipmeter.prompt import Write, paradigms
from flipmeter.types import Answer, Call, Condition, Decision, Item, Model, Prompt, Reply

LOT = 50_000
"""How many decisions are held in memory with all that they rest on."""

Place = tuple[int, int]
"""Which condition, which of its items."""

Seat = tuple[Model, str]
"""A model on a dataset: a simulated rater knows one dataset, any other model is the same on all."""


@dataclass(frozen=True)
class Evidence:
    """A call with the reply it got and how that was read."""

    call: Call
    reply: Reply
    answer: Answer


@dataclass
class Rated:
    """The decision on one item under one condition, and everything it rests on."""

    condition: Condition
    item: Item
    decision: Decision
    evidence: tuple[Evidence, ...]


@dataclass
class Rating:
    """The state between rounds: what has been answered so far about every place."""

    conditions: Sequence[Condition]
    identities: Mapping[Seat, str]
    evidence: dict[Place, dict[str, Evidence]] = field(default_factory=dict)

    def calls(self) -> Iterator[Call]:
        """Yield what the pipelines ask next."""
        for number, condition in enumerate(self.conditions):
            pipeline = pipelines[condition.rater.pipeline]
            write = writer(condition)
            for place, item in enumerate(condition.items):
                for part in pipeline.parts(self._answers((number, place))):
                    yield self._call(number, place, part, write(item, part))

    def hear(self, calls: Sequence[Call], replies: Mapping[str, Reply]) -> None:
        """Read the replies to some calls."""
        for call in calls:
            reply = replies[call.request.key]
            found = Evidence(call, reply, parse(reply, call.prompt))
            self.evidence.setdefault((call.condition, call.item), {})[call.part] = found

    def settle(self) -> Iterator[Rated]:
        for number, condition in enumerate(self.conditions):
            pipeline = pipelines[condition.rater.pipeline]
            for place, item in enumerate(condition.items):
                decision = pipeline.settle(self._answers((number, place)))
                evidence = tuple(self.evidence[number, place].values())
                yield Rated(condition, item, decision, evidence)

    def _answers(self, place: Place) -> dict[str, Answer]:
        found = self.evidence.get(place)
        return {part: one.answer for part, one in found.items()} if found else {}

    def _call(self, number: int, place: int, part: str, prompt: Prompt) -> Call:
        condition = self.conditions[number]
        rater = condition.rater
        identity = self.identities[seat(condition)]
        request = request_for(rater.model, identity, prompt, rater.decoding, condition.view.repeat)
        return Call(number, place, part, prompt, request)


def writer(condition: Condition) -> Write:
    """Return what puts the items of a condition into words."""
    paradigm = paradigms[pipelines[condition.rater.pipeline].paradigm]
    demos = order_demos(condition.demos, condition.view.demo_order, condition.seed)
    return paradigm(condition.task, condition.rater.style, condition.view, demos)


def seat(condition: Condition) -> Seat:
    return condition.rater.model, condition.dataset


def first_round(conditions: Sequence[Condition], identities: Mapping[Seat, str]) -> Plan:
    """Return what would be asked first, without asking."""
    return plan(Rating(conditions, identities).calls())


def lots(conditions: Sequence[Condition], block: int | None) -> Iterator[Sequence[Condition]]:
    """Cut a grid into what is asked, decided and let go of before the next.

    A run that may stop early takes a block of items under all conditions at a time, so that every
    contrast stays paired: any beginning of a test set is seeded and class-mixed. Any other run
    keeps the items of a condition together, which shares most.
    """
    if block is not None:
        longest = max((len(condition.items) for condition in conditions), default=0)
        for start in range(0, longest, block):
            cut = [replace(c, items=c.items[start : start + block]) for c in conditions]
            yield [condition for condition in cut if condition.items]
        return
    lot: list[Condition] = []
    for _, some in groupby(conditions, key=lambda c: (c.dataset, c.level, c.seed)):
        lot += some
        if sum(len(condition.items) for condition in lot) >= LOT:
            yield lot
            lot = []
    if lot:
        yield lot


async def rate(
    conditions: Sequence[Condition],
    engine: Engine,
    identities: Mapping[Seat, str],
    *,
    block: int | None = None,
    on_plan: Callable[[int], None] | None = None,
) -> AsyncIterator[list[Rated]]:
    """Rate every item of every condition, lot by lot: ask, look, and ask again until settled."""
    n_planned = n_seen = 0
    n_decisions = sum(len(condition.items) for condition in conditions)
    for lot in lots(conditions, block):
        rating = Rating(lot, identities)
        n_seen += sum(len(condition.items) for condition in lot)
        while calls := list(rating.calls()):
            requests = plan(calls).requests
            n_planned += len(requests)
            if on_plan is not None:
                on_plan(round(n_planned * n_decisions / n_seen))
            rating.hear(calls, await engine.ask(requests))
        yield list(rating.settle())
