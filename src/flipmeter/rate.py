"""Condition -> Decision: the loop of calls, plan, model and parse, until nothing is left to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flipmeter.decide import pipelines
from flipmeter.model import Asked, Backend, Budget, Ledger, Store, ask_all, request_for
from flipmeter.parse import parse
from flipmeter.plan import Plan, plan
from flipmeter.probe import order_demos
from flipmeter.prompt import paradigms
from flipmeter.types import Answer, Call, Condition, Decision, Item, Model, Prompt, Reply

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
            demos = order_demos(condition.demos, condition.view.demo_order, condition.seed)
            for place, item in enumerate(condition.items):
                for part in pipeline.parts(self._answers((number, place))):
                    prompt = _render(condition, pipeline.paradigm, demos, item, part)
                    yield self._call(number, place, part, prompt)

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
        return {part: found.answer for part, found in self.evidence.get(place, {}).items()}

    def _call(self, number: int, place: int, part: str, prompt: Prompt) -> Call:
        condition = self.conditions[number]
        rater = condition.rater
        identity = self.identities[seat(condition)]
        request = request_for(rater.model, identity, prompt, rater.decoding, condition.view.repeat)
        return Call(number, place, part, prompt, request)


def _render(
    condition: Condition, paradigm: str, demos: Sequence[Item], item: Item, part: str
) -> Prompt:
    style = condition.rater.style
    return paradigms[paradigm](condition.task, style, condition.view, demos, item, part)


def seat(condition: Condition) -> Seat:
    return condition.rater.model, condition.dataset


def first_round(conditions: Sequence[Condition], identities: Mapping[Seat, str]) -> Plan:
    """Return what would be asked first, without asking."""
    return plan(Rating(conditions, identities).calls())


async def rate(
    conditions: Sequence[Condition],
    backends: Mapping[Seat, Backend],
    store: Store,
    *,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_plan: Callable[[int], None] | None = None,
    budget: Budget | None = None,
) -> list[Rated]:
    """Rate every item of every condition: ask, look, and ask again until all is settled."""
    rating = Rating(conditions, {seat: backend.identity for seat, backend in backends.items()})
    by_identity = {backend.identity: backend for backend in backends.values()}
    pace = {backend.identity: model.min_interval for (model, _), backend in backends.items()}
    ledger = ledger or Ledger()  # one for all rounds: the budget is for the whole run
    n_planned = 0
    while calls := list(rating.calls()):
        requests = plan(calls).requests
        n_planned += len(requests)
        if on_plan is not None:
            on_plan(n_planned)
        replies = await ask_all(
            requests,
            by_identity,
            store,
            ledger=ledger,
            min_interval=pace,
            on_reply=on_reply,
            budget=budget,
        )
        rating.hear(calls, replies)
    return list(rating.settle())
