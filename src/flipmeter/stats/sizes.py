"""Blocks -> how large an effect is: rate, noise, excess, shift of class shares and direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import special

from flipmeter.stats.blocks import Blocks, block_pairs, count_pairs, repeated_pairs
from flipmeter.stats.bounds import (
    LOWEST_EXCESS,
    Bounded,
    bounded_mean,
    bounded_share,
    mean_p,
    mean_upper,
    share_p,
    uncovered,
    weighted_mean,
)
from flipmeter.stats.exchanges import excess, readable_code, shape_of
from flipmeter.stats.groups import Booleans, Estimates, Floats, Groups, Ints, estimates
from flipmeter.stats.verdict import percent
from flipmeter.types import ALPHA, Span


@dataclass(frozen=True)
class Shift:
    """Largest difference of a class's share between two views, and its upper bound.

    Of decimal scores, by how much more pairs move one way than the other.
    """

    value: float
    upper: float
    is_drift: bool = False

    @property
    def estimate(self) -> str:
        """The size of the move, in words."""
        if self.is_drift:
            return f"scores move one way in {percent(self.value)} more of the pairs than the other"
        return f"class shares differ by up to {percent(self.value)} between views"

    @property
    def bound(self) -> str:
        """The upper bound of the move, in words."""
        most = f"at most {percent(self.upper)}"
        if self.is_drift:
            return f"scores move one way in {most} more of the pairs than the other"
        return f"class shares move by {most}"


@dataclass(frozen=True)
class Sizes:
    """The sizes of E1 and E3; noise and excess are None if nothing was repeated."""

    rate: Bounded
    if_same: float
    if_different: float
    unreadable: Bounded
    unreadable_by_view: tuple[float, ...]
    noise: Bounded | None
    excess: Bounded | None
    shift: Shift
    direction: float | None
    moves: tuple[int, int] | None
    weighted: Bounded | None = None
    weighted_excess: Bounded | None = None
    uncovered: int = 0


def measure_sizes(blocks: Blocks, alpha: float) -> Sizes:
    """Measure every size of a contrast over its clusters."""
    counts = count_pairs(blocks)
    rate = bounded_share(counts.differ, counts.read, alpha)
    asked = counts.asked > 0
    failed = counts.asked - counts.read
    same, different = (
        float((some[asked] / counts.asked[asked]).mean()) if asked.any() else math.nan
        for some in (counts.differ, counts.differ + failed)
    )
    has_noise = blocks.repeated != "no view"
    return Sizes(
        *(rate, same, different, bounded_share(failed, counts.asked, alpha)),
        unreadable_by_view(blocks),
        noise=noise(blocks, alpha) if has_noise else None,
        excess=mean_excess(blocks, alpha) if has_noise else None,
        shift=shift(blocks, alpha),
        direction=direction(blocks),
        moves=moves(blocks),
        **_weighted_sizes(blocks, alpha, has_noise=has_noise),
    )


def _weighted_sizes(blocks: Blocks, alpha: float, *, has_noise: bool) -> dict[str, Any]:
    """Rate and excess with every class at its frequency in production."""
    if blocks.strata is None:
        return {}
    _, read, differ = block_pairs(blocks)
    share, strata = differ / np.maximum(read, 1), blocks.strata
    found: dict[str, Any] = {"uncovered": uncovered(read > 0, strata)}
    found["weighted"] = weighted_mean(share, read > 0, blocks.cluster, strata, alpha)
    if has_noise:
        values, counted = block_excess(blocks)
        found["weighted_excess"] = weighted_mean(
            values, counted, blocks.cluster, strata, alpha, reach=(LOWEST_EXCESS, 1.0)
        )
    return found


def unreadable_by_view(blocks: Blocks) -> tuple[float, ...]:
    """Share of the first replies of each view that cannot be read."""
    first = blocks.replies[:, :, 0]
    asked = (first >= 0).sum(axis=0)
    return tuple(((first == 0).sum(axis=0) / np.maximum(asked, 1)).tolist())


def noise(blocks: Blocks, alpha: float) -> Bounded:
    """Share of items on which a view disagrees with its own repeat, over repeated views."""
    twice = repeated_pairs(blocks)
    return bounded_share(twice.differ, twice.read, alpha)


def mean_excess(blocks: Blocks, alpha: float) -> Bounded:
    """Excess over noise, a mean over clusters."""
    return bounded_mean(blocks.means(*block_excess(blocks)), alpha, bottom=LOWEST_EXCESS)


def block_excess(blocks: Blocks) -> tuple[Floats, Booleans]:
    """Excess of every block, and the blocks that have one."""
    flat = blocks.flat
    codes = readable_code(blocks.replies > 0)
    values, counted = np.zeros(len(flat)), np.zeros(len(flat), dtype=np.bool_)
    for code in np.unique(codes):
        own = np.flatnonzero(codes == code)
        readable = tuple((bool(a), bool(b)) for a, b in blocks.replies[own[0]] > 0)
        shape = shape_of(readable, blocks.repeated)
        values[own] = excess(flat[own], shape, blocks.tolerance)
        counted[own] = shape.has_excess
    return values, counted


# --- groups of a panel ------------------------------------------------------------------------


def grouped_excess(
    first: Ints,
    again: Ints,
    clusters: Ints,
    groups: Groups,
    metric: str,
    spans: Sequence[Span | None],
) -> Estimates:
    """Excess over noise of every group, from items x views of first replies and of repeats."""
    found: list[Bounded] = []
    failed: list[int] = []
    for group in range(groups.n):
        mine = groups.of == group
        names, cluster = np.unique(clusters[mine], return_inverse=True)
        replies, span = np.stack([first[mine], again[mine]], axis=2), spans[group]
        blocks = Blocks(replies, cluster.astype(np.int64), len(names), span=span)
        found.append(mean_excess(blocks, ALPHA))
        failed.append(int((~block_excess(blocks)[1]).sum()))
    value = np.array([one.value for one in found])
    low = np.array([lowest_excess(one) if one.n else np.nan for one in found])
    high = np.array([one.high if one.n else np.nan for one in found])
    n = np.array([one.n for one in found])
    note = ["" if size else "no complete item" for size in n]
    return estimates(metric, value, (low, high), n=n, failed=np.array(failed), note=note)


def lowest_excess(found: Bounded) -> float:
    """Low end of an excess, which is never below 0: an interval goes there only for its value."""
    return max(found.low, min(found.value, 0.0))


# --- p-values of the bounds ---------------------------------------------------------------------


def rate_p(blocks: Blocks, margin: float, alpha: float, *, above: bool = False) -> float:
    """p of the rate not being below a margin; or above it."""
    counts = count_pairs(blocks)
    seen = counts.read > 0
    x, trials = counts.differ[seen] / counts.read[seen], counts.read[seen]
    each = 1.0 if (trials == 1).all() else float(trials.mean())
    return share_p(1 - x, 1 - margin, alpha, each) if above else share_p(x, margin, alpha, each)


def excess_p(blocks: Blocks, margin: float, *, above: bool = False) -> float:
    """p of the excess not being below a margin; or above it."""
    means = blocks.means(*block_excess(blocks))
    return float(mean_p(-means, -margin, -LOWEST_EXCESS) if above else mean_p(means, margin))


def shift_p(blocks: Blocks, margin: float) -> float:
    """p of a class's share moving by the margin or more."""
    found = [moved for moved in _class_share_shifts(blocks) if len(moved)]
    return max(float(mean_p(side, margin).max()) for moved in found for side in (moved, -moved))


