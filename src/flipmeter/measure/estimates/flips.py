"""Classes under several views -> how often they differ, and whether noise alone would do it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.base.checks import interval_level
from flipmeter.measure.inference.blocks import pairs_in
from flipmeter.measure.inference.sizes import grouped_excess
from flipmeter.measure.panel.checked import (
    Booleans,
    Ints,
    Ranks,
    rank_table,
    ranks,
    same_length,
)
from flipmeter.measure.panel.groups import (
    Estimates,
    Groups,
    joined,
    one_group,
)
from flipmeter.measure.statistics.formulas import METHODS, mcnemar
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.registry import suggestion
from flipmeter.types import LEVEL, Estimate, Mode, Policy, Problem

POLICIES: tuple[Policy, ...] = ("complete", "strict", "bounds")
WIDE = 0.02


@dataclass(frozen=True)
class NoiseTest:
    """Flips between views against flips between two runs of one view, on the same items.

    b counts the items that only the change of view flips, c those that only the repeat flips, n
    all that were compared. The p-values are one-sided: does the view flip more than the noise?
    """

    noise: Estimate
    total: Estimate
    n: int
    b: int
    c: int
    mid_p: float
    exact_p: float
    paper_p: float


def flip_rate(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    policy: Policy = "complete",
    *,
    n_classes: int | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Share of items whose class differs between two views, with the interval of a verdict.

    `complete` drops an item that failed on either side. `strict` treats "no class" as a class of
    its own: one failure is a flip, two are not. `bounds` gives the complete rate between "every
    failure would have agreed" and "every failure would have flipped": limits, not a confidence
    interval.
    """
    first, second = ranks(a, "a", n_classes), ranks(b, "b", n_classes)
    same_length(a=first, b=second)
    found = find_flips([first, second], one_group(len(first)))
    return estimate_flips(found, policy, level=level).only()


