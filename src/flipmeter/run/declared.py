"""Condition -> what its pipeline declares: which views lead it to the same prompts, and why.

Two views are declared to agree where the sets of what they show are equal. That is computed from
the orders themselves and never taken from a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

from flipmeter.decide import open_pipeline
from flipmeter.probe import base_view, order_demos, place_order, probes
from flipmeter.types import Condition, Item, View, canonical_json

AXES = ("label_order", "demo_order", "placement", "place_order")
"""The axes of a view that a probe moves."""


_REMOVED = {"polarity": "both", "answer_order": "both", "grouping": 0}
"""Fields that views once had: stored digests are of these too."""


def declares(condition: Condition, probe: str, item: Item) -> bool:
    """Whether a pipeline declares that all views of a probe agree on an item."""
    views = probes[probe].views(len(condition.task.scale))
    found = {orbits_of(replace(condition, view=view))(item) for view in views}
    return len(found) == 1 and "" not in found


def why_fixed(condition: Condition) -> str:
    """The reason why what the view of a condition moves cannot matter, as its pipeline declares."""
    view, traits = condition.view, open_pipeline(condition.rater.pipeline).traits
    base = base_view(len(view.label_order))
    moved = [axis for axis in AXES if getattr(view, axis) != getattr(base, axis)]
    reasons = [traits.why(axis) for axis in moved]
    return ", ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def orbits_of(condition: Condition) -> Callable[[Item], str]:
    """A function that finds an item's orbit: items that fill as many places are shown alike.

    It digests everything shown of such an item; "" if nothing is declared.
    """
    traits, places = open_pipeline(condition.rater.pipeline).traits, condition.task.places
    turns, known = traits.turns, dict[int, str]()
    if turns is None:
        return lambda item: ""

    def find(item: Item) -> str:
        size = 0 if places is None else places.n_filled(item)
        if size not in known:
            views = turns(condition.view, len(condition.demos), size)
            shown = {_shown(view, condition, item) for view in views}
            known[size] = hashlib.sha256(" ".join(sorted(shown)).encode()).hexdigest()[:16]
        return known[size]

    return find


def _shown(view: View, condition: Condition, item: Item) -> str:
    """The content of a prompt under a view, in order."""
    places = condition.task.places
    demos = order_demos(condition.demos, view.demo_order, condition.seed, view.demo_turn)
    moved = place_order(item, places, view.place_order, view.place_turn) if places else ()
    found = {
        **vars(view),
        **_REMOVED,
        "demo_order": [demo.id for demo in demos],
        "place_order": moved,
    }
    resolved = {"name", "repeat", "demo_turn", "place_turn"}  # by the two above, or no position
    return canonical_json({k: v for k, v in found.items() if k not in resolved})
