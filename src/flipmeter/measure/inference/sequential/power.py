"""Claim, items of a study -> its sequential plan and how often that settles the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from flipmeter.measure.inference.claims import Claim
from flipmeter.measure.inference.needed import fewest
from flipmeter.measure.inference.sequential.bets import Side, capital, growth
from flipmeter.measure.inference.sequential.boundaries import (
    Boundaries,
    Operating,
    boundaries,
    looks_of,
    needed_most,
    operating,
)
from flipmeter.types import ALPHA, Problem

POWERS = (0.8, 0.9)
OF_MARGIN = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""True rates to plan for, as multiples of the margin."""

MOST_BETS = 2_000
"""Items up to which a plan by betting is searched for; one costs as much as their square."""


@dataclass(frozen=True)
class AtRate:
    """How a plan ends if this is the true rate; `needed` items have 80 and 90 % power, or None."""

    rate: float
    below: float
    above: float
    not_settled: float
    mean_n: float
    needed: tuple[int | None, ...]


@dataclass(frozen=True)
class PowerPlan:
    """The looks at a claim on one dataset, the flips that stop each, and what comes of it.

    `looks` count independent items. At a look a claim is shown with at most `below` flips and
    refuted with at least `above` (-1 and n + 1: never). `fewest` items would show it if none flips.
    """

    claim: str
    dataset: str
    looks: tuple[int, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]
    fewest: int
    rates: tuple[AtRate, ...]
    notes: tuple[str, ...] = ()
    alpha: float = ALPHA

    @property
    def n_items(self) -> int:
        return self.looks[-1]

    @property
    def is_reachable(self) -> bool:
        return self.n_items >= self.fewest

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"n_items": self.n_items, "is_reachable": self.is_reachable}


def plan_power(
    claim: Claim,
    looks: Sequence[int],
    *,
    block: int,
    dataset: str = "",
    notes: Sequence[str] = (),
    alpha: float = ALPHA,
    rates: Sequence[float] = (),
) -> PowerPlan:
    """Plan a claim with these looks; all items are taken to be readable."""
    asked = tuple(looks)
    held = looked_at(claim, asked, alpha)
    chosen = tuple(rates) or tuple(claim.margin * x for x in OF_MARGIN if claim.margin * x < 1)
    for rate in chosen:
        if not 0 <= rate < 1:
            raise Problem(f"a true rate to plan for must lie between 0 and 1; got {rate}")
    return PowerPlan(
        *(str(claim), dataset, asked, held.below, held.above),
        fewest_items(claim, alpha),
        tuple(_at(claim, asked, rate, block, alpha) for rate in chosen),
        tuple(notes),
        alpha,
    )


def looked_at(claim: Claim, looks: tuple[int, ...], alpha: float = ALPHA) -> Boundaries:
    """The flips that settle a claim at its looks, all items readable."""
    if not claim.beyond_noise:
        return boundaries(looks, claim.margin, alpha=alpha)
    each = bet_boundaries(looks[-1], claim.margin, alpha)
    at = [size - 1 for size in looks]
    below, above = (tuple(side[i] for i in at) for side in (each.below, each.above))
    return Boundaries(looks, below, above, claim.margin, alpha)


def fewest_items(claim: Claim, alpha: float = ALPHA) -> int:
    """Items with which a claim is shown if none flips."""
    if not claim.beyond_noise:
        return math.ceil(math.log(alpha) / math.log1p(-claim.margin))
    same = growth(np.zeros(1), claim.margin, "below")
    return next(n for n in count(1) if capital(n * same) >= 1 / alpha)


def refuse_unreachable(claim: Claim, n_items: int, dataset: str = "", alpha: float = ALPHA) -> None:
    """Refuse a claim that could not be shown even if nothing flipped, before anything is asked."""
    needed = fewest_items(claim, alpha)
    if n_items < needed:
        where = f" of {dataset}" if dataset else ""
        raise Problem(
            f"'{claim}' cannot be shown with {n_items} items{where}, even if none flips; it takes "
            f"at least {needed}: raise test_size, or the margin"
        )


def _at(claim: Claim, looks: tuple[int, ...], rate: float, block: int, alpha: float) -> AtRate:
    found = _ends(claim, looks, rate, alpha)
    needed = tuple(
        None if rate == claim.margin else _needed(claim, rate, block, power, alpha)
        for power in POWERS
    )
    open_ = found.futile + found.undecided
    return AtRate(rate, found.below, found.above, open_, found.mean_n, needed)


def _ends(claim: Claim, looks: tuple[int, ...], rate: float, alpha: float) -> Operating:
    if claim.beyond_noise:
        return bet_operating(looks, claim.margin, rate, alpha)
    return operating(looks, claim.margin, rate, alpha=alpha)


def _needed(claim: Claim, rate: float, block: int, power: float, alpha: float) -> int | None:
    if not claim.beyond_noise:
        return needed_most(claim.margin, rate, block=block, power=power, alpha=alpha)

    def suffices(blocks: int) -> bool:
        if block * blocks > MOST_BETS:
            return True
        found = bet_operating(looks_of(block, block * blocks), claim.margin, rate, alpha)
        return (found.below if rate < claim.margin else found.above) >= power

    found = fewest(suffices)
    return None if found is None or found * block > MOST_BETS else found * block


# --- betting on the excess of a rater without noise: each item differs wholly or not at all ----


@lru_cache(maxsize=64)
def bet_boundaries(most: int, margin: float, alpha: float) -> Boundaries:
    """Flips that settle a claim beyond noise after every item, where repeats never differ."""
    below, above, low, high = [], [], -1, 1
    for n in range(1, most + 1):  # with more items, neither boundary can fall
        while low < n and _settles(low + 1, n, margin, "below", alpha):
            low += 1
        while high <= n and not _settles(high, n, margin, "above", alpha):
            high += 1
        below.append(low)
        above.append(high)
    return Boundaries(tuple(range(1, most + 1)), tuple(below), tuple(above), margin, alpha)


def _settles(k: int, n: int, margin: float, side: Side, alpha: float) -> bool:
    logs = growth(np.array([0.0, 1.0]), margin, side)
    return bool(capital(logs[:, 0] * (n - k) + logs[:, 1] * k) >= 1 / alpha)


def bet_operating(looks: tuple[int, ...], margin: float, rate: float, alpha: float) -> Operating:
    """Chance of every end of a plan by betting, which counts every item and stops at looks."""
    held = bet_boundaries(looks[-1], margin, alpha)
    going = np.ones(1)
    below = above = mean = 0.0
    for n, low, high in zip(held.n, held.below, held.above, strict=True):
        going = np.convolve(going, (1 - rate, rate))
        down, up = float(going[: low + 1].sum()), float(going[high:].sum())
        going[: low + 1] = going[high:] = 0
        below, above = below + down, above + up
        mean += (down + up) * next(look for look in looks if look >= n)
    left = float(going.sum())
    return Operating(below, above, 0.0, left, mean + looks[-1] * left)