# --- class shares -----------------------------------------------------------------------------


def shift(blocks: Blocks, alpha: float) -> Shift:
    """Largest difference of class shares between two views.

    The largest of one-sided bounds bounds the largest difference at the same level: only the bound
    of the class that differs most has to hold.
    """
    found = [moved for moved in _class_share_shifts(blocks) if len(moved)]
    if not found:
        return Shift(math.nan, 1.0, blocks.span is not None)
    value = max(float(np.abs(moved.mean(axis=0)).max()) for moved in found)
    bounds = [mean_upper(side, alpha).max() for moved in found for side in (moved, -moved)]
    return Shift(value, float(max(bounds)), blocks.span is not None)


def _class_share_shifts(blocks: Blocks) -> list[Floats]:
    """Clusters x classes for every pair of views: share in the second minus share in the first.

    Decimal scores have no classes: clusters x 1, pairs of replies that rise minus those that fall.
    """
    if blocks.span is not None:
        return [_mean_rises(blocks, a, b) for a, b in combinations(range(blocks.n_views), 2)]
    classes = np.arange(1, max(2, int(blocks.replies.max(initial=1))) + 1)
    hits = (blocks.replies[..., None] == classes).sum(axis=2)
    n = (blocks.replies > 0).sum(axis=2)
    shares = hits / np.maximum(n, 1)[..., None]
    return [
        _cluster_means(blocks, shares[:, b] - shares[:, a], (n[:, a] > 0) & (n[:, b] > 0))
        for a, b in combinations(range(blocks.n_views), 2)
    ]


