"""Slots <-> classes: what a prompt showed, and what it means.

Arrays have the same shape everywhere: items first, then views if there are several, then slots.
`p` holds probabilities by slot, each row on the simplex, or all NaN where a reply had none.
`orders` hold the rank at each slot: one order for all rows, or one per view, or one per item and
view, whatever broadcasts to the shape of `p`. Ranks are 1 to M, and 0 is "no class".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flipmeter.types import Problem, Rank

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
