"""Slot preferences: estimated from probabilities, kept with their evidence, and divided out.

Every estimate takes `p` by slot and leaves out an item of which a view has no probabilities. The
model behind all of them: a slot multiplies the odds of whichever class it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from flipmeter.base.chance import draw
from flipmeter.decide.debiasers.averaging import several_views
from flipmeter.decide.spaces import (
    FLOOR,
    OFF_SIMPLEX,
    Floats,
    label_orders,
    logs,
    probabilities,
    softmax,
)
from flipmeter.types import Problem

NULL_TEXTS = ("N/A", "", "[MASK]")
"""Texts without content, for contextual calibration."""
PAPER_NULL_TEXTS = NULL_TEXTS[:1]
N_PSEUDO_TEXTS = 20


@dataclass(frozen=True)
class Prior:
    """A model's preference for slots, how it was estimated, and from how many items."""

    weights: tuple[float, ...]
    form: str
    n_items: int

    def __post_init__(self) -> None:
        if min(self.weights) <= 0 or abs(sum(self.weights) - 1) > OFF_SIMPLEX:
            raise Problem(f"a prior is positive and sums to 1; got {list(self.weights)}")


def pride_paper_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Average probabilities over items and the natural and reversed order, as the paper does.

    What the items say is in it: it is a prior only if their classes are spread evenly.
    """
    p, orders = _complete(p, orders)
    _need_mirrored(orders)
    return _prior(p.mean(axis=(0, 1)), "pride_paper", p)


def pride_odd_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Estimate what the natural and reversed order tell: preference of a slot over its mirror.

    What a slot and its mirror have in common cannot be told from content, and stays.
    """
    p, orders = _complete(p, orders)
    _need_mirrored(orders)
    mean = logs(p).mean(axis=(0, 1))
    return _prior(softmax((mean - mean[::-1]) / 2), "pride_odd", p)


def pride_cyclic_prior(p: npt.ArrayLike, orders: npt.ArrayLike) -> Prior:
    """Estimate the whole slot preference from orders in which every class visits every slot."""
    p, orders = _complete(p, orders)
    visits = _visits(orders)
    if (visits != visits[0]).any():
        raise Problem(
            "a cyclic prior needs every class at every slot equally often, as in rotations(M); "
            f"got the orders {orders.tolist()}"
        )
    return _prior(softmax(logs(p).mean(axis=1)).mean(axis=0), "pride_cyclic", p)


def contextual_prior(
    p: npt.ArrayLike, *, form: Literal["contextual", "domain_context"] = "contextual"
) -> Prior:
    """Average what a model answers to texts without content (null texts x slots), in one order."""
    p = _answered(p)
    return _prior(p.mean(axis=0), form, p)


def batch_prior(p: npt.ArrayLike) -> Prior:
    """Average what a model answers to a batch (items x slots), in one order.

    The classes of the batch must be about equally frequent: true prevalence is divided out with
    the preference.
    """
    p = _answered(p)
    return _prior(p.mean(axis=0), "batch", p)


def divide(p: npt.ArrayLike, prior: Prior) -> Floats:
    """Divide probabilities by slot by a prior, and renormalise; what was 0 stays 0."""
    p = probabilities(p)
    if len(prior.weights) != p.shape[-1]:
        raise Problem(f"a prior over {len(prior.weights)} slots does not fit {p.shape[-1]} slots")
    log = np.where(p == 0, -np.inf, np.log(np.where(p == 0, 1.0, p)))
    return softmax(log - np.log(prior.weights))


def pseudo_texts(corpus: Sequence[str], n: int = N_PSEUDO_TEXTS, seed: int = 0) -> tuple[str, ...]:
    """Draw texts with the words of a corpus and no content: domain-context calibration.

    Each has as many words as the corpus has on average, rounded up, and ends in " ."; the order of
    the corpus does not matter.
    """
    words = sorted(word for text in corpus for word in text.lower().split())
    if not words:
        raise Problem(f"no words to draw from in a corpus of {len(corpus)} texts")
    length = -(-len(words) // len(corpus))
    return tuple(
        " ".join(
            words[int(draw("pseudo text", seed, text, word) * len(words))] for word in range(length)
        )
        + " ."
        for text in range(n)
    )


def _prior(weights: Floats, form: str, p: Floats) -> Prior:
    weights = np.maximum(weights / weights.sum(), FLOOR)
    return Prior(tuple((weights / weights.sum()).tolist()), form, len(p))


def _complete(p: npt.ArrayLike, orders: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.int64]]:
    """The items that have probabilities in every view, and the orders, one per view."""
    p = several_views(p)
    orders = label_orders(orders, p.shape[1:])
    return _some(p[~np.isnan(p).any(axis=(1, 2))], len(p)), orders


def _answered(p: npt.ArrayLike) -> Floats:
    p = probabilities(p)
    if p.ndim != 2:
        raise Problem(f"probabilities must be items x slots, of one order; got shape {p.shape}")
    return _some(p[~np.isnan(p[:, 0])], len(p))


def _some(p: Floats, n_items: int) -> Floats:
    if not len(p):
        raise Problem(f"none of {n_items} items has probabilities; a prior needs at least one")
    return p


def _visits(orders: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Counts of each class (second axis) at each slot (first axis)."""
    ranks = np.arange(orders.shape[1]) + 1
    return np.asarray((orders[:, :, None] == ranks).sum(axis=0))


def _need_mirrored(orders: npt.NDArray[np.int64]) -> None:
    visits = _visits(orders)
    if (visits != visits[::-1]).any():
        raise Problem(
            "this prior needs every class at a slot as often as at its mirror, as in the natural "
            f"and reversed order; got the orders {orders.tolist()}"
        )