def flip_rate_any(
    matrix: npt.ArrayLike,
    policy: Policy = "complete",
    *,
    n_classes: int | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Share of items whose class is not the same in all conditions (items x conditions).

    It grows with the number of conditions: compare it only with itself. Two classes that were
    read differ whatever a third failure hides, so `complete` may lie below the lower bound.
    """
    table = rank_table(matrix, "matrix", n_classes)
    found = find_flips(list(table.T), one_group(len(table)))
    return estimate_flips(found, policy, level=level).only()


def noise_floor(a: npt.ArrayLike, a_prime: npt.ArrayLike, policy: Policy = "complete") -> Estimate:
    """Share of items whose class differs between two runs of the same prompts."""
    first, second = ranks(a, "a"), ranks(a_prime, "a_prime")
    same_length(a=first, a_prime=second)
    found = find_flips([first, second], one_group(len(first)))
    rate = estimate_flips(found, policy, "noise").only()
    silent = silent_noise(len(first), int(found.n_complete[0]), int(found.n_strict[0]))
    return replace(rate, note=joined(rate.note, silent))


def silent_noise(n: int, n_complete: int, strict: int) -> str:
    """Warn of noise that is exactly 0: a cached reply looks like a model that never wavers."""
    if strict or not n_complete:
        return ""
    return f"0 of {n:,} differ; at a temperature above 0 look for cached replies"


def total_vs_noise(
    base: npt.ArrayLike, other: npt.ArrayLike, repeat: npt.ArrayLike, policy: Policy = "complete"
) -> NoiseTest:
    """Test whether going from base to other flips more items than running base again.

    `complete` tests the items read in all three runs; each rate keeps the pairs of its own.
    """
    return compare_with_noise((base, other), (base, repeat), policy)


def compare_with_noise(
    views: tuple[npt.ArrayLike, npt.ArrayLike],
    runs: tuple[npt.ArrayLike, npt.ArrayLike],
    policy: Policy = "complete",
) -> NoiseTest:
    """Test the flips between two views against those between two runs, of whichever view."""
    (x, y), (u, v) = [ranks(side, "views") for side in views], [ranks(run, "runs") for run in runs]
    same_length(base=x, other=y, run=u, repeat=v)
    counts = count_discordant((x, y), (u, v), policy, one_group(len(x)))
    n, b, c = (int(count[0]) for count in counts)
    p = [mcnemar(b, c, method) if n else math.nan for method in METHODS]
    total = replace(flip_rate(x, y, policy), metric="total")
    return NoiseTest(noise_floor(u, v, policy), total, n, b, c, *p)


def count_discordant(
    views: tuple[Ranks, Ranks],
    runs: tuple[Ranks, Ranks],
    policy: Policy,
    groups: Groups,
    tolerance: Ints | int = 0,
) -> tuple[Ints, Ints, Ints]:
    """Count the items compared, those only the views flip (b) and those only the runs flip (c)."""
    if policy == "bounds":
        raise Problem("a test needs one answer per item; use policy 'complete' or 'strict'")
    moved, noisy = (_strictly(np.stack(pair), tolerance) for pair in (views, runs))
    kept = np.ones_like(moved)
    if policy == "complete":
        kept = np.min([*views, *runs], axis=0) > 0
    only_moved, only_noisy = kept & moved & ~noisy, kept & noisy & ~moved
    return groups.count(kept), groups.count(only_moved), groups.count(only_noisy)


def excess_disagreement(
    a: npt.ArrayLike, a_prime: npt.ArrayLike, b: npt.ArrayLike, b_prime: npt.ArrayLike
) -> Estimate:
    """Disagreement between two views beyond that between two runs of each.

    Unbiased for half the sum of (p - q)^2, which is 0 only if both views give the same answers
    with the same chances. Single estimates may fall below 0. The interval is that of a verdict.
    """
    runs = [ranks(run, "runs") for run in (a, a_prime, b, b_prime)]
    same_length(a=runs[0], a_prime=runs[1], b=runs[2], b_prime=runs[3])
    one, n = one_group(len(runs[0])), len(runs[0])
    first, again = np.stack(runs[::2], axis=1), np.stack(runs[1::2], axis=1)
    return grouped_excess(first, again, np.arange(n), one, "excess").only()


@dataclass(frozen=True)
class FlipPairs:
    """Items of every group that differ between conditions, failures set apart.

    `pairs` and `differ` count the pairs of conditions of each item: all, or one that stands for
    "any of them"; `read` are those without a failure. `strict` counts a failure as a class of its
    own. `certain` differ whatever failures hide, and `possible` differ if all failures do.
    """

    groups: Groups
    pairs: Ints
    read: Ints
    differ: Ints
    strict: Ints
    certain: Ints
    possible: Ints

    @property
    def n(self) -> Ints:
        return self.groups.count()

    @property
    def n_complete(self) -> Ints:
        """Items of every group with nothing to set apart."""
        return self.groups.count((self.read == self.pairs) & (self.pairs > 0))

    @property
    def n_strict(self) -> Ints:
        return self.groups.count(self.strict > 0)


def find_flips(conditions: Sequence[Ranks], groups: Groups, tolerance: Ints | int = 0) -> FlipPairs:
    """Find the items that differ between any of some conditions.

    An item certainly differs once two different classes were read, whatever its failures hide.
    `tolerance` is how many ranks the answers to each item may lie apart and be the same.
    """
    table = np.stack(conditions)
    complete, certain = table.min(axis=0) > 0, spread(table) > tolerance
    strict = _strictly(table, tolerance)
    marks = (np.ones_like(complete), complete, complete & strict, strict)
    found = (*marks, certain, certain | ~complete)
    return FlipPairs(groups, *(mark.astype(np.int64) for mark in found))


def find_pair_flips(replies: Ints, groups: Groups, tolerance: Ints | int = 0) -> FlipPairs:
    """Find the pairs of conditions that differ, of replies as the core has them (E7)."""
    asked, read, differ = pairs_in(replies, tolerance)
    # With "no class" as a class of its own every pair that was asked is read.
    one_failed = _one_failed(replies)
    return FlipPairs(
        groups, asked, read, differ, differ + one_failed, differ, differ + asked - read
    )


def _one_failed(replies: Ints) -> Ints:
    """Pairs of conditions of every item of which exactly one could not be read."""
    n_read, n_failed = (replies > 0).sum(axis=1), (replies == 0).sum(axis=1)
    return np.asarray(n_read * n_failed)


def spread(table: Ranks) -> Ints:
    """Ranks between the lowest and the highest that was read of each item (conditions x items)."""
    highest = table.max(axis=0)
    lowest_read = np.where(table > 0, table, np.iinfo(np.int64).max).min(axis=0)
    return np.where(highest > 0, highest - np.minimum(lowest_read, highest), 0)


def _strictly(table: Ranks, tolerance: Ints | int) -> Booleans:
    """Mark the items that differ where "no class" is a class of its own (conditions x items)."""
    some_failed = (table.min(axis=0) < 1) & (table.max(axis=0) > 0)
    return np.asarray(some_failed | (spread(table) > tolerance))


def estimate_flips(
    found: FlipPairs,
    policy: Policy,
    metric: str = "flip_rate",
    *,
    level: float = LEVEL,
    mode: Mode = "recommended",
) -> Estimates:
    """Turn flips into rates under one policy."""
    alpha, failed = 1 - interval_level(level), found.n - found.n_complete
    if policy == "complete":
        read = found.groups.count(found.read > 0)
        note = ["" if size else "no complete pair: every item has a failure" for size in read]
        told: dict[str, Any] = {"failed": failed, "note": note, "mode": mode, "alpha": alpha}
        return share_estimates(metric, found.differ, found.read, found.groups, **told)
    if policy == "strict":
        told = {"failed": failed, "mode": mode, "alpha": alpha}
        return share_estimates(metric, found.strict, found.pairs, found.groups, **told)
    if policy == "bounds":
        return _bounds(found, metric, failed)
    raise Problem(f"no policy named '{policy}'{suggestion(policy, list(POLICIES))}")


def _bounds(found: FlipPairs, metric: str, failed: Ints) -> Estimates:
    """Limits that failures leave open around the rate of what was read."""
    rate, low, high = (
        share_estimates(metric, hits, trials, found.groups)
        for hits, trials in (
            (found.differ, found.read),
            (found.certain, found.pairs),
            (found.possible, found.pairs),
        )
    )
    note = [_width_note(width) for width in (high.value - low.value).tolist()]
    return replace(
        rate, low=low.value, high=high.value, n=found.n, k=rate.k, failed=failed, note=note
    )


def _width_note(width: float) -> str:
    note = "bounds, not a confidence interval"
    return note + (f"; failures leave {100 * width:.1f} pts open" if width > WIDE else "")
