"""The probes: each varies one positional axis; the orders of demonstrations and fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from math import factorial
from typing import Any

from flipmeter.chance import shuffled
from flipmeter.registry import Registry
from flipmeter.types import Contrast, Item, PlaceKind, Places, Rank, Task, View

Demos = tuple[Item, ...]
Order = Callable[[Demos, int], Demos]

RANDOM_OFFSET = 1_000
"""Added to the demo seed for the order `random`, so that it is independent of `base`."""
TRIES = 64

demo_orders: Registry[Order] = Registry("demo order")

PlaceOrder = Callable[[int], tuple[int, ...]]
"""A number of places -> which field, counted from 0, each of them shows."""

place_orders: Registry[PlaceOrder] = Registry("place order")
MOST_PLACES = 26
"""As many places as there are letters."""
MOST_PERMUTED = 4
"""Up to so many places all orders are shown, of more a seeded sample as large."""


@place_orders.register("base")
def as_given(n_places: int) -> tuple[int, ...]:
    """Show every field where it stands."""
    return tuple(range(n_places))


@place_orders.register("swapped")
def swapped(n_places: int) -> tuple[int, ...]:
    """Show the fields from the last to the first: two of them change places."""
    return tuple(range(n_places))[::-1]


def _rotated_order(n_places: int, turn: int) -> tuple[int, ...]:
    return tuple((place + turn) % n_places for place in range(n_places))


def _permuted_order(n_places: int, number: int) -> tuple[int, ...]:
    if n_places <= MOST_PERMUTED:
        orders = list(permutations(range(n_places)))
        return orders[number % len(orders)]
    return shuffled(range(n_places), "place order", number, name=str)


for _turn in range(1, MOST_PLACES):
    place_orders.add(f"rotated_{_turn}", partial(_rotated_order, turn=_turn))
for _number in range(1, factorial(MOST_PERMUTED)):
    place_orders.add(f"permuted_{_number}", partial(_permuted_order, number=_number))


def distinct(views: Sequence[View], n_places: int) -> list[View]:
    """The views that differ when this many fields may change places: 4 have only 4 rotations."""
    found: dict[View, View] = {}
    for view in views:
        fields = "-".join(map(str, place_orders[view.place_order](n_places)))
        found.setdefault(replace(view, name="", place_order=fields), view)
    return list(found.values())


@demo_orders.register("base")
def base(demos: Demos, seed: int) -> Demos:
    """Keep the sampler's order: a class-blind shuffle under the demo seed."""
    return demos


@demo_orders.register("ascending")
def ascending(demos: Demos, seed: int) -> Demos:
    """Put the lowest class first; inside a class the sampler's order stays."""
    return tuple(sorted(demos, key=lambda demo: demo.rank))


@demo_orders.register("descending")
def descending(demos: Demos, seed: int) -> Demos:
    """Put the highest class first; inside a class the sampler's order stays."""
    return tuple(sorted(demos, key=lambda demo: -demo.rank))


@demo_orders.register("random")
def random(demos: Demos, seed: int) -> Demos:
    """A new shuffle, drawn again while it equals another order.

    With one demonstration of each of two classes there is no fourth order: the collision stays,
    the prompts are equal, and the contrast is reported as "not identified".
    """
    taken = {base(demos, seed), ascending(demos, seed), descending(demos, seed)}
    order = demos
    for attempt in range(TRIES):
        order = shuffled(
            demos, "demo order", seed + RANDOM_OFFSET, attempt, name=lambda demo: demo.text
        )
        if order not in taken:
            break
    return order


Turn = tuple[int, ...]
"""A move of what a named order shows: position p shows what stood at `turn[p]`, () for none."""


def order_demos(demos: Sequence[Item], order: str, seed: int, turn: Turn = ()) -> Demos:
    """The demonstrations in a named order, moved once more."""
    named = demo_orders[order](tuple(demos), seed)
    return tuple(named[place] for place in turn) if turn else named


def show(item: Item, task: Task, order: str, turn: Turn = ()) -> tuple[Item, tuple[Rank, ...]]:
    """An item with its fields in a named order of places, and what each class means in it."""
    places = task.places
    if places is None or (order == "base" and not turn):
        return item, tuple(task.scale.ranks)
    fields = place_order(item, places, order, turn)
    return item.exchanged(places, fields), places.meanings(fields)


def place_order(item: Item, places: Places, order: str, turn: Turn = ()) -> tuple[int, ...]:
    """The field shown in each place in a named order, moved once more."""
    named = place_orders[order](places.n_filled(item))
    return tuple(named[place] for place in turn) if turn else named


LabelOrder = tuple[Rank, ...]


def natural(n_classes: int) -> LabelOrder:
    return tuple(range(1, n_classes + 1))


def reversed_order(n_classes: int) -> LabelOrder:
    return tuple(range(n_classes, 0, -1))


@dataclass(frozen=True)
class Probe:
    """A positional axis: its views, the base first, and the contrasts that they make.

    One that `moves` fields of an item needs a dataset that declares such fields.
    """

    name: str
    about: str
    views: Callable[[int], tuple[View, ...]]
    contrasts: tuple[Contrast, ...]
    needs_demos: bool = True
    moves: PlaceKind | None = None


probes: Registry[Probe] = Registry("probe")


def base_view(n_classes: int) -> View:
    return View("base", natural(n_classes))


def _changed_views(**others: Mapping[str, Any]) -> Callable[[int], tuple[View, ...]]:
    """The base view, and others by their names with what each changes in it."""

    def views(n_classes: int) -> tuple[View, ...]:
        base = base_view(n_classes)
        return base, *(replace(base, name=name, **changed) for name, changed in others.items())

    return views


