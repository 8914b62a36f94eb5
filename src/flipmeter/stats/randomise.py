"""Blocks -> an exact randomisation test: do replies care about the view beyond their own noise?

Under the null the readable replies of a block are exchangeable over its views. A unit is a
cluster's blocks with the same readability pattern: they are reassigned together, so copies add no
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from zlib import crc32

import numpy as np
import numpy.typing as npt

from flipmeter.stats.blocks import Blocks
from flipmeter.stats.exchanges import (
    MOST_ASSIGNMENTS,
    Shape,
    exact_tail,
    excess,
    place_counts,
    rank_lean,
    readable_code,
    shape_of,
)
from flipmeter.stats.groups import Floats, Ints

MOST_DRAWS = 200_000
TIED = 7
"""Decimals to which sums are compared: outcomes may be thirds, whose sums differ in last bits."""
Picks = npt.NDArray[np.uint16]
CHUNK = 1 << 21
"""Numbers held at a time while drawing."""
MOST_WAYS = 256
"""Joint assignments of a bundle of units whose outcomes are added up beforehand."""


@dataclass(frozen=True)
class EffectTest:
    """p of the joint test, and of its two parts alone; `n_draws` is 0 where all were listed."""

    p: float
    p_excess: float
    p_direction: float
    n_draws: int = 0


@dataclass(frozen=True)
class ReplyPlaces:
    """Positions of nominal replies: slots, or classes of a view if slots are unknown."""

    of: Ints
    n: int


@dataclass(frozen=True)
class Drawn:
    """Blocks with too many assignments to list: replies, their unit, shape and places.

    Replies up to `tolerance` apart are the same.
    """

    shape: Shape
    replies: Ints
    unit: Ints
    places: ReplyPlaces | None
    tolerance: int = 0

    def outcomes(self, replies: Ints) -> Floats:
        """Excess and direction of every block: ... x blocks x (1 + directions)."""
        shape, places = self.shape, self.places
        apart = excess(replies, shape, self.tolerance)[..., None]
        if places is None:
            return np.concatenate([apart, rank_lean(replies, shape)], axis=-1)
        return np.concatenate([apart, place_counts(replies, shape, places.of, places.n)], axis=-1)


@dataclass(frozen=True)
class Units:
    """Outcomes of every unit: tables of units x assignments x (excess, direction ...).

    `observed` is the sum over all units under the assignment that was asked.
    """

    tables: tuple[Floats, ...]
    drawn: tuple[Drawn, ...]
    observed: Floats
    two_sided: bool

    @cached_property
    def key(self) -> int:
        """A number of what can be reassigned, the same for every assignment of it.

        Draws depend on it: with the same draws for all rows, all would be lucky or unlucky alike.
        """
        # Whole numbers of their largest, so that copies of all rows look the same.
        largest = [np.abs(table).max(axis=(0, 1)) for table in self.tables]
        parts = [
            np.rint(table / np.where(most > 0, most, 1.0) * 1e6).astype(np.int64).tobytes()
            for table, most in zip(self.tables, largest, strict=True)
        ]
        parts += [np.unique(np.sort(one.replies, axis=1), axis=0).tobytes() for one in self.drawn]
        return crc32(b"".join(parts))

    def statistics(self, totals: Floats) -> tuple[Floats, Floats]:
        """Excess and direction of summed outcomes, the larger the more extreme; ties are equal."""
        lean = np.sqrt((totals[..., 1:] ** 2).sum(axis=-1))
        apart = np.abs(totals[..., 0]) if self.two_sided else totals[..., 0]
        return np.round(apart, TIED), np.round(lean, TIED)


def evidence(blocks: Blocks, *, draws: int, seed: int, enough: float = 0.0) -> EffectTest:
    """Test excess and direction at once (Westfall-Young), exactly.

    At the floor of p its tail is computed, or draws double up to 200,000, until p is at most
    `enough`: the smallest level at which Holm over all rows can reject.
    """
    units = find_units(blocks)
    if not units.tables and not units.drawn:
        return EffectTest(1.0, 1.0, 1.0)
    logs = [len(table) * math.log(table.shape[1]) for table in units.tables]
    if not units.drawn and sum(logs) <= math.log(draws) + 1e-9:
        return EffectTest(*_min_p(*units.statistics(_enumerate_assignments(units))))
    totals = np.concatenate([units.observed[None], _draw_assignments(units, draws, seed)])
    found = EffectTest(*_min_p(*units.statistics(totals)), draws)
    return _beyond_floor(units, totals, found, seed, enough)


def _min_p(apart: Floats, lean: Floats) -> tuple[float, float, float]:
    """p of the smaller of two p-values and of each; the observed assignment is the first."""
    n = len(apart)
    at_least = [int((x >= x[0]).sum()) for x in (apart, lean)]
    least = min(at_least)
    extreme = np.zeros(n, dtype=np.bool_)
    for x in (apart, lean):
        # A p-value is at most least / n where fewer than that many others are as large.
        extreme |= x > np.partition(x, n - least - 1)[n - least - 1] if least < n else True
    return float(extreme.sum()) / n, at_least[0] / n, at_least[1] / n


def _beyond_floor(
    units: Units, totals: Floats, found: EffectTest, seed: int, enough: float
) -> EffectTest:
    """Resolve a p that no draw reaches; the smaller of two tails is valid at twice its value."""
    floor = 1 / len(totals)
    if found.p > floor or found.p <= enough:
        return found
    apart = _exact_floor_tail(units, 0, found.p_excess, floor)
    lean = _exact_floor_tail(units, 1, found.p_direction, floor)
    if apart is None and lean is None:
        return _double_draws(units, totals, found, seed, enough)
    tails = (apart or found.p_excess, lean or found.p_direction)
    return EffectTest(min(floor, 2 * min(tails)), *tails, found.n_draws)


def _exact_floor_tail(units: Units, column: int, p: float, floor: float) -> float | None:
    """Exact p of the excess (column 0) or direction (1) at the floor, where it can be convolved."""
    if p > floor or units.drawn or (column == 1 and len(units.observed) != 2):
        return None
    outcomes = [table[:, :, column] for table in units.tables]
    two_sided = column == 1 or units.two_sided
    return exact_tail(outcomes, float(units.observed[column]), two_sided=two_sided)


def _double_draws(
    units: Units, totals: Floats, found: EffectTest, seed: int, enough: float
) -> EffectTest:
    """Double the draws while p stays at its floor and could still matter."""
    n, step = found.n_draws, 1
    while found.p <= 1 / (n + 1) and found.p > enough and n < MOST_DRAWS:
        more = min(n, MOST_DRAWS - n)
        totals = np.concatenate([totals, _draw_assignments(units, more, seed, step)])
        n, step = n + more, step + 1
        found = EffectTest(*_min_p(*units.statistics(totals)), n)
    return found


# --- assignments ------------------------------------------------------------------------------


def _enumerate_assignments(units: Units) -> Floats:
    """Sums under every joint assignment, the observed one first."""
    totals = np.zeros((1, len(units.observed)))
    for table in units.tables:
        for unit in table:
            totals = (totals[:, None] + unit[None]).reshape(-1, totals.shape[1])
    where = np.abs(totals - units.observed).sum(axis=1).argmin()
    totals[[0, where]] = totals[[where, 0]]
    return totals


def _draw_assignments(units: Units, draws: int, seed: int, step: int = 0) -> Floats:
    """Sums under drawn joint assignments."""
    totals = np.zeros((draws, len(units.observed)))
    for table in units.tables:
        rng = np.random.default_rng([seed, units.key, step, table.shape[1]])
        bundles = _bundle_units(table)
        whole = len(table) - len(table) % _bundle_size(table.shape[1])
        rest = Bundles(table[whole:], np.arange(len(table) - whole))
        for chunk in _draw_chunks(draws, len(table)):
            size = (len(table), chunk.stop - chunk.start)
            picked = rng.integers(0, table.shape[1], size=size, dtype=np.uint16)
            for part, own in ((bundles, picked[:whole]), (rest, picked[whole:])):
                if len(part.of):
                    totals[chunk] += _looked_up(part, own, table.shape[1])
    for place, group in enumerate(units.drawn):
        rng = np.random.default_rng([seed, units.key, step, place])
        for chunk in _draw_chunks(draws, group.replies.size):
            totals[chunk] += _permuted_sums(group, chunk.stop - chunk.start, rng)
    return totals


@dataclass(frozen=True)
class Bundles:
    """Outcomes of kinds of bundles (kinds x joint ways x columns), and the kind of each bundle."""

    outcomes: Floats
    of: Ints


def _bundle_units(table: Floats) -> Bundles:
    """Put units together, all but the last few: one look-up serves a whole bundle.

    Units are sorted, so that bundles of the same units follow each other; most are the same.
    """
    n_units, n_ways, n_columns = table.shape
    size = _bundle_size(n_ways)
    whole = n_units - n_units % size
    units = table[:whole].reshape(-1, size, n_ways, n_columns)
    is_new = np.ones(len(units), dtype=np.bool_)
    is_new[1:] = (units[1:] != units[:-1]).any(axis=(1, 2, 3))
    units = units[is_new]
    sums = units[:, 0]
    for place in range(1, size):
        sums = sums[:, :, None] + units[:, place, None]
        sums = sums.reshape(len(units), n_ways ** (place + 1), n_columns)
    return Bundles(sums, np.cumsum(is_new) - 1)


def _bundle_size(n_ways: int) -> int:
    """Number of units with so many assignments that have at most `MOST_WAYS` together."""
    return max(size for size in range(1, 9) if size == 1 or n_ways**size <= MOST_WAYS)


def _looked_up(bundles: Bundles, picked: Picks, n_ways: int) -> Floats:
    """Sums of the outcomes of bundles whose units picked these of their ways (units x draws)."""
    _, n_joint, n_columns = bundles.outcomes.shape
    n_bundles = len(bundles.of)
    ways = picked.reshape(n_bundles, -1, picked.shape[1])
    joint = ways[:, 0]
    for place in range(1, ways.shape[1]):
        joint = joint * np.uint16(n_ways) + ways[:, place]
    if picked.shape[1] < n_bundles:  # added up one after the other, as below, to the last bit
        first = n_joint * bundles.of
        each = bundles.outcomes.reshape(-1, n_columns).take(joint + first[:, None], axis=0)
        return np.asarray(np.add.reduce(each, axis=0))
    totals = np.zeros((picked.shape[1], n_columns))
    for kind, picks in zip(bundles.of, joint, strict=True):
        totals += bundles.outcomes[kind].take(picks, axis=0)
    return totals


def _draw_chunks(draws: int, size: int) -> Iterator[slice]:
    most = max(1, CHUNK // max(size, 1))
    for start in range(0, draws, most):
        yield slice(start, min(start + most, draws))


def _permuted_sums(group: Drawn, draws: int, rng: np.random.Generator) -> Floats:
    """Sums over blocks whose replies are permuted, alike within a unit."""
    held = group.shape.positions
    n_units = int(group.unit.max()) + 1
    order = rng.random((draws, n_units, len(held))).argsort(axis=-1)[:, group.unit]
    replies = np.broadcast_to(group.replies, (draws, *group.replies.shape)).copy()
    replies[..., held] = np.take_along_axis(group.replies[None][..., held], order, axis=-1)
    totals: Floats = group.outcomes(replies).sum(axis=1)
    return totals


# --- units ------------------------------------------------------------------------------------


def find_units(blocks: Blocks) -> Units:
    """Units whose replies differ at all, with their outcomes under every assignment."""
    places = _reply_places(blocks)
    tables: dict[int, list[Floats]] = {}
    directions = (1 if blocks.n_views == 2 else blocks.n_views) if places is None else places.n
    drawn, observed = [], np.zeros(1 + directions)
    for group in _iter_drawn_groups(blocks, places):
        observed += group.outcomes(group.replies).sum(axis=0)
        if group.shape.n_assignments > MOST_ASSIGNMENTS:
            drawn.append(_sort_blocks(group))
        else:
            tables.setdefault(group.shape.n_assignments, []).append(_unit_outcomes(group))
    # Thirds that cancel leave last bits, which would pass for outcomes that differ.
    listed = [np.round(np.concatenate(tables[size]), 12) + 0.0 for size in sorted(tables)]
    kept = [table[(table != table[:, :1]).any(axis=(1, 2))] for table in listed]
    oriented, observed = _orient_units([table for table in kept if len(table)], observed)
    return Units(oriented, tuple(drawn), observed, blocks.repeated == "some views")


def _iter_drawn_groups(blocks: Blocks, places: ReplyPlaces | None) -> Iterator[Drawn]:
    """Blocks that can be reassigned at all, by readability pattern, sorted by unit."""
    flat = blocks.flat
    highest = flat.max(axis=1, initial=0)
    lowest = np.where(flat > 0, flat, highest[:, None]).min(axis=1, initial=1 << 40)
    # Two readable views and two different replies.
    two_views = (blocks.replies > 0).any(axis=2).sum(axis=1) > 1
    active = np.flatnonzero((lowest < highest) & two_views)
    active = active[np.argsort(blocks.cluster[active], kind="stable")]
    codes = readable_code(blocks.replies[active] > 0)
    for code in np.unique(codes):
        own = active[codes == code]
        readable = tuple((bool(a), bool(b)) for a, b in blocks.replies[own[0]] > 0)
        unit = np.cumsum(np.diff(blocks.cluster[own], prepend=-1) > 0) - 1
        held = None if places is None else ReplyPlaces(places.of[own], places.n)
        yield Drawn(shape_of(readable, blocks.repeated), flat[own], unit, held, blocks.tolerance)


def _reply_places(blocks: Blocks) -> ReplyPlaces | None:
    """Places of nominal answers from 0: slots, or else classes; None for ordered classes."""
    if not blocks.nominal:
        return None
    if blocks.slots is not None:
        return _slot_places(blocks.replies, blocks.slots)
    n_classes = int(blocks.replies.max(initial=1))
    cells = np.arange(blocks.n_views * n_classes).reshape(blocks.n_views, n_classes)
    return ReplyPlaces(np.broadcast_to(cells, (len(blocks.replies), *cells.shape)), cells.size)


def _slot_places(replies: Ints, slots: Ints) -> ReplyPlaces:
    """Slots from 0; a block in which a reassigned reply would have none says nothing."""
    n = int(slots.max(initial=0))
    classes = np.arange(1, slots.shape[2] + 1)
    given = (replies[..., None] == classes).any(axis=(1, 2))
    asked = (replies[:, :, 0] > 0) | (replies[:, :, 1] > 0)
    unknown = (slots == 0) & asked[:, :, None] & given[:, None, :]
    is_unknown = unknown.any(axis=(1, 2), keepdims=True)
    return ReplyPlaces(np.where(is_unknown | (slots == 0), n, slots - 1), n)


def _unit_outcomes(group: Drawn) -> Floats:
    """Outcomes of every unit under every assignment (units x assignments x columns)."""
    dealt = np.moveaxis(group.replies[:, group.shape.assignments()], 0, 1)
    outcomes = group.outcomes(dealt)
    starts = np.flatnonzero(np.diff(group.unit, prepend=-1))
    return np.moveaxis(np.add.reduceat(outcomes, starts, axis=1), 0, 1)


def _sort_blocks(group: Drawn) -> Drawn:
    """Blocks sorted by what they say, units numbered alike: the order of rows changes nothing."""
    _, kind = np.unique(group.replies, axis=0, return_inverse=True)
    order = np.lexsort((kind, group.unit))
    unit, kind = group.unit[order], kind[order]
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    sizes = np.diff(np.append(starts, len(unit)))
    keys = np.full((len(starts), sizes.max()), -1)
    keys[unit, np.arange(len(unit)) - starts[unit]] = kind
    rank = np.empty(len(starts), dtype=np.int64)
    rank[np.lexsort(keys.T[::-1])] = np.arange(len(starts))
    again = order[np.argsort(rank[unit], kind="stable")]
    places = None if group.places is None else ReplyPlaces(group.places.of[again], group.places.n)
    unit = np.sort(rank[unit])
    return replace(group, replies=group.replies[again], unit=unit, places=places)


def _orient_units(tables: list[Floats], observed: Floats) -> tuple[tuple[Floats, ...], Floats]:
    """Units in an order that depends neither on the rows nor on which of two views is first."""
    other = np.array([1.0, -1.0])
    if len(observed) != 2 or observed[1] > 0:
        return tuple(map(_sorted_units, tables)), observed
    turned = tuple(_sorted_units(table * other) for table in tables)
    if observed[1] < 0:
        return turned, observed * other
    given = tuple(map(_sorted_units, tables))
    return (turned if _table_sort_key(turned) > _table_sort_key(given) else given), observed


def _table_sort_key(tables: tuple[Floats, ...]) -> list[float]:
    return [x for table in tables for x in table.ravel().tolist()]


def _sorted_units(table: Floats) -> Floats:
    """Outcomes sorted within units, then units sorted by their outcomes."""
    table = table + 0.0  # no negative zero: it would sort apart
    order = np.lexsort(np.moveaxis(table, 2, 0)[::-1])
    flat = np.take_along_axis(table, order[:, :, None], axis=1).reshape(len(table), -1)
    return np.asarray(flat[np.lexsort(flat.T[::-1])].reshape(table.shape))
