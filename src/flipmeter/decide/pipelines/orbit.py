"""Pipelines that average probabilities over a set of orders, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flipmeter.decide.debiasers.averaging import average_probabilities, choose
from flipmeter.decide.pipelines.choosing import decisions, is_ordered, precedence, table_of
from flipmeter.decide.pipelines.pipeline import (
    Asked,
    Heard,
    Open,
    Traits,
    WithOptions,
    meant,
    pipelines,
    unheard,
)
from flipmeter.decide.symmetries import Turns
from flipmeter.types import Ask, Decision, Item, Mode, PlaceKind, View

Mean = Literal["geometric", "arithmetic"]
Views = Callable[[View, int, int], tuple[View, ...]]
"""The orders combined for a view, given the numbers of demonstrations and places."""


@dataclass(frozen=True)
class Orbit:
    """Ask under several views and take the mean of the probabilities by class."""

    traits: Traits
    views: Views
    mean: Mean = "geometric"
    mode: Mode = "recommended"

    def asks(self, panel: Asked, heard: Heard) -> Sequence[Ask]:
        return unheard((ask for item in panel.items for ask in self._asks(item, panel)), heard)

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
        asks = [self._asks(item, panel) for item in items]
        answers = [[heard[ask] for ask in some] for some in asks]
        orders = [[meant(heard[ask], ask.view.label_order) for ask in some] for some in asks]
        flat = table_of((answer for some in answers for answer in some), panel.n_classes)
        p = flat.reshape(len(items), -1, panel.n_classes)
        averaged = average_probabilities(p, orders, mean=self.mean)
        first = precedence(items, panel)
        choice = choose(averaged, mode=self.mode, precedence=first, ordered=is_ordered(panel))
        return decisions(choice, answers, averaged)

    def _asks(self, item: Item, panel: Asked) -> list[Ask]:
        views = self.views(panel.view, len(panel.demos), panel.n_places(item))
        return [Ask(item, view) for view in views]


def orbit(
    about: str,
    turns: Turns,
    *,
    consumes: frozenset[str] = frozenset(),
    moves: PlaceKind | None = None,
) -> Open:
    """A pipeline that averages geometrically over the orders of some turns."""
    traits = Traits(
        about,
        consumes=consumes,
        needs_demos=bool(turns.demos),
        needs_scores=True,
        moves=moves,
        turns=turns,
    )
    return lambda mode: Orbit(traits, turns, mode=mode)


# --- by name ----------------------------------------------------------------------------------

_SETS = ("reversal", "rotations", "dihedral", "williams")
_AXES = ("labels", "demos", "places")
_MEANS: tuple[Mean, ...] = ("geometric", "arithmetic")


def _chosen(options: Mapping[str, str], mode: Mode) -> Orbit:
    """The average over what the options name, over both orders of the labels if they name none."""
    named = {axis: options[axis].partition(":")[2] for axis in _AXES if axis in options}
    turns = Turns(**named) if named else Turns(labels="reversal")
    mean = next(one for one in _MEANS if one == options.get("mean", "geometric"))
    about = (
        f"probabilities over a set of orders ({turns}), {mean} mean; one call for each order. "
        "Options: labels:, demos: or places: with reversal, rotations, dihedral or williams"
    )
    traits = Traits(about, needs_demos=bool(turns.demos), needs_scores=True, turns=turns)
    return Orbit(traits, turns, mean, mode)


_OPTIONS: dict[str, Sequence[str]] = {
    **{axis: tuple(f"{axis}:{name}" for name in _SETS) for axis in _AXES},
    "mean": _MEANS,
}
pipelines.add("orbit", WithOptions(_chosen, _OPTIONS))
