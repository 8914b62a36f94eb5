"""Pipelines: what to ask about the items of a condition, asked again until settled."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from flipmeter.errors import Problem
from flipmeter.pipelines.averaging import AveragedRanks
from flipmeter.pipelines.symmetries import Floats, Ranks, Turns
from flipmeter.registry import Registry
from flipmeter.types import (
    Answer,
    Ask,
    Decision,
    Fault,
    Item,
    Mode,
    PlaceKind,
    Places,
    Rank,
    Scale,
    View,
)

Calibration = Literal["", "apart", "test", "batch"]
Heard = Mapping[Ask, Answer]
"""The answers so far to what was asked under one condition."""

DRAWN_APART = 10
"""Added to the repeat with each draw of a vote: no draw is the reply of another repeat."""


@dataclass(frozen=True)
class Asked:
    """The input of a pipeline: items under a view, demonstrations and calibration items.

    `demos` stand in the sampler's order. `calibration` items serve pipelines that measure a bias
    before they correct it. `places` are the fields that may change places, None for none. `scale`
    has the classes; without one they are told apart by rank alone.
    """

    items: tuple[Item, ...]
    view: View
    demos: tuple[Item, ...] = ()
    calibration: tuple[Item, ...] = ()
    seed: int = 0
    places: Places | None = None
    scale: Scale | None = None

    @property
    def n_classes(self) -> int:
        return len(self.view.label_order)

    def n_places(self, item: Item) -> int:
        return 0 if self.places is None else self.places.n_filled(item)


@dataclass(frozen=True)
class Traits:
    """Properties of a pipeline that are known before it asks; `about` describes it in a sentence.

    `paradigm` names the prompt of its questions; `consumes` the probes that are left out: their
    axis has no place in its prompts, or it shows an order of its own instead of the view's. `turns`
    are the orders that it averages over: where these lead two views to the same prompts, it
    declares that they agree. One that `needs_scores` works on the probabilities of labels, and one
    that `needs_order` on classes of which some are higher than others. One that `takes_numbers` can
    decide on decimal scores too.
    `calibration` says on which items it learns a bias: some set apart, some test items, or the
    whole batch that it decides on. One with a `temperature` draws at it where a study is greedy.
    """

    about: str
    paradigm: str = "pointwise"
    consumes: frozenset[str] = frozenset()
    needs_demos: bool = False
    needs_scores: bool = False
    needs_order: bool = False
    takes_numbers: bool = False
    moves: PlaceKind | None = None
    calibration: Calibration = ""
    temperature: float = 0.0
    turns: Turns | None = None

    def why(self, axis: str) -> str:
        """Reason why an axis of a view cannot matter, "" if none is declared."""
        named = {"label_order": "labels", "demo_order": "demos", "place_order": "places"}.get(axis)
        turned = getattr(self.turns, named) if self.turns and named else ""
        return f"average over {named}:{turned}" if turned else ""


class Pipeline(Protocol):
    """Ask, look, and ask again, then settle."""

    @property
    def traits(self) -> Traits: ...

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        """The next questions; none when the items can be decided."""
        ...

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        """One decision for every item, in their order."""
        ...


Open = Callable[[Mode], Pipeline]
pipelines: Registry[Open] = Registry("pipeline")
"""The factory of a pipeline in a mode, by its name: a paradigm, or one with a final step, as in
`pairwise+copeland` and `pointwise+pride`."""

_MODES: tuple[Mode, ...] = ("recommended", "paper")


@lru_cache(maxsize=256)
def open_pipeline(name: str) -> Pipeline:
    """A pipeline by its name; `@paper` and `@recommended` at its end choose the form.

    What stands in brackets chooses among the options of a pipeline: `pair+vote(5)`,
    `orbit(labels:dihedral)`.
    """
    plain, _, mode = name.partition("@")
    for known in _MODES:
        if known == (mode or "recommended"):
            return _resolve_pipeline(plain)(known)
    raise Problem(f"no mode named '{mode}' for '{plain}'; known: {', '.join(_MODES)}")


@dataclass(frozen=True)
class WithOptions:
    """A factory of pipelines that take options, by the words for them in brackets.

    Each word sets one option; `options` has the words of every option, the usual one first, and
    `takes` says what they are.
    """

    make: Callable[[Mapping[str, str], Mode], Pipeline]
    options: Mapping[str, Sequence[str]]
    takes: str

    def __call__(self, mode: Mode) -> Pipeline:
        return self.make({}, mode)

    def given(self, words: Sequence[str]) -> Open | None:
        """The factory of the pipeline with these options, None if a word is unknown."""
        known = {word: name for name, words in self.options.items() for word in words}
        chosen = {known.get(word, ""): word for word in words}
        if "" in chosen or len(chosen) < len(words) or not words:
            return None
        return lambda mode: self.make(chosen, mode)


def with_draws(make: Callable[[int], Pipeline], usual: int, most: int) -> WithOptions:
    """A factory of pipelines that take a number of draws."""
    return WithOptions(
        lambda options, mode: make(int(options.get("draws", usual))),
        {"draws": [str(n) for n in range(1, most + 1)]},
        f"1 to {most} draws",
    )


def _resolve_pipeline(plain: str) -> Open:
    found = _OPTIONS.fullmatch(plain)
    if found is None or plain in pipelines:
        return pipelines[plain]
    made, words = pipelines[found[1]], found[2].split()
    if not isinstance(made, WithOptions):
        raise Problem(f"'{plain}': the pipeline '{found[1]}' takes no options")
    given = made.given(words)
    if given is None:
        raise Problem(f"'{plain}': the pipeline '{found[1]}' takes {made.takes}")
    return given


_OPTIONS = re.compile(r"([^()]+)\(([^()]*)\)")


def in_mode(name: str, mode: Mode) -> str:
    """The name of a pipeline with the mode of a study, unless it has one of its own."""
    return name if "@" in name or mode == "recommended" else f"{name}@{mode}"


def unheard(asks: Iterable[Ask], heard: Heard) -> list[Ask]:
    """The questions without an answer, each once."""
    return [ask for ask in dict.fromkeys(asks) if ask not in heard]


def drawn(view: View, draw: int) -> View:
    """The view of a further draw, the first of which is the view itself."""
    if not draw:
        return view
    name = f"{view.name}, draw {draw + 1}"
    return replace(view, name=name, repeat=view.repeat + DRAWN_APART * draw)


def meant(answer: Answer, order: Sequence[Rank]) -> tuple[Rank, ...]:
    """The class of each slot, then the classes not offered; `order` is the view's own."""
    ranks = answer.ranks or tuple(order)
    return *ranks, *(rank for rank in sorted(order) if rank not in ranks)


