"""The orders in which the same demonstrations, and the same fields of an item, can be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import factorial

from flipmeter.base.chance import shuffled
from flipmeter.registry import Registry
from flipmeter.types import Item, Places, Rank, Task, View

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


def _rotated(n_places: int, turn: int) -> tuple[int, ...]:
    return tuple((place + turn) % n_places for place in range(n_places))


def _permuted(n_places: int, number: int) -> tuple[int, ...]:
    if n_places <= MOST_PERMUTED:
        orders = list(permutations(range(n_places)))
        return orders[number % len(orders)]
    return shuffled(range(n_places), "place order", number, name=str)


for _turn in range(1, MOST_PLACES):
    place_orders.add(f"rotated_{_turn}", partial(_rotated, turn=_turn))
for _number in range(1, factorial(MOST_PERMUTED)):
    place_orders.add(f"permuted_{_number}", partial(_permuted, number=_number))


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
