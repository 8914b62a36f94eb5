"""Condition -> Decision: the loop of calls, plan, model and parse, until nothing is left to ask."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from flipmeter.ask.engine import Engine
from flipmeter.ask.names import is_callable, is_simulated, requests_for
from flipmeter.ask.plan import Plan, plan
from flipmeter.pipelines.panels import settle_jury
from flipmeter.pipelines.pipeline import Asked, open_pipeline
from flipmeter.prompt.parsing import counted, parse
from flipmeter.prompt.pointwise import Write, paradigms
from flipmeter.prompt.probes import order_demos, show
from flipmeter.prompt.question import posing
from flipmeter.redaction import refuse_hidden
from flipmeter.types import (
    Answer,
    Ask,
    Call,
    Condition,
    Decision,
    Item,
    Jury,
    Model,
    Prompt,
    Reply,
    Request,
    View,
)

LOT = 4000
"""Number of decisions in memory with their calls."""

DRAWS_APART = 1_000
"""Added to the repeat with each draw: no draw of one repeat is a reply of another."""

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
    """The decision on one item under one condition, and everything it rests on.

    `shared` is what the items of a condition were asked together: null texts, calibration items.
    """

    condition: Condition
    item: Item
    decision: Decision
    evidence: tuple[Evidence, ...]
    shared: tuple[Evidence, ...] = ()


@dataclass
class Rating:
    """The state between rounds: what has been answered so far under every condition."""

    conditions: Sequence[Condition]
    identities: Mapping[Seat, str]
    evidence: dict[int, dict[Ask, list[Evidence]]] = field(default_factory=dict)
    _offered: set[tuple[str, ...]] = field(default_factory=set)

    def calls(self) -> Iterator[Call]:
        """Yield what the pipelines ask next."""
        for number, condition in enumerate(self.conditions):
            self._refuse_hidden(condition.task.scale.names)
            pipeline = open_pipeline(condition.rater.pipeline)
            asks = pipeline.asks(panel_of(condition), self._answers(number))
            if not asks:
                continue
            rater, write = condition.rater, writer(condition)
            forms = [rater.decoding, *[rater.decoding.drawn] * rater.n_draws]
            identity = self.identities[seat(condition)]
            draws = [
                requests_for(rater.model, identity, form, scored=rater.is_scored) for form in forms
            ]
            for ask in asks:
                prompt = write(ask)
                self._refuse_hidden(prompt.answers)
                for draw, request in enumerate(draws):
                    repeat = ask.view.repeat + DRAWS_APART * draw
                    yield Call(number, ask, prompt, request(prompt, repeat), draw)

    def hear(
        self,
        calls: Sequence[Call],
        replies: Mapping[str, Reply],
        as_sent: Callable[[Request], Request] | None = None,
    ) -> None:
        """Read the replies to some calls; `as_sent` gives the request that an endpoint took."""
        for call in calls:
            reply = replies[call.request.key]
            how = self.conditions[call.condition].rater.extract
            if as_sent is not None and (sent := as_sent(call.request)) is not call.request:
                call = replace(call, request=sent)
            found = Evidence(call, reply, parse(reply, call.prompt, how))
            self.evidence.setdefault(call.condition, {}).setdefault(call.ask, []).append(found)

    def settle(self) -> Iterator[Rated]:
        for number, condition in enumerate(self.conditions):
            pipeline = open_pipeline(condition.rater.pipeline)
            decisions = pipeline.settle(panel_of(condition), self._answers(number))
            own, shared = self._sorted(number)
            for item, decision in zip(condition.items, decisions, strict=True):
                yield Rated(condition, item, decision, tuple(own[item.id]), shared)

    def _refuse_hidden(self, answers: tuple[str, ...]) -> None:
        """Refuse answers that would be hidden as secrets: replies with them could not be read."""
        if answers not in self._offered:
            refuse_hidden(f"one of the answers {answers!r:.200}", *answers)
            self._offered.add(answers)

    def _answers(self, number: int) -> dict[Ask, Answer]:
        found = self.evidence.get(number, {})
        return {ask: _answer_to_ask(some) for ask, some in found.items()}

    def _sorted(self, number: int) -> tuple[dict[str, list[Evidence]], tuple[Evidence, ...]]:
        """The outcome of every item of a condition, and the part that all items share."""
        own: dict[str, list[Evidence]] = {item.id: [] for item in self.conditions[number].items}
        shared: list[Evidence] = []
        for ask, found in self.evidence.get(number, {}).items():
            if ask.item.role == "test" and ask.item.id in own:
                own[ask.item.id] += found
            else:
                shared += found
        return own, tuple(shared)


def _answer_to_ask(found: Sequence[Evidence]) -> Answer:
    """The answer to an ask, its probabilities counted where replies were drawn for them."""
    first, *drawn = found
    if not drawn:
        return first.answer
    return counted(first.answer, [one.answer for one in drawn], first.call.prompt)


def panel_of(condition: Condition) -> Asked:
    """The panel that the pipeline of a condition is applied to."""
    return Asked(
        *(condition.items, condition.view, condition.demos, condition.calibration, condition.seed),
        places=condition.task.places,
        scale=condition.task.scale,
    )


def writer(condition: Condition) -> Callable[[Ask], Prompt]:
    """The renderer of a condition's questions, each view prepared once."""
    name = open_pipeline(condition.rater.pipeline).traits.paradigm
    model = condition.rater.model
    paradigm = paradigms["question" if is_callable(model) else name]
    if is_simulated(model):
        paradigm = posing(name)
    writes: dict[View, Write] = {}

    def write(ask: Ask) -> Prompt:
        view = ask.view
        if view not in writes:
            demos = order_demos(condition.demos, view.demo_order, condition.seed, view.demo_turn)
            writes[view] = paradigm(condition.task, condition.rater.style, view, demos)
        if view.place_order == "base" and not view.place_turn:
            return writes[view](ask.item, ask.part)
        item, meanings = show(ask.item, condition.task, view.place_order, view.place_turn)
        prompt = writes[view](item, ask.part)
        if prompt.span is not None:
            return replace(prompt, is_mirrored=True)
        return replace(prompt, ranks=tuple(meanings[rank - 1] for rank in prompt.ranks))

    return write