def _mean_rises(blocks: Blocks, a: int, b: int) -> Floats:
    """Clusters x 1: mean over crossed pairs of replies of 1 for a rise and -1 for a fall."""
    first, second = blocks.replies[:, a, :, None], blocks.replies[:, b, None, :]
    read = (first > 0) & (second > 0)
    signs = np.where(read & blocks.differ(first, second), np.sign(second - first), 0)
    n = read.sum(axis=(1, 2))
    means = signs.sum(axis=(1, 2)) / np.maximum(n, 1)
    return _cluster_means(blocks, means[:, None], n > 0)


def _cluster_means(blocks: Blocks, values: Floats, counted: Booleans) -> Floats:
    if not counted.any():
        return np.zeros((0, values.shape[1]))
    columns = [blocks.means(column, counted) for column in values.T]
    return np.stack(columns, axis=1)


# --- direction --------------------------------------------------------------------------------


def direction(blocks: Blocks) -> float | None:
    """Mean step from the first of two views to the second, in ranks or in units of the scale.

    Nominal: lean to slot 1.
    """
    if blocks.n_views != 2 or (blocks.nominal and blocks.slots is None):
        return None
    if blocks.nominal:
        return _first_slot(blocks)
    n = (blocks.replies > 0).sum(axis=2)
    totals = np.where(blocks.replies > 0, blocks.replies, 0).sum(axis=2)
    means = totals / np.maximum(n, 1)
    steps = blocks.means(means[:, 1] - means[:, 0], (n[:, 0] > 0) & (n[:, 1] > 0))
    unit = 1.0 if blocks.span is None else blocks.span.step
    return float(steps.mean()) * unit if len(steps) else None


def _first_slot(blocks: Blocks) -> float | None:
    """Share of answers at slot 1 minus that of the same answers with the views exchanged."""
    assert blocks.slots is not None
    first, at_first = blocks.replies[:, :, 0], []
    for answers in (first, first[:, ::-1]):
        classes = np.maximum(answers, 1)[..., None] - 1
        place = np.take_along_axis(blocks.slots, classes, axis=2)[..., 0]
        at_first.append(np.where(place > 0, (place == 1).astype(np.float64), math.nan))
    lean = (at_first[0] - at_first[1]).mean(axis=1)
    read = (first[:, 0] > 0) & (first[:, 1] > 0) & ~np.isnan(lean)
    found = blocks.means(lean, read)
    return float(found.mean()) if len(found) else None


def moves(blocks: Blocks) -> tuple[int, int] | None:
    """Pairs of first replies that move up and down from the first of two views to the second."""
    if blocks.n_views != 2 or blocks.nominal:
        return None
    a, b = blocks.replies[:, 0, 0], blocks.replies[:, 1, 0]
    moved = (a > 0) & (b > 0) & blocks.differ(a, b)
    return int((moved & (b > a)).sum()), int((moved & (b < a)).sum())


# --- readability ------------------------------------------------------------------------------


def readability_p(blocks: Blocks) -> float:
    """Smallest p, Bonferroni over pairs of views, that one view is read less often (sign test)."""
    unread = (blocks.replies[:, :, 0] == 0).astype(np.float64)
    pairs, least = list(combinations(range(blocks.n_views), 2)), 1.0
    for a, b in pairs:
        moved = blocks.totals(unread[:, a] - unread[:, b])
        up, down = int((moved > 0).sum()), int((moved < 0).sum())
        if up + down:
            least = min(least, 2 * float(special.bdtr(min(up, down), up + down, 0.5)))
    return min(1.0, len(pairs) * least)
