"""Probabilities by class -> decisions: the best class; content breaks ties, never a place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flipmeter.decide.debiasers.averaging import AveragedRanks
from flipmeter.decide.pipelines.pipeline import Asked, by_slot
from flipmeter.decide.spaces import Floats, Ranks
from flipmeter.types import Answer, Decision, Fault, Item, Places, Rank


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
        own = _placed([_name(rank, panel) for rank in range(1, panel.n_classes + 1)])
        return np.broadcast_to(own, (len(items), panel.n_classes))
    return np.stack([_placed(_contents(item, panel, panel.places)) for item in items])


def _placed(contents: Sequence[str]) -> Ranks:
    """The place of each text among all of them, sorted."""
    order = sorted(range(len(contents)), key=lambda place: (contents[place], place))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def _contents(item: Item, panel: Asked, places: Places) -> list[str]:
    found = []
    for rank in range(1, panel.n_classes + 1):
        field = places.favoured(rank)
        text = "" if field is None else item.fields.get(places.fields[field], "")
        found.append(text or _name(rank, panel))
    return found


def _name(rank: Rank, panel: Asked) -> str:
    return panel.scale.name(rank).casefold() if panel.scale else f"{rank:09d}"


def is_ordered(panel: Asked) -> bool:
    """Whether some classes are higher than others, in whatever order answers are shown."""
    if panel.places is not None:
        mirrored = tuple(range(panel.n_classes, 0, -1))
        return panel.places.kind == "pair" and panel.places.meanings((1, 0)) == mirrored
    return panel.scale is None or not panel.scale.nominal
