"""Decisions so far -> whether a claim is settled, and how often a plan settles it.

The largest number of items is known, so the looks are: exact group-sequential boundaries (E4). A
claim beyond noise is settled by betting, which needs no plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl

from flipmeter.chance import draw
from flipmeter.errors import Problem
from flipmeter.stats.blocks import UNREADABLE, Blocks, count_pairs, read_blocks
from flipmeter.stats.bounds import LOWEST_EXCESS, bounded_share, fewest
from flipmeter.stats.groups import Floats
from flipmeter.stats.judge import UNREADABLE_LIMIT, Claim, ContrastRow, contrast_rows
from flipmeter.stats.reading import read_panel
from flipmeter.stats.sequential import (
    Boundaries,
    Operating,
    Side,
    boundaries,
    capital,
    growth,
    mean_bounds,
    mean_evidence,
    needed_most,
    operating,
    watch,
)
from flipmeter.stats.sizes import block_excess, noise
from flipmeter.stats.verdict import percent
from flipmeter.types import ALPHA, Contrast

POWERS = (0.8, 0.9)
OF_MARGIN = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
"""True rates to plan for, as multiples of the margin."""

MOST_BETS = 2_000
"""Items up to which a plan by betting is searched for; one costs as much as their square."""

SIDES: tuple[Side, ...] = ("below", "above")


@dataclass(frozen=True)
class AtRate:
    """Outcomes of a plan at a true rate; `needed` items have 80 and 90 % power, or None."""

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
        tuple(_power_at_rate(claim, asked, rate, block, alpha) for rate in chosen),
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
    found = fewest(lambda n: bool(capital(n * same) >= 1 / alpha), most=math.inf)
    assert found is not None, "what grows without end gets there"
    return found


def refuse_unreachable(claim: Claim, n_items: int, dataset: str = "", alpha: float = ALPHA) -> None:
    """Refuse a claim that could not be shown even if nothing flipped, before anything is asked."""
    needed = fewest_items(claim, alpha)
    if n_items < needed:
        where = f" of {dataset}" if dataset else ""
        raise Problem(
            f"'{claim}' cannot be shown with {n_items} items{where}, even if none flips; it takes "
            f"at least {needed}: raise test_size, or the margin"
        )


def _power_at_rate(
    claim: Claim, looks: tuple[int, ...], rate: float, block: int, alpha: float
) -> AtRate:
    ends = bet_operating if claim.beyond_noise else operating
    found = ends(looks, claim.margin, rate, alpha=alpha)
    needed = tuple(
        None if rate == claim.margin else _items_for_power(claim, rate, block, power, alpha)
        for power in POWERS
    )
    open_ = found.futile + found.undecided
    return AtRate(rate, found.below, found.above, open_, found.mean_n, needed)


def _items_for_power(
    claim: Claim, rate: float, block: int, power: float, alpha: float
) -> int | None:
    if not claim.beyond_noise:
        return needed_most(claim.margin, rate, block=block, power=power, alpha=alpha)
    settled = _bets_won(MOST_BETS, claim.margin, rate, alpha)[0 if rate < claim.margin else 1]
    enough = np.flatnonzero(np.cumsum(settled) >= power)
    return None if not len(enough) else math.ceil((int(enough[0]) + 1) / block) * block


# --- betting on the excess of a rater without noise: each item differs wholly or not at all ----


def bet_boundaries(most: int, margin: float, alpha: float) -> Boundaries:
    """Flips that settle a claim beyond noise after every item, where repeats never differ."""
    n, below, above = (side[:most] for side in _bet_sides(max(most, MOST_BETS), margin, alpha))
    return Boundaries(n, below, above, margin, alpha)


@lru_cache(maxsize=16)
def _bet_sides(most: int, margin: float, alpha: float) -> tuple[tuple[int, ...], ...]:
    below, above, low, high = [], [], -1, 1
    logs = {side: growth(np.array([0.0, 1.0]), margin, side) for side in SIDES}

    def settles(k: int, n: int, side: Side) -> bool:
        same, differs = logs[side].T
        return bool(capital(same * (n - k) + differs * k) >= 1 / alpha)

    for n in range(1, most + 1):  # with more items, neither boundary can fall
        while low < n and settles(low + 1, n, "below"):
            low += 1
        while high <= n and not settles(high, n, "above"):
            high += 1
        below.append(low)
        above.append(high)
    return tuple(range(1, most + 1)), tuple(below), tuple(above)


def _bets_won(most: int, margin: float, rate: float, alpha: float) -> tuple[Floats, Floats]:
    """Chance that a claim is first shown, and first refuted, by each item."""
    held = bet_boundaries(most, margin, alpha)
    going, won = np.ones(1), np.zeros((2, most))
    for n, low, high in zip(held.n, held.below, held.above, strict=True):
        going = np.convolve(going, (1 - rate, rate))
        won[:, n - 1] = going[: low + 1].sum(), going[high:].sum()
        going[: low + 1] = going[high:] = 0
    return won[0], won[1]


def bet_operating(
    looks: Sequence[int], margin: float, rate: float, *, alpha: float = ALPHA
) -> Operating:
    """Chance of every end of a plan by betting, which counts every item and stops at looks."""
    below, above = _bets_won(looks[-1], margin, rate, alpha)
    stop_at = np.array(looks)[np.searchsorted(looks, np.arange(1, looks[-1] + 1))]
    left = 1 - float(below.sum() + above.sum())
    mean = float(((below + above) * stop_at).sum()) + looks[-1] * left
    return Operating(float(below.sum()), float(above.sum()), 0.0, left, mean)


StopWord = Literal["below", "above", "futile", "undecided", "unreadable", "not identified"]
Key = tuple[str, str, str]
"""Rater, dataset and level."""


@dataclass(frozen=True)
class Watched:
    """The state of a claim about one rater, dataset and level: k of n readable pairs differ.

    `low` and `high` each hold at 95 % at this stop; they agree with the word. `is_last` says that
    all items have been looked at.
    """

    key: Key
    word: StopWord
    k: int
    n: int
    low: float
    high: float
    unreadable: float = 0.0
    is_last: bool = False
    note: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether the claim is shown or refuted."""
        return self.word in ("below", "above")

    @property
    def is_final(self) -> bool:
        return self.word != "undecided" or self.is_last

    def record(self) -> dict[str, Any]:
        """Every field by name, the key taken apart."""
        of = dict(zip(("rater", "dataset", "level"), self.key, strict=True))
        return of | {name: x for name, x in asdict(self).items() if name != "key"}

    def __str__(self) -> str:
        name = " · ".join(part for part in self.key if part)
        if self.word == "not identified":
            return f"{name}: not identified ({self.note})"
        if self.word == "unreadable":
            return f"{name}: unreadable ({percent(self.unreadable)} of pairs)"
        counted = f"{self.k} of {self.n} pairs differ" if self.n else "no readable pair"
        return f"{name}: {self.word} ({counted}, {percent(self.low)} to {percent(self.high)})"


