"""Classes under several views -> how often they differ, and whether noise alone would do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.base.checks import interval_level
from flipmeter.measure.inference.blocks import pairs_in
from flipmeter.measure.panel.checked import (
    Booleans,
    Ints,
    Ranks,
    ranks,
    same_length,
)
from flipmeter.measure.panel.groups import (
    Estimates,
    Groups,
    one_group,
)
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.registry import suggestion
from flipmeter.types import LEVEL, Estimate, Mode, Policy, Problem

POLICIES: tuple[Policy, ...] = ("complete", "strict", "bounds")
WIDE = 0.02


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


def silent_noise(n: int, n_complete: int, strict: int) -> str:
    """Warn of noise that is exactly 0: a cached reply looks like a model that never wavers."""
    if strict or not n_complete:
        return ""
    return f"0 of {n:,} differ; at a temperature above 0 look for cached replies"


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