def seat(condition: Condition) -> Seat:
    return condition.rater.model, condition.dataset


def first_round(conditions: Sequence[Condition], identities: Mapping[Seat, str]) -> Plan:
    """The requests of the first round, without sending them."""
    return plan(Rating(conditions, identities).calls())


def lots(conditions: Sequence[Condition], block: int | None) -> Iterator[Sequence[Condition]]:
    """Cut a grid into what is asked, decided and let go of before the next.

    A run that may stop early takes a block of items under all conditions at a time, so that every
    contrast stays paired: any beginning of a test set is seeded and class-mixed. Any other run
    keeps the items of a condition together, which shares most, unless they are too many and its
    pipeline decides on each by itself.
    """
    if block is not None:
        yield from _cut_conditions(conditions, block)
        return
    lot: list[Condition] = []
    for _, some in groupby(conditions, key=lambda c: (c.dataset, c.level, c.seed)):
        together = list(some)
        learn_from = {open_pipeline(one.rater.pipeline).traits.calibration for one in together}
        if _n_decisions(together) > LOT and learn_from <= {"", "apart"}:  # each item by itself
            if lot:
                yield lot
            lot = []
            yield from _cut_conditions(together, max(1, LOT // len(together)))
            continue
        lot += together
        if _n_decisions(lot) >= LOT:
            yield lot
            lot = []
    if lot:
        yield lot


def _cut_conditions(conditions: Sequence[Condition], size: int) -> Iterator[list[Condition]]:
    """Some items at a time under all conditions."""
    longest = max((len(condition.items) for condition in conditions), default=0)
    for start in range(0, longest, size):
        cut = [replace(c, items=c.items[start : start + size]) for c in conditions]
        yield [condition for condition in cut if condition.items]


def _n_decisions(conditions: Iterable[Condition]) -> int:
    return sum(len(condition.items) for condition in conditions)


async def rate(
    conditions: Sequence[Condition],
    engine: Engine,
    identities: Mapping[Seat, str],
    *,
    block: int | None = None,
    on_plan: Callable[[int], None] | None = None,
    on_calls: Callable[[Sequence[Condition], Sequence[Call]], None] | None = None,
    heard: Mapping[str, Reply] | None = None,
) -> AsyncIterator[list[Rated]]:
    """Rate every item of every condition, lot by lot: ask, look, and ask again until settled.

    Requests whose replies were `heard` before, by key, are not sent again. `on_calls` is given
    what each round asks, and the conditions that its calls count in.
    """
    heard = heard or {}
    n_planned = n_seen = 0
    n_decisions = _n_decisions(conditions)
    for lot in lots(conditions, block):
        rating = Rating(lot, identities)
        n_seen += _n_decisions(lot)
        while calls := list(rating.calls()):
            requests = plan(calls).requests
            n_planned += len(requests)
            if on_plan is not None:
                on_plan(round(n_planned * n_decisions / n_seen))
            if on_calls is not None:
                on_calls(lot, calls)
            fresh = [request for request in requests if request.key not in heard]
            rating.hear(calls, {**heard, **await engine.ask(fresh)}, engine.as_sent)
        yield list(rating.settle())


Place = tuple[str, str, int, str]
"""Dataset, level, seed and view."""

Turn = tuple[str, int]
"""A member, and which repeat."""

T = TypeVar("T")
Heard = dict[Place, dict[Turn, dict[str, T]]]
"""The decisions on every item, by condition and member."""


@dataclass(frozen=True)
class Seating:
    """The juries of a study, and the raters whose replies are reproducible.

    A reproducible member repeats a few items only; for the others its first decision stands for its
    repeat, so that the panel has the noise of those that do vary.
    """

    juries: Sequence[Jury]
    reproducible: Collection[str] = ()

    @property
    def steady(self) -> list[str]:
        """The juries of which all members are reproducible."""
        return [one.name for one in self.juries if {*one.members} <= {*self.reproducible}]

    def rated(self, lot: Sequence[Rated]) -> list[Rated]:
        """The decisions of a lot with those of the juries behind them."""
        if not self.juries:
            return list(lot)
        heard: Heard[Rated] = {}
        for one in lot:
            by_turn = heard.setdefault(_jury_place(one.condition), {})
            by_turn.setdefault(_member_turn(one.condition), {})[one.item.id] = one
        found = [
            one
            for jury, repeat, together in self._sittings(heard)
            for one in seated(together, jury, repeat)
        ]
        hidden = self._hidden
        return [*(one for one in lot if one.condition.rater.name not in hidden), *found]

    def grid(self, grid: Sequence[Condition]) -> list[Condition]:
        """The conditions of a record: those that were asked, with those of the juries."""
        heard: Heard[tuple[Condition, Item]] = {}
        for one in grid if self.juries else ():
            by_turn = heard.setdefault(_jury_place(one), {})
            by_turn[_member_turn(one)] = {item.id: (one, item) for item in one.items}
        hidden = self._hidden
        return [
            *(one for one in grid if one.rater.name not in hidden),
            *(
                replace(
                    _jury_condition(both[0][0][0], jury, repeat),
                    items=tuple(one[0][1] for one in both),
                )
                for jury, repeat, both in self._sittings(heard)
            ),
        ]

    @property
    def _hidden(self) -> set[str]:
        """Members of juries that are shown alone."""
        return {name for one in self.juries if not one.shows_members for name in one.members}

    def _sittings(self, heard: Heard[T]) -> Iterator[tuple[Jury, int, list[list[T]]]]:
        """Every jury at every place and repeat, with what its members have there, item by item."""
        for jury in self.juries:
            for by_turn in heard.values():
                for repeat in sorted({again for _, again in by_turn}):
                    together = self._together(by_turn, jury, repeat)
                    if together:
                        yield jury, repeat, together

    def _together(
        self, by_turn: Mapping[Turn, Mapping[str, T]], jury: Jury, repeat: int
    ) -> list[list[T]]:
        """The decisions of all members, for items that at least one was asked at this repeat."""
        own = [by_turn.get((member, repeat), {}) for member in jury.members]
        sides = [
            {**by_turn.get((member, 0), {}), **mine} if member in self.reproducible else mine
            for member, mine in zip(jury.members, own, strict=True)
        ]
        asked = dict.fromkeys(name for mine in own for name in mine)
        return [
            [side[name] for side in sides] for name in asked if all(name in side for side in sides)
        ]


def seated(together: Sequence[Sequence[Rated]], jury: Jury, repeat: int = 0) -> list[Rated]:
    """The decisions of a jury on some items, each from those of its members.

    They rest on all that the members' decisions rest on: nothing is asked for a jury alone.
    """
    if not together:
        return []
    condition = _jury_condition(together[0][0].condition, jury, repeat)
    shared = tuple(evidence for one in together[0] for evidence in one.shared)
    return [
        Rated(
            condition,
            members[0].item,
            settle_jury([one.decision for one in members], jury.by, condition.task),
            tuple(evidence for one in members for evidence in one.evidence),
            shared,
        )
        for members in together
    ]


def _jury_condition(member: Condition, jury: Jury, repeat: int) -> Condition:
    """The condition of a jury, from that of a member."""
    view = replace(member.view, repeat=repeat)
    rater = replace(member.rater, model=Model(f"panel/{jury.name}", jury.name))
    return replace(member, rater=rater, view=view)


def jury_identity(jury: Jury) -> str:
    return f"{jury.by} of {', '.join(jury.members)}"


def _jury_place(condition: Condition) -> Place:
    return condition.dataset, condition.level, condition.seed, condition.view.name


def _member_turn(condition: Condition) -> Turn:
    return condition.rater.name, condition.view.repeat
