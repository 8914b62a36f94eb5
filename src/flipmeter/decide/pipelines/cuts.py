"""Pipelines of yes-no questions: about the cuts of a scale, or about one class at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Literal

import numpy as np

from flipmeter.decide.debiasers.averaging import choose
from flipmeter.decide.monotone import Middle, class_shares, falling, middle_classes
from flipmeter.decide.pipelines.choosing import first_fault, is_ordered, precedence
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Heard,
    Traits,
    WithOptions,
    pipelines,
    unheard,
)
from flipmeter.decide.spaces import LEAST
from flipmeter.types import NO_CLASS, Answer, Ask, Decision, Item, Mode, Rank, View

IS, IS_NOT = 2, 1
"""Meanings of an answer: the item is above the cut (or the label fits), or not."""


@dataclass(frozen=True)
class Leaning:
    """Probability that the answers to one question affirm it.

    It is based on `n_read` of them; None if one polarity has no answer.
    """

    p: float | None
    n_read: int


@dataclass(frozen=True)
class YesNo:
    """Put a question about some classes in both polarities and both orders of the answers.

    Of each the log-odds of "it is so" count, which are those of yes upwards and of no downwards:
    half the difference of the log-odds of yes, so that a liking for yes which is the same both ways
    cancels. Without probabilities answers count as votes.
    """

    traits: Traits
    what: Literal["cut", "label"]
    ranks: Callable[[Item, Asked], Sequence[Rank]]
    decide: Callable[[Item, Asked, Mapping[Rank, Leaning]], Decision]

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._asks(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        return [self._settled(item, panel, heard) for item in panel.items]

    def _settled(self, item: Item, panel: Asked, heard: Heard) -> Decision:
        answers = [heard[ask] for ask in self._asks(item, panel)]
        each = len(_ways(panel.view))
        found = {
            rank: leaning(answers[at * each : (at + 1) * each], panel.view)
            for at, rank in enumerate(self.ranks(item, panel))
        }
        masses = [answer.label_mass for answer in answers if answer.label_mass is not None]
        if any(one.p is None for one in found.values()):
            return Decision(NO_CLASS, fault=first_fault(answers))
        decision = self.decide(item, panel, found)
        return replace(decision, label_mass=min(masses, default=None))

    def _asks(self, item: Item, panel: Asked) -> list[Ask]:
        # One option is shown at a time, wherever the view has it: none of them is moved.
        view = replace(panel.view, place_order="base", place_turn=())
        return [
            Ask(item, view, f"{self.what} {rank} {polarity} {order}")
            for rank in self.ranks(item, panel)
            for polarity, order in _ways(view)
        ]


def _ways(view: View) -> list[tuple[str, str]]:
    """The polarities and orders of the answers in which a view puts a question."""
    polarities = ("up", "down") if view.polarity == "both" else (view.polarity,)
    orders = ("yes_first", "no_first") if view.answer_order == "both" else (view.answer_order,)
    return list(product(polarities, orders))


def leaning(answers: Sequence[Answer], view: View) -> Leaning:
    """Put the answers to one question together: orders inside a polarity, then polarities."""
    is_scored = any(answer.probabilities is not None for answer in answers)
    read = _log_odds if is_scored else _vote
    by_polarity: dict[str, list[float]] = {polarity: [] for polarity, _ in _ways(view)}
    for (polarity, _), answer in zip(_ways(view), answers, strict=True):
        value = read(answer)
        if value is not None:
            by_polarity[polarity].append(value)
    n_read = sum(map(len, by_polarity.values()))
    if not all(by_polarity.values()):
        return Leaning(None, n_read)
    mean = fmean(sorted(fmean(sorted(some)) for some in by_polarity.values()))
    return Leaning(_share(mean) if is_scored else mean, n_read)


def _log_odds(answer: Answer) -> float | None:
    """The log-odds of "it is so", None for a reply without probabilities."""
    if answer.probabilities is None:
        return None
    by_rank = dict(zip(answer.ranks, answer.probabilities, strict=True))
    return math.log(max(by_rank[IS], LEAST)) - math.log(max(by_rank[IS_NOT], LEAST))


def _vote(answer: Answer) -> float | None:
    return None if not answer.rank else float(answer.rank == IS)


def _share(log_odds: float) -> float:
    """The probability with these log-odds, as exact below a half as above it."""
    small = math.exp(-abs(log_odds))
    return (1 if log_odds > 0 else small) / (1 + small)


# --- an ordered scale by its cuts -------------------------------------------------------------


def _cuts(item: Item, panel: Asked) -> range:
    """The upper class of every cut."""
    return range(2, panel.n_classes + 1)


def by_cuts(
    item: Item, panel: Asked, found: Mapping[Rank, Leaning], middle: Middle = "median"
) -> Decision:
    """The class in the middle of the probabilities that monotone cuts give."""
    above = falling([one.p or 0.0 for one in found.values()], [o.n_read for o in found.values()])
    among = middle_classes(above, middle)
    first = precedence([item], panel)[0]
    rank = min(among, key=lambda rank: first[rank - 1])
    return Decision(rank, tie_decided=len(among) > 1, probabilities=class_shares(above))


# --- one class at a time ----------------------------------------------------------------------


def _classes(item: Item, panel: Asked) -> Sequence[Rank]:
    """The classes that an item can have."""
    if panel.places is None:
        return range(1, panel.n_classes + 1)
    return panel.places.offered(panel.n_places(item))


def by_classes(item: Item, panel: Asked, found: Mapping[Rank, Leaning]) -> Decision:
    """The class that fits best, by probabilities that sum to 1 over the classes."""
    fits = {rank: one.p or 0.0 for rank, one in found.items()}
    total = math.fsum(fits.values())
    even = 1 / len(fits)
    shares = [
        (fits[rank] / total if total else even) if rank in fits else 0.0
        for rank in range(1, panel.n_classes + 1)
    ]
    first, ordered = precedence([item], panel), is_ordered(panel)
    choice = choose(np.array([shares]), precedence=first, ordered=ordered)
    tie = bool(choice.tie_decided[0])
    return Decision(int(choice.ranks[0]), tie_decided=tie, probabilities=tuple(shares))


# --- by name ----------------------------------------------------------------------------------

_NO_LIST = {"label_order": "no label list"}
_NO_DEMOS = dict.fromkeys(("demo_order", "placement"), "no demonstrations")
_SHOWS = frozenset({"polarity", "answer_order"})
_WAYS = "in both polarities and both orders of yes and no"


def _traits(about: str, paradigm: str, options: Mapping[str, str], **more: object) -> Traits:
    """Traits of a pipeline of yes-no questions; demonstrations come only before the query."""
    is_shown = "demos" in options
    traits = Traits(
        about,
        f"{paradigm}_shown" if is_shown else paradigm,
        consumes=frozenset({"placement"}) if is_shown else frozenset(),
        needs_demos=is_shown,
        wants_scores=True,
        forgets=_NO_LIST if is_shown else _NO_LIST | _NO_DEMOS,
        shows=_SHOWS,
    )
    return replace(traits, **more)  # type: ignore[arg-type]  # names of its fields


def _cumulative(options: Mapping[str, str], mode: Mode) -> YesNo:
    middle: Middle = "expected" if "middle" in options else "median"
    about = (
        f"one question for each cut of the scale, {_WAYS}; 4 (M - 1) calls. Options: expected "
        "(rank instead of the median), demos (shown with their answer to the cut)"
    )

    def decide(item: Item, panel: Asked, found: Mapping[Rank, Leaning]) -> Decision:
        return by_cuts(item, panel, found, middle)

    traits = _traits(about, "cumulative", options, needs_order=True)
    return YesNo(traits, "cut", _cuts, decide)


def _labelwise(options: Mapping[str, str], mode: Mode) -> YesNo:
    about = (
        f"one question for each class, or for each option by itself, {_WAYS}; 4 M calls. "
        "Option: demos (shown with their answer)"
    )
    traits = _traits(about, "labelwise", options)
    if "demos" not in options:
        alone = {"place_order": "one option in each prompt"}
        traits = replace(traits, forgets={**traits.forgets, **alone})
    return YesNo(traits, "label", _classes, by_classes)


pipelines.add(
    "cumulative",
    WithOptions(_cumulative, {"middle": ("expected",), "demos": ("demos",)}),
)
pipelines.add("labelwise", WithOptions(_labelwise, {"demos": ("demos",)}))
