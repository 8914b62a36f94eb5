"""View -> views: the sets of orders that a pipeline averages over, and what such a set joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from flipmeter.decide.spaces import rotations
from flipmeter.registry import Registry
from flipmeter.types import View

Turn = tuple[int, ...]
"""A move of positions: position p shows what stood at `turn[p]`, counted from 0."""

symmetries: Registry[Callable[[int], tuple[Turn, ...]]] = Registry("set of orders")
"""A number of positions -> the turns of a set."""


@symmetries.register("reversal")
def reversal(n: int) -> tuple[Turn, ...]:
    """As it is and from the end: 2 orders."""
    return _distinct([tuple(range(n)), tuple(range(n))[::-1]])


@symmetries.register("rotations")
def all_rotations(n: int) -> tuple[Turn, ...]:
    """Turned round, so that everything stands in every position once: n orders."""
    return tuple(tuple(rank - 1 for rank in order) for order in rotations(n))


@symmetries.register("dihedral")
def dihedral(n: int) -> tuple[Turn, ...]:
    """All rotations, and these from the end: 2n orders, the smallest group with both."""
    turned = all_rotations(n)
    return _distinct([*turned, *(turn[::-1] for turn in turned)])


@symmetries.register("williams")
def williams(n: int) -> tuple[Turn, ...]:
    """Everything follows everything else equally often: n orders, or 2n where n is odd."""
    first = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(n)]
    rows = [tuple((place + row) % n for place in first) for row in range(n)]
    return _distinct([*rows, *(row[::-1] for row in rows)] if n % 2 else rows)


def _distinct(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Each once, for few positions have few orders."""
    return tuple(dict.fromkeys(turns))


@dataclass(frozen=True)
class Turns:
    """The orders that are put together for a view: a set each for labels, demonstrations, places.

    "" leaves an axis as the view has it. The sets act on what the view shows, so that two views are
    joined exactly where they lead to the same orders.
    """

    labels: str = ""
    demos: str = ""
    places: str = ""

    def __str__(self) -> str:
        named = {axis: name for axis, name in vars(self).items() if name}
        return " ".join(f"{axis}:{name}" for axis, name in named.items())

    def __call__(self, view: View, n_demos: int = 0, n_places: int = 0) -> tuple[View, ...]:
        """The views that are put together, each once."""
        sizes = len(view.label_order), n_demos, n_places
        named = zip(vars(self).values(), sizes, strict=True)
        sets = [symmetries[name](n) if name and n else ((),) for name, n in named]
        return tuple(dict.fromkeys(_turned(view, *each) for each in product(*sets)))


def _turned(view: View, labels: Turn, demos: Turn, places: Turn) -> View:
    """A view after a move of its labels, its demonstrations and its places."""
    order = _moved(view.label_order, labels)
    shown = replace(
        view,
        label_order=order,
        demo_turn=_after(view.demo_turn, demos),
        place_turn=_after(view.place_turn, places),
    )
    return replace(shown, name=", ".join([view.name, *_named(view, shown)]))


def _after(before: Turn, turn: Turn) -> Turn:
    """Two moves as one, () for none."""
    both = _moved(before, turn) if before else turn
    return () if both == tuple(range(len(both))) else both


def _moved(shown: tuple[int, ...], turn: Turn) -> tuple[int, ...]:
    return tuple(shown[place] for place in turn) if turn else shown


def _named(view: View, shown: View) -> Iterator[str]:
    """Say what a view moves that another leaves where it is."""
    if shown.label_order != view.label_order:
        yield f"labels {'-'.join(map(str, shown.label_order))}"
    if shown.demo_turn != view.demo_turn:
        yield f"demos {_counted(shown.demo_turn)}"
    if shown.place_turn != view.place_turn:
        yield f"places {_counted(shown.place_turn)}"


def _counted(turn: Turn) -> str:
    return "-".join(str(place + 1) for place in turn) or "as they were"
