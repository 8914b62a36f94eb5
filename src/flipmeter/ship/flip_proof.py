"""Card -> Card: with the cheapest pipeline that rules out flips of some probes."""

from __future__ import annotations

from collections.abc import Sequence

from flipmeter.decide import Traits, open_pipeline
from flipmeter.run.declared import declares
from flipmeter.ship.card import Card
from flipmeter.types import Item, Problem, Task

CHEAPEST = ("orbit", "orbit(places:reversal)", "orbit(places:rotations)")
"""Pipelines tried in turn: 2 calls, then as many as options."""


def flip_proof(card: Card, names: Sequence[str]) -> Card:
    """The card with a pipeline that rules out flips of some probes.

    The plain pipeline is replaced by the first that does; any other must do it itself.
    """
    if card.pipeline != "pointwise":
        if not _rules_out(card, names):
            raise Problem(
                f"the pipeline '{card.pipeline}' does not rule out flips of {', '.join(names)}; "
                "leave it out to use one that does, or list fewer probes in flip_proof"
            )
        return card
    for pipeline in CHEAPEST:
        found = card.model_copy(update={"pipeline": pipeline})
        if _fits(open_pipeline(pipeline).traits, card.task.task) and _rules_out(found, names):
            return found
    raise Problem(
        f"no pipeline rules out flips of {', '.join(names)} for this task; list fewer probes in "
        "flip_proof, or average over them instead"
    )


def _rules_out(card: Card, names: Sequence[str]) -> bool:
    condition = card.condition()
    places = condition.task.places
    filled = dict.fromkeys(places.fields if places else (), "something")
    item = Item("any", {"text": "something", **filled})
    return all(declares(condition, name, item) for name in names)


def _fits(traits: Traits, task: Task) -> bool:
    """Whether a pipeline can be asked about a task at all."""
    places = task.places
    if places is None:
        is_ordered = not task.scale.nominal or not traits.needs_order
        return is_ordered and not (traits.turns and traits.turns.places)
    if traits.turns and traits.turns.labels:
        return places.kind != "options"
    return traits.paradigm == "pointwise"