def by_slot(answer: Answer, n_classes: int) -> tuple[float, ...] | None:
    """The probabilities of slots, 0 at those that were not offered."""
    if answer.probabilities is None:
        return None
    return *answer.probabilities, *(0.0,) * (n_classes - len(answer.probabilities))


def decided(answer: Answer, order: Sequence[Rank]) -> Decision:
    """Take one answer for the decision, its probabilities by class instead of by slot."""
    p, by_class = by_slot(answer, len(order)), None
    if p is not None:
        placed = sorted(zip(meant(answer, order), p, strict=True))
        by_class = tuple(chance for _, chance in placed)
    return Decision(
        answer.rank,
        answer.slot,
        answer.fault,
        probabilities=by_class,
        label_mass=answer.label_mass,
    )


@dataclass(frozen=True)
class ByItem:
    """Ask some questions about every item, all at once, and settle it by their answers."""

    traits: Traits
    about: Callable[[Item, Asked], Sequence[Ask]]
    join: Callable[[Asked, Sequence[Sequence[Answer]]], Sequence[Decision]]

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return () if heard else [ask for item in panel.items for ask in self.about(item, panel)]

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        answers = [[heard[ask] for ask in self.about(item, panel)] for item in panel.items]
        return self.join(panel, answers)


def pointwise(traits: Traits) -> ByItem:
    """One prompt, one answer: the answer is the decision."""
    return ByItem(
        traits,
        lambda item, panel: [Ask(item, panel.view)],
        lambda panel, answers: [decided(one, panel.view.label_order) for (one,) in answers],
    )


_POINTWISE = Traits("one prompt with all demonstrations, one answer", takes_numbers=True)
pipelines.add("pointwise", lambda mode: pointwise(_POINTWISE))


def table_of(answers: Iterable[Answer], n_classes: int) -> Floats:
    """Answers x slots, NaN where a reply had no probabilities."""
    rows = [by_slot(answer, n_classes) or (np.nan,) * n_classes for answer in answers]
    return np.array(rows, dtype=np.float64).reshape(len(rows), n_classes)


def decisions(
    choice: AveragedRanks, answers: Sequence[Sequence[Answer]], p: Floats | None = None
) -> list[Decision]:
    """The chosen classes; an item without one gets the fault of one of its answers."""
    found = []
    for place, some in enumerate(answers):
        rank = int(choice.ranks[place])
        masses = [answer.label_mass for answer in some if answer.label_mass is not None]
        found.append(
            Decision(
                rank,
                fault=None if rank else first_fault(some),
                tie_decided=bool(choice.tie_decided[place]),
                probabilities=tuple(p[place].tolist()) if p is not None and rank else None,
                label_mass=min(masses, default=None),
            )
        )
    return found


def first_fault(answers: Iterable[Answer]) -> Fault:
    return next((answer.fault for answer in answers if answer.fault), "unparsed")


# --- ties -------------------------------------------------------------------------------------


def precedence(items: Sequence[Item], panel: Asked) -> Ranks:
    """Tie-breaking order of classes, items x classes: the smallest is taken.

    It is the order of their content: of the chosen text, or else of its name. A
    rank would be a position where options or answers stand in the order in which they were given.
    """
    if panel.places is None:
        own = _sorted_positions(
            [_rank_sort_name(rank, panel) for rank in range(1, panel.n_classes + 1)]
        )
        return np.broadcast_to(own, (len(items), panel.n_classes))
    return np.stack(
        [_sorted_positions(_option_contents(item, panel, panel.places)) for item in items]
    )


def _sorted_positions(contents: Sequence[str]) -> Ranks:
    """The place of each text among all of them, sorted."""
    order = sorted(range(len(contents)), key=lambda place: (contents[place], place))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def _option_contents(item: Item, panel: Asked, places: Places) -> list[str]:
    found = []
    for rank in range(1, panel.n_classes + 1):
        field = places.favoured(rank)
        text = "" if field is None else item.fields.get(places.fields[field], "")
        found.append(text or _rank_sort_name(rank, panel))
    return found


def _rank_sort_name(rank: Rank, panel: Asked) -> str:
    return panel.scale.name(rank).casefold() if panel.scale else f"{rank:09d}"


def is_ordered(panel: Asked) -> bool:
    """Whether some classes are higher than others, in whatever order answers are shown."""
    if panel.places is not None:
        mirrored = tuple(range(panel.n_classes, 0, -1))
        return panel.places.kind == "pair" and panel.places.meanings((1, 0)) == mirrored
    return panel.scale is None or not panel.scale.nominal
