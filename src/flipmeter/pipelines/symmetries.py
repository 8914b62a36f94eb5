"""Slots <-> classes under a view; the sets of orders that a pipeline averages over.

Arrays have the same shape everywhere: items first, then views if there are several, then slots.
`p` holds probabilities by slot, each row on the simplex, or all NaN where a reply had none.
`orders` hold the rank at each slot: one order for all rows, or one per view, or one per item and
view, whatever broadcasts to the shape of `p`. Ranks are 1 to M, and 0 is "no class".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from flipmeter.errors import Problem
from flipmeter.registry import Registry
from flipmeter.types import Rank, View

Floats = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

LEAST = 1e-44
"""No probability counts for less, and confident models go far down: a higher floor would take what
they are sure of for a preference of slots."""
FLOOR = 1e-10
"""The least weight of a slot in a prior, as in the paper."""
OFF_SIMPLEX = 1e-6
"""Tolerance of the sum of a row: engines add up in single precision."""


def by_class(p: npt.ArrayLike, orders: npt.ArrayLike) -> Floats:
    """Turn probabilities by slot into probabilities by class."""
    p = probabilities(p)
    return np.take_along_axis(p, np.argsort(label_orders(orders, p.shape), axis=-1), axis=-1)


def ranks_at(slots: npt.ArrayLike, orders: npt.ArrayLike) -> Ranks:
    """The class at each chosen slot; "no slot" becomes "no class"."""
    slots, orders = whole(slots, "slots"), whole(orders, "orders")
    n_classes = orders.shape[-1] if orders.ndim else 0
    if slots.size and slots.max() > n_classes:
        raise Problem(f"slots contain {slots.max()}, but an order has {n_classes} slots")
    orders = label_orders(orders, (*slots.shape, n_classes))
    known = np.take_along_axis(orders, np.maximum(slots, 1)[..., None] - 1, axis=-1)[..., 0]
    return np.where(slots > 0, known, 0)


def rotations(n_classes: int) -> tuple[tuple[Rank, ...], ...]:
    """The M cyclic orders, the natural one first: every class visits every slot once."""
    return tuple(
        tuple((slot + turn) % n_classes + 1 for slot in range(n_classes))
        for turn in range(n_classes)
    )


def probabilities(p: npt.ArrayLike) -> Floats:
    """Checked rows: each is on the simplex, or all NaN."""
    try:
        p = np.asarray(p, dtype=np.float64)
    except ValueError:
        raise Problem(
            "probabilities must be numbers, equally many for every item and view"
        ) from None
    if p.ndim == 0 or p.shape[-1] < 2:
        raise Problem(f"probabilities need a last axis of at least two slots; got shape {p.shape}")
    on_simplex = (p >= 0).all(axis=-1) & (np.abs(p.sum(axis=-1) - 1) <= OFF_SIMPLEX)
    wrong = ~on_simplex & ~np.isnan(p).all(axis=-1)
    if wrong.any():
        raise Problem(
            f"{int(wrong.sum())} rows of probabilities are not distributions, such as "
            f"{p[wrong][0].tolist()}; normalise them over the labels, and set a row to NaN "
            f"where there is none"
        )
    return p


def label_orders(orders: npt.ArrayLike, shape: tuple[int, ...]) -> Ranks:
    """Checked orders, one for each row of the shape."""
    orders = whole(orders, "orders")
    n_classes = shape[-1] if shape else 0
    if orders.ndim == 0 or (np.sort(orders, axis=-1) != np.arange(1, n_classes + 1)).any():
        raise Problem(f"an order must list each rank 1 to {n_classes} once; got {orders.tolist()}")
    try:
        return np.broadcast_to(orders, shape)
    except ValueError:
        raise Problem(
            f"orders of shape {orders.shape} do not fit rows of shape {shape}; "
            "give one order, or one per view"
        ) from None


def whole(values: npt.ArrayLike, what: str) -> Ranks:
    """Whole numbers from 0."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise Problem(f"{what} must be the same number for every item and view") from None
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise Problem(f"{what} must be whole numbers from 0; got {array.tolist()}")
    return array.astype(np.int64)


def logs(p: Floats) -> Floats:
    """Logarithms of probabilities, none lower than that of the least that counts."""
    return np.asarray(np.log(np.maximum(p, LEAST)))


def softmax(scores: Floats) -> Floats:
    """The distribution along the last axis whose log-odds are the scores."""
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


Turn = tuple[int, ...]
"""A move of positions: position p shows what stood at `turn[p]`, counted from 0."""

symmetries: Registry[Callable[[int], tuple[Turn, ...]]] = Registry("set of orders")
"""A number of positions -> the turns of a set."""


@symmetries.register("reversal")
def reversal(n: int) -> tuple[Turn, ...]:
    """As it is and from the end: 2 orders."""
    return _distinct_turns([tuple(range(n)), tuple(range(n))[::-1]])


@symmetries.register("rotations")
def all_rotations(n: int) -> tuple[Turn, ...]:
    """Turned round, so that everything stands in every position once: n orders."""
    return tuple(tuple(rank - 1 for rank in order) for order in rotations(n))


@symmetries.register("dihedral")
def dihedral(n: int) -> tuple[Turn, ...]:
    """All rotations, and these from the end: 2n orders, the smallest group with both."""
    turned = all_rotations(n)
    return _distinct_turns([*turned, *(turn[::-1] for turn in turned)])


@symmetries.register("williams")
def williams(n: int) -> tuple[Turn, ...]:
    """Everything follows everything else equally often: n orders, or 2n where n is odd."""
    first = [(step + 1) // 2 if step % 2 else -(step // 2) for step in range(n)]
    rows = [tuple((place + row) % n for place in first) for row in range(n)]
    return _distinct_turns([*rows, *(row[::-1] for row in rows)] if n % 2 else rows)


def _distinct_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
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
        return tuple(dict.fromkeys(_turn_view(view, *each) for each in product(*sets)))


def _turn_view(view: View, labels: Turn, demos: Turn, places: Turn) -> View:
    """A view after a move of its labels, its demonstrations and its places."""
    order = _apply_turn(view.label_order, labels)
    shown = replace(
        view,
        label_order=order,
        demo_turn=_compose_turns(view.demo_turn, demos),
        place_turn=_compose_turns(view.place_turn, places),
    )
    return replace(shown, name=", ".join([view.name, *_describe_moves(view, shown)]))


def _compose_turns(before: Turn, turn: Turn) -> Turn:
    """Two moves as one, () for none."""
    both = _apply_turn(before, turn) if before else turn
    return () if both == tuple(range(len(both))) else both


def _apply_turn(shown: tuple[int, ...], turn: Turn) -> tuple[int, ...]:
    return tuple(shown[place] for place in turn) if turn else shown


def _describe_moves(view: View, shown: View) -> Iterator[str]:
    """Say what a view moves that another leaves where it is."""
    if shown.label_order != view.label_order:
        yield f"labels {'-'.join(map(str, shown.label_order))}"
    if shown.demo_turn != view.demo_turn:
        yield f"demos {_turn_label(shown.demo_turn)}"
    if shown.place_turn != view.place_turn:
        yield f"places {_turn_label(shown.place_turn)}"


def _turn_label(turn: Turn) -> str:
    return "-".join(str(place + 1) for place in turn) or "as they were"