@dataclass
class Watch:
    """Looks at a claim after every block of items.

    `looks` are, by dataset, the independent items asked by each look.
    """

    claim: Claim
    contrast: Contrast
    looks: Mapping[str, tuple[int, ...]]
    reproducible: Sequence[str] = ()
    alpha: float = ALPHA
    unreadable_limit: float = UNREADABLE_LIMIT
    _counts: dict[Key, list[tuple[int, int]]] = field(default_factory=dict)
    _drawn: dict[Key, dict[str, bool]] = field(default_factory=dict)

    def look(self, decisions: pl.DataFrame) -> list[Watched]:
        """Look once more, at all decisions so far."""
        panel = read_panel(decisions, self.reproducible)
        rows = contrast_rows(panel, self.contrast)
        names = panel.cluster_names
        return [self._watched(row, names) for row in rows if row.status != "not applicable"]

    def _watched(self, row: ContrastRow, names: Sequence[str]) -> Watched:
        if row.row is None:
            return Watched(row.key, "not identified", 0, 0, 0.0, 1.0, note=row.note)
        looks, blocks = self.looks[row.key[1]], read_blocks(row.row)
        seen = self._counts.setdefault(row.key, [])
        if len(seen) < len(looks):
            seen.append(self._one_each(row, blocks, names))
        why = row.row.by_construction
        if why and seen[-1][1]:
            found = Watched(row.key, "below", 0, seen[-1][1], 0.0, 0.0, note=why)
        elif self.claim.beyond_noise and (
            not row.row.reproducible or noise(blocks, ALPHA).value > 0
        ):  # otherwise all flips are beyond noise
            found = self._beyond(row, blocks)
        else:
            counts = ([k for k, _ in seen], [n for _, n in seen])
            margin, alpha = self.claim.margin, self.alpha
            stop = watch(*counts, looks=looks, margin=margin, alpha=alpha)
            found = Watched(row.key, stop.word, stop.k, stop.n, stop.low, stop.high)
        return self._readable(replace(found, is_last=len(seen) == len(looks)), blocks, len(looks))

    def _one_each(self, row: ContrastRow, blocks: Blocks, names: Sequence[str]) -> tuple[int, int]:
        """Flips and readable pairs with one pair of every cluster, drawn by the cluster's name.

        What was drawn counts at every look, whatever comes later: boundaries are exact for one
        Bernoulli a cluster.
        """
        assert row.row is not None
        drawn = self._drawn.setdefault(row.key, {})
        for cluster, replies in zip(
            np.asarray(row.row.clusters).tolist(), blocks.replies[:, :, 0], strict=True
        ):
            read = replies[replies > UNREADABLE]
            if len(read) > 1 and names[cluster] not in drawn:
                # Every two of the views that could be read are as likely as any other.
                pairs = list(combinations(range(len(read)), 2))
                one, other = pairs[int(draw("pair of views", names[cluster]) * len(pairs))]
                drawn[names[cluster]] = bool(blocks.differ(read[one], read[other]))
        return sum(drawn.values()), len(drawn)

    def _readable(self, found: Watched, blocks: Blocks, n_looks: int) -> Watched:
        """Keep a claim open while too many pairs cannot be read, as a verdict does."""
        counts = count_pairs(blocks)
        share = bounded_share(counts.asked - counts.read, counts.asked, self.alpha / n_looks)
        found = replace(found, unreadable=share.value)
        if share.lower > self.unreadable_limit:
            return replace(found, word="unreadable")
        is_open = found.word == "below" and share.value > self.unreadable_limit
        return replace(found, word="undecided") if is_open else found

    def _beyond(self, row: ContrastRow, blocks: Blocks) -> Watched:
        values, counted = block_excess(blocks)
        means = blocks.means(values, counted)
        if not len(means):
            return Watched(row.key, "undecided", 0, 0, LOWEST_EXCESS, 1.0)
        low, high = mean_bounds(means, alpha=self.alpha)
        enough = 1 / self.alpha
        below = mean_evidence(means, self.claim.margin, "below").max() >= enough
        above = mean_evidence(means, self.claim.margin, "above").max() >= enough
        word: StopWord = "below" if below else "above" if above else "undecided"
        counts = count_pairs(blocks)
        return Watched(row.key, word, int(counts.differ.sum()), int(counts.read.sum()), low, high)
