"""The law of invariance: what a pipeline declares not to matter changes no answer, to the last one.

It runs over every simulated rater and any tilt, under every view of a declared axis. Each view also
takes its turn as the base, or else a pipeline would pass that shows one fixed order whatever the
view says: the scale is given from its other end, demonstrations, answers and options in another
order. Seeds are drawn again, for an order that a hash fixes is no less arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest

from flipmeter.ask.family import World
from flipmeter.ask.sim import latents, worth_of
from flipmeter.ask.tilts import SIMS
from flipmeter.pipelines.pipeline import Asked, Heard, Traits, open_pipeline, pipelines, pointwise
from flipmeter.pipelines.symmetries import Turns
from flipmeter.prompt.probes import order_demos, place_order, probes
from flipmeter.registry import OURS
from flipmeter.run.conditions import orbits_of
from flipmeter.run.rate import Rating, seat
from flipmeter.study.entries import DecodingEntry, make_rater
from flipmeter.types import (
    Ask,
    Call,
    Condition,
    Decision,
    Item,
    Model,
    Places,
    Reply,
    Request,
    Scale,
    Style,
    Task,
    View,
)
from read_prompts import at_once, reading
from test_pipelines import OPTIONS

WORDS = ("dreadful", "poor", "fair", "good", "superb")
TILTS = [
    "sim/honest?first=2.5&recency=1",
    "sim/honest?last=3",
    "sim/honest?slope=-1.2",
    "sim/honest?slope=0.9&recency=2.5",
    "sim/honest?first=1&last=1.5&place=2&length=1",
    "sim/honest?recency=-2&place=-1.5&sharpness=0.4",
]
RATERS = [*(f"sim/{name}?noise=0" for name in SIMS), *TILTS]
SEEDS = (0, 7)


# --- what is rated ----------------------------------------------------------------------------


def condition_of(pipeline: str, kind: str, n_classes: int = 3) -> Condition:
    """A few items of a kind, with demonstrations whose order is no order of classes."""
    task, items, demos = {"text": texts, "pair": pairs, "options": questions}[kind](n_classes)
    ranks = tuple(task.scale.ranks)
    style = Style(label_format="letter" if kind == "options" else "numeric", shots=2)
    rater = make_rater(Model("sim/honest"), style, pipeline, DecodingEntry(), has_scores=True)
    view = View("base", ranks)
    apart = tuple(
        Item(f"c{k}", {"text": f"It is apart {k}."}, gold, "calibration")
        for k, gold in enumerate([1, 1, 2, 3] * (kind == "text"))
    )
    return Condition(rater, "some", task, 0, view, demos, items, calibration=apart)


Made = tuple[Task, tuple[Item, ...], tuple[Item, ...]]


def texts(n_classes: int) -> Made:
    names = WORDS if n_classes == 5 else WORDS[::2]
    task = Task(Scale(names, "bad", "good"), "Rating", "Review", "quality")
    golds = [2, 1, 3, 3, 1]
    items = tuple(Item(f"i{k}", {"text": f"It is number {k}."}, g) for k, g in enumerate(golds))
    places = [(rank, shot) for shot in (1, 0) for rank in (2, n_classes, 1, *range(3, n_classes))]
    demos = tuple(Item(f"d{r}{k}", {"text": f"Shown {k} of {r}."}, r, "demo") for r, k in places)
    return task, items, demos


def pairs(n_classes: int) -> Made:
    places = Places(("a", "b"), ("{1}", "tie", "{0}"), ("A", "B"))
    task = Task(Scale(("B", "tie", "A")), "Judging", "Question", "quality", places=places)
    both = {"a": "Because it is {}.", "b": "Nobody knows {} for sure."}
    items = tuple(
        Item(f"p{k}", {"question": f"Why {k}?", **{f: t.format(k) for f, t in both.items()}}, gold)
        for k, gold in enumerate([3, 1, 2, 1])
    )
    return task, items, ()


def questions(n_classes: int) -> Made:
    places = Places(tuple("wxyz"), ("{0}", "{1}", "{2}", "{3}"), tuple("ABCD"), "options", "Option")
    task = Task(Scale(tuple("ABCD"), nominal=True), "Quiz", "Question", "answer", places=places)
    items = tuple(
        Item(
            f"q{k}",
            {"stem": f"What is {k}?", **{f: f"{f} {k} {n}" for n, f in enumerate("wxyz")}},
            g,
        )
        for k, g in enumerate([3, 1, 4])
    )
    return task, items, ()


@dataclass(frozen=True)
class Variant:
    """The same things asked in another way, which must not matter; its prompts are written once."""

    name: str
    condition: Condition
    calls: Sequence[Call]

    @classmethod
    def of(cls, name: str, condition: Condition) -> Variant:
        return cls(name, condition, list(_rating(condition).calls()))

    def answers(self, rater: Rater) -> list[str]:
        """What is decided on each item, by content: a name, the text that is chosen, or a fault."""
        decided = zip(self.decisions(rater), self.condition.items, strict=True)
        return [content(decision, item, self.condition.task) for decision, item in decided]

    def decisions(self, rater: Rater) -> list[Decision]:
        rating = _rating(self.condition)
        rating.hear(self.calls, {call.request.key: rater(call.request) for call in self.calls})
        return [one.decision for one in rating.settle()]


def _rating(condition: Condition) -> Rating:
    return Rating([condition], {seat(condition): "sim"})


Rater = Callable[[Request], Reply]


def rater_of(name: str, condition: Condition) -> Rater:
    """A simulated rater that knows the items as they were given first, and reads prompts alone."""
    task, known = condition.task, (*condition.items, *condition.demos, *condition.calibration)
    worth = worth_of(known, task) if task.places else None
    table = latents(() if task.places else known, task.scale)
    poles = task.scale.low, task.scale.high
    sim = reading(name, World(table, task.scale.names, worth), poles)
    said: dict[str, Reply] = {}

    def ask(request: Request) -> Reply:
        if request.key not in said:
            reply = at_once(sim.ask(request))
            assert not reply.error
            said[request.key] = reply
        return said[request.key]

    return ask


def content(decision: Decision, item: Item, task: Task) -> str:
    if not decision.rank:
        return f"fault: {decision.fault}"
    places = task.places
    field = None if places is None else places.favoured(decision.rank)
    if places is None or field is None:
        return task.scale.name(decision.rank)
    return item.fields[places.fields[field]]


# --- views, and each of them as the base ------------------------------------------------------


def given_as(condition: Condition, view: View) -> Condition:
    """The same things, given in the order in which a view shows them."""
    task, scale = condition.task, condition.task.scale
    if view.label_order != condition.view.label_order:
        ranks = {rank: place for place, rank in enumerate(view.label_order, 1)}
        names = tuple(scale.name(rank) for rank in view.label_order)
        turned = replace(scale, names=names, low=scale.high, high=scale.low)
        items, demos = (
            tuple(replace(one, gold=ranks[one.rank]) for one in some)
            for some in (condition.items, condition.demos)
        )
        return replace(condition, task=replace(task, scale=turned), items=items, demos=demos)
    if view.demo_order != "base":
        return replace(condition, demos=order_demos(condition.demos, view.demo_order, 0))
    if view.place_order != "base" and task.places is not None:
        return replace(
            condition, items=tuple(_exchanged(one, task.places, view) for one in condition.items)
        )
    return condition


def _exchanged(item: Item, places: Places, view: View) -> Item:
    order = place_order(item, places, view.place_order)
    gold = places.meanings(order).index(item.rank) + 1
    return replace(item.exchanged(places, order), gold=gold)


def declared(condition: Condition, one: View, other: View) -> bool:
    """Whether a pipeline declares that two views agree, on all items."""
    keys = [
        [orbits_of(replace(condition, view=view))(item) for item in condition.items]
        for view in (one, other)
    ]
    return keys[0] == keys[1] and all(keys[0])


AXES = {
    "text": ("label_order", "demo_order", "placement"),
    "pair": ("pair_order", "label_order"),
    "options": ("option_order", "option_permutations"),
}


def variants(condition: Condition, kind: str) -> Iterator[Variant]:
    """Views and bases that a pipeline declares to be equal, with other seeds."""
    base = condition.view
    for probe in AXES[kind]:
        views = probes[probe].views(len(condition.task.scale))[:5]
        equal = [view for view in views if declared(condition, base, view)]
        for view in equal:
            yield Variant.of(f"{probe}: {view.name}", replace(condition, view=view))
            moved = given_as(condition, view)
            shown = equal[-1] if declared(moved, base, equal[-1]) else base
            for seed, other in product(SEEDS, (base, shown)):
                name = f"{probe}: {other.name} where {view.name} is the base, seed {seed}"
                yield Variant.of(name, replace(moved, seed=seed, view=other))


def breaches(condition: Condition, kind: str, raters: Sequence[str] = RATERS) -> list[str]:
    """Where an answer changes that must not, whoever answers."""
    first, *others = (Variant.of("as given", condition), *variants(condition, kind))
    found = []
    for name in raters:
        rater = rater_of(name, condition)
        truth = first.answers(rater)
        found += [f"{name}, {one.name}" for one in others if one.answers(rater) != truth]
    return found


def kinds_of(name: str) -> list[str]:
    """What a pipeline can be asked about."""
    if name.startswith("pair+"):
        return ["pair"]
    if "places" in name:
        return ["pair", "options"]
    return ["text"]


DECLARING = [
    (name, kind)
    for name in (*pipelines, *OPTIONS, "orbit(places:rotations)", "orbit(places:williams)")
    if name in OPTIONS or pipelines.package(name.partition("(")[0]) == OURS
    if open_pipeline(name).traits.turns
    for kind in kinds_of(name)
]


@pytest.mark.parametrize(("name", "kind"), DECLARING)
def test_no_rater_and_no_tilt_moves_an_answer_along_an_axis_that_is_declared(
    name: str, kind: str
) -> None:
    assert breaches(condition_of(name, kind), kind) == []


# --- what is declared, and what is not --------------------------------------------------------


def agreeing(name: str, probe: str, kind: str = "text", n_classes: int = 3) -> list[str]:
    """The views of a probe that a pipeline declares to agree with the base."""
    condition = condition_of(name, kind, n_classes)
    base, *others = probes[probe].views(len(condition.task.scale))[:5]
    return [view.name for view in others if declared(condition, base, view)]


@pytest.mark.parametrize(
    ("name", "probe", "n_classes", "views"),
    [
        ("orbit(labels:reversal)", "label_order", 3, ["reversed"]),
        ("orbit(labels:rotations)", "label_order", 3, []),
        ("orbit(labels:rotations)", "label_order", 5, []),
        ("orbit(labels:dihedral)", "label_order", 5, ["reversed"]),
        ("orbit(labels:williams)", "label_order", 5, ["reversed"]),
        ("orbit(labels:reversal)", "demo_order", 3, []),
        ("orbit(demos:rotations)", "demo_order", 3, []),
        ("orbit(demos:reversal)", "label_order", 3, []),
        ("pointwise", "label_order", 3, []),
    ],
)
def test_what_is_declared_follows_from_the_orders(
    name: str, probe: str, n_classes: int, views: list[str]
) -> None:
    assert agreeing(name, probe, n_classes=n_classes) == views


def test_all_rotations_join_the_rotations_of_options_and_not_all_of_their_orders() -> None:
    name = "orbit(places:rotations)"
    rotated = ["rotated_1", "rotated_2", "rotated_3", "rotated_4"]
    assert agreeing(name, "option_order", "options") == rotated
    assert agreeing(name, "option_permutations", "options") == []


@pytest.mark.parametrize(("probe", "place"), [("label_order", 1), ("demo_order", 1)])
def test_the_raters_of_the_law_flip_where_nothing_is_declared(probe: str, place: int) -> None:
    condition = condition_of("pointwise", "text")
    view = probes[probe].views(3)[place]
    base, moved = (Variant.of("", one) for one in (condition, replace(condition, view=view)))
    raters = [rater_of(name, condition) for name in TILTS]
    assert any(base.answers(rater) != moved.answers(rater) for rater in raters)


# --- one that declares it falsely -----------------------------------------------------------------


SAME = Traits("control", turns=Turns(labels="reversal"))


@dataclass(frozen=True)
class Stubborn:
    """Shows what is given as it is given, whatever the view says."""

    traits: Traits = SAME

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return () if heard else [Ask(item, self._view(panel)) for item in panel.items]

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        return pointwise(Traits("")).settle(replace(panel, view=self._view(panel)), heard)

    def _view(self, panel: Asked) -> View:
        return View("given", tuple(sorted(panel.view.label_order)))


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Stubborn], Condition]]:
    def add(pipeline: Stubborn) -> Condition:
        monkeypatch.setitem(pipelines._parts, "control", lambda mode: pipeline)
        open_pipeline.cache_clear()
        return condition_of("control", "text")

    yield add
    open_pipeline.cache_clear()


def test_a_pipeline_that_ignores_the_view_breaks_the_law(
    control: Callable[[Stubborn], Condition],
) -> None:
    found = breaches(control(Stubborn()), "text", TILTS)
    assert any("reversed is the base" in one for one in found)
