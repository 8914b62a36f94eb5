"""Pipelines that average over a set of orders, or over draws of one prompt.

Draws are the popular way to steady a rater: raters that cannot flip are compared with them at equal
cost. They rule nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from flipmeter.chance import shuffled
from flipmeter.pipelines.averaging import average_probabilities, batch_prior, choose, divide
from flipmeter.pipelines.pipeline import (
    Asked,
    ByItem,
    Heard,
    Open,
    Traits,
    WithOptions,
    decisions,
    drawn,
    is_ordered,
    meant,
    pipelines,
    precedence,
    table_of,
    unheard,
    with_draws,
)
from flipmeter.pipelines.symmetries import Floats, Turns
from flipmeter.types import Answer, Ask, Decision, Item, Mode, PlaceKind, View

Mean = Literal["geometric", "arithmetic"]
Learns = Literal["", "batch", "apart"]
"""The items whose mean is divided out: none, those that are rated, or some set apart."""
Views = Callable[[View, int, int], tuple[View, ...]]
"""The orders combined for a view, given the numbers of demonstrations and places."""


@dataclass(frozen=True)
class Orbit:
    """Ask under several views and take the mean of the probabilities by class.

    One that learns divides it by its mean over a batch of items, which is the same for every view
    that leads to the same prompts: a preferred class is taken out, and no flip comes in.
    """

    traits: Traits
    views: Views
    mean: Mean = "geometric"
    mode: Mode = "recommended"
    learns: Learns = ""

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        items = (*panel.items, *(panel.calibration if self.learns == "apart" else ()))
        return unheard((ask for item in items for ask in self._asks(item, panel)), heard)

    def settle(self, panel: Asked, heard: Heard) -> Sequence[Decision]:
        """Decide on items that are asked equally often at once: they may differ in places."""
        by_size: dict[int, list[Item]] = {}
        for item in panel.items:
            by_size.setdefault(panel.n_places(item), []).append(item)
        found = {
            item.id: decision
            for items in by_size.values()
            for item, decision in zip(items, self._settled(items, panel, heard), strict=True)
        }
        return [found[item.id] for item in panel.items]

    def _settled(self, items: Sequence[Item], panel: Asked, heard: Heard) -> list[Decision]:
        averaged = self._averaged(items, panel, heard)
        if self.learns:
            n_places = panel.n_places(items[0])
            apart = [one for one in panel.calibration if panel.n_places(one) == n_places]
            batch = items if self.learns == "batch" else apart
            averaged = corrected(averaged, self._averaged(batch, panel, heard))
        first = precedence(items, panel)
        choice = choose(averaged, mode=self.mode, precedence=first, ordered=is_ordered(panel))
        answers = [[heard[ask] for ask in self._asks(item, panel)] for item in items]
        return decisions(choice, answers, averaged)

    def _averaged(self, items: Sequence[Item], panel: Asked, heard: Heard) -> Floats:
        """The mean probabilities, items x classes."""
        if not items:
            return np.empty((0, panel.n_classes))
        asks = [self._asks(item, panel) for item in items]
        orders = [[meant(heard[ask], ask.view.label_order) for ask in some] for some in asks]
        flat = table_of((heard[ask] for some in asks for ask in some), panel.n_classes)
        p = flat.reshape(len(items), -1, panel.n_classes)
        return average_probabilities(p, orders, mean=self.mean)

    def _asks(self, item: Item, panel: Asked) -> list[Ask]:
        views = self.views(panel.view, len(panel.demos), panel.n_places(item))
        return [Ask(item, view) for view in views]


def corrected(p: Floats, batch: Floats) -> Floats:
    """Probabilities by class, divided by their mean over a batch; none where the batch has none."""
    return divide(p, batch_prior(batch)) if (~np.isnan(batch)).any() else np.full_like(p, np.nan)


def orbit(about: str, turns: Turns, *, moves: PlaceKind | None = None) -> Open:
    """A pipeline that averages geometrically over the orders of some turns."""
    has_demos = bool(turns.demos)
    traits = Traits(about, needs_demos=has_demos, needs_scores=True, moves=moves, turns=turns)
    return lambda mode: Orbit(traits, turns, mode=mode)


# --- by name ----------------------------------------------------------------------------------

_SETS = ("reversal", "rotations", "dihedral", "williams")
_AXES = ("labels", "demos", "places")
_MEANS: tuple[Mean, ...] = ("geometric", "arithmetic")
_LEARNS: Mapping[str, Learns] = {"": "", "batch": "batch", "calibrated": "apart"}


def _orbit_from_options(options: Mapping[str, str], mode: Mode) -> Orbit:
    """The average over what the options name, over both orders of the labels if they name none."""
    named = {axis: options[axis].partition(":")[2] for axis in _AXES if axis in options}
    turns = Turns(**named) if named else Turns(labels="reversal")
    mean = next(one for one in _MEANS if one == options.get("mean", "geometric"))
    learns = _LEARNS[options.get("prior", "")]
    about = (
        f"probabilities over a set of orders ({turns}), {mean} mean; one call for each order. "
        "Options: labels:, demos: or places: with reversal, rotations, dihedral or williams; batch "
        "or calibrated (divided by their mean over all items, or over items set apart)"
    )
    traits = Traits(
        about, needs_demos=bool(turns.demos), needs_scores=True, calibration=learns, turns=turns
    )
    return Orbit(traits, turns, mean, mode, learns)


_OPTIONS: dict[str, Sequence[str]] = {
    **{axis: tuple(f"{axis}:{name}" for name in _SETS) for axis in _AXES},
    "mean": _MEANS,
    "prior": ("batch", "calibrated"),
}
_TAKES = "; ".join(" or ".join(words) for words in _OPTIONS.values())
pipelines.add("orbit", WithOptions(_orbit_from_options, _OPTIONS, _TAKES))


USUAL_DRAWS, MOST_DRAWS = 5, 99
TEMPERATURE = 0.7


def votes(n_draws: int) -> ByItem:
    """Ask the same prompt several times, and take the class of most answers."""

    def join(panel: Asked, answers: Sequence[Sequence[Answer]]) -> list[Decision]:
        ranks = np.array([[answer.rank for answer in some] for some in answers], dtype=np.int64)
        counts = np.stack([(ranks == rank).sum(axis=-1) for rank in sorted(panel.view.label_order)])
        with np.errstate(invalid="ignore"):  # no readable draw: no class
            shares = (counts / counts.sum(axis=0)).T
        first = precedence(panel.items, panel)
        choice = choose(shares, precedence=first, ordered=is_ordered(panel))
        return decisions(choice, answers, shares)

    return ByItem(
        Traits(
            f"the same prompt several times, the most frequent class; 1 call per draw, at "
            f"temperature {TEMPERATURE} where the study is greedy",
            temperature=TEMPERATURE,
        ),
        lambda item, panel: [Ask(item, drawn(panel.view, draw)) for draw in range(n_draws)],
        join,
    )


def random_orders(n_draws: int) -> Orbit:
    """The average over label orders that are drawn for each view."""

    def views(view: View, n_demos: int, n_places: int) -> tuple[View, ...]:
        orders = (
            shuffled(view.label_order, "random orders", view.name, draw, name=str)
            for draw in range(n_draws)
        )
        return tuple(
            replace(
                view, name=f"{view.name}, labels {'-'.join(map(str, order))}", label_order=order
            )
            for order in dict.fromkeys(orders)
        )

    about = "probabilities over label orders drawn at random, geometric mean; 1 call per draw"
    return Orbit(Traits(about, needs_scores=True), views)


pipelines.add("votes", with_draws(votes, USUAL_DRAWS, MOST_DRAWS))
pipelines.add("random_orders", with_draws(random_orders, USUAL_DRAWS, MOST_DRAWS))