def _label_order(n_classes: int) -> tuple[View, ...]:
    return base_view(n_classes), View("reversed", reversed_order(n_classes))


def _register_probe(
    name: str,
    about: str,
    views: Callable[[int], tuple[View, ...]],
    contrasts: Mapping[str, tuple[str, tuple[str, ...]]],
    *,
    needs_demos: bool = False,
    moves: PlaceKind | None = None,
) -> None:
    """Add a probe with its contrasts: what each compares, and the views that it is about."""
    made = tuple(
        Contrast(contrast, shown, said, name, is_open=moves is not None and moves != "pair")
        for contrast, (said, shown) in contrasts.items()
    )
    probes.add(name, Probe(name, about, views, made, needs_demos=needs_demos, moves=moves))


_register_probe(
    "label_order",
    "the label list as it is, and reversed",
    _label_order,
    {"P1": ("label list reversed", ("base", "reversed"))},
)
_DEMO_ORDERS = ("ascending", "descending", "random")
_register_probe(
    "demo_order",
    "the demonstrations in base, ascending, descending and random order",
    _changed_views(**{order: {"demo_order": order} for order in _DEMO_ORDERS}),
    {
        "P2a": ("demos random / ascending", ("random", "ascending")),
        "P2b": ("demos random / descending", ("random", "descending")),
        "P2c": ("demos reshuffled", ("base", "random")),
        "P2": ("any order of the demos", ("base", *_DEMO_ORDERS)),
    },
    needs_demos=True,
)
_register_probe(
    "placement",
    "the demonstrations before, after and around the query",
    _changed_views(after={"placement": "after"}, split={"placement": "split"}),
    {
        "P3a": ("demos after the query", ("base", "after")),
        "P3b": ("demos around the query", ("base", "split")),
        "P3": ("any placement of the demos", ("base", "after", "split")),
    },
    needs_demos=True,
)
_register_probe(
    "criterion_order",
    "the criteria of a rubric as written, reversed, and the first one last",
    _changed_views(
        criteria_reversed={"criterion_order": "reversed"},
        criteria_rotated={"criterion_order": "rotated"},
    ),
    {
        "P4a": ("criteria reversed", ("base", "criteria_reversed")),
        "P4b": ("criteria rotated", ("base", "criteria_rotated")),
        "P4": ("any order of the criteria", ("base", "criteria_reversed", "criteria_rotated")),
    },
)
_register_probe(
    "system_user",
    "the instructions in the system message, and at the start of the user's",
    _changed_views(in_user={"instructions": "user"}),
    {"P5": ("instructions in the user message", ("base", "in_user"))},
)
_register_probe(
    "pair_order",
    "the two answers that a judge compares as given, and swapped",
    _changed_views(swapped={"place_order": "swapped"}),
    {"P6": ("answers swapped", ("base", "swapped"))},
    moves="pair",
)


def _add_moving(
    name: str, about: str, contrast: str, moves: PlaceKind, kind: str, prefix: str = ""
) -> None:
    """Add a probe that moves more than two fields, as many ways as differ."""
    orders = [order for order in place_orders.so_far if order.startswith(kind)]
    shown = {f"{prefix}{order}": {"place_order": order} for order in orders}
    said = f"{moves} change places", ("base", *shown)
    _register_probe(name, about, _changed_views(**shown), {contrast: said}, moves=moves)


_add_moving(
    "option_order", "the options of a question in all rotations", "P7", "options", "rotated_"
)
_add_moving(
    "option_permutations",
    "the options of a question in all orders, of more than 4 in 24 of them",
    "P7x",
    "options",
    "permuted_",
)
_add_moving(
    "candidate_order",
    "three or more answers in all rotations",
    "P7c",
    "candidates",
    "rotated_",
    "candidates_",
)


def contrasts_of(names: Sequence[str], *, includes_base: bool = True) -> tuple[Contrast, ...]:
    """The contrasts of some probes; an aggregate of orders may leave the base order out.

    Where only two views would be left there is no aggregate: placements keep theirs, whose base is
    "before".
    """
    return tuple(
        replace(
            contrast,
            views=tuple(view for view in contrast.views if view != "base"),
            about=f"{contrast.about}, base left out",
        )
        if not (includes_base or contrast.is_open or len(contrast.views) < 4)
        else contrast
        for name in names
        for contrast in probes[name].contrasts
    )


def shown_in(contrasts: Iterable[Contrast], views: Collection[str]) -> tuple[Contrast, ...]:
    """Contrasts about the views that there are, where they name all that there may be."""
    found = (
        replace(c, views=tuple(view for view in c.views if view in views)) if c.is_open else c
        for c in contrasts
    )
    return tuple(c for c in found if len(c.views) > 1)


def expand(
    names: Sequence[str],
    n_classes: int,
    *,
    shots: int = 1,
    repeats: int = 1,
    repeated: Sequence[str] = ("base", "reversed"),
    n_places: int | None = None,
) -> tuple[View, ...]:
    """The distinct views of some probes, the base first, repeats of a view after it.

    `n_places` is how many fields may change places; without it all orders of places count.
    """
    views = {"base": base_view(n_classes)}
    for name in names:
        probe = probes[name]
        if shots or not probe.needs_demos:
            found = probe.views(n_classes)
            is_counted = probe.moves and n_places is not None
            kept = distinct(found, n_places or 0) if is_counted else found
            views.update((view.name, view) for view in kept)
    return tuple(
        replace(view, repeat=repeat)
        for view in views.values()
        for repeat in range(repeats if view.name in repeated or "all" in repeated else 1)
    )
