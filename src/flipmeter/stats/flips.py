"""Classes under several views -> how often they differ, and whether noise alone would do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.checks import interval_level
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.blocks import pairs_in
from flipmeter.stats.formulas import share_estimates
from flipmeter.stats.groups import Estimates, Groups, Ints, one_group, ranks, same_length
from flipmeter.types import LEVEL, Estimate, Mode, Policy

POLICIES: tuple[Policy, ...] = ("complete", "strict", "bounds")
WIDE = 0.02
BOUNDS = "bounds, not a confidence interval"


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
    found = find_flips(np.stack([first, second], axis=1), one_group(len(first)))
    return estimate_flips(found, policy, level=level).only()


def silent_noise(n: int, n_complete: int, strict: int) -> str:
    """Warn of noise that is exactly 0: a cached reply looks like a model that never wavers."""
    if strict or not n_complete:
        return ""
    return f"0 of {n:,} differ; at a temperature above 0 look for cached replies"


def count_discordant(
    views: Ints, runs: Ints, policy: Policy, groups: Groups, tolerance: Ints | int = 0
) -> tuple[Ints, Ints, Ints]:
    """Count the items compared, those only the views flip (b) and those only the runs flip (c)."""
    if policy == "bounds":
        raise Problem("a test needs one answer per item; use policy 'complete' or 'strict'")
    moved, noisy = (find_flips(pair, groups, tolerance).strict > 0 for pair in (views, runs))
    kept = np.ones_like(moved)
    if policy == "complete":
        kept = np.minimum(views, runs).min(axis=1) > 0
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


def find_flips(
    replies: Ints, groups: Groups, tolerance: Ints | int = 0, *, of_any: bool = False
) -> FlipPairs:
    """Count the pairs of views that differ of every item (items x views), as a verdict does (E7).

    `of_any` puts "any of them" in the place of the pairs: an item certainly differs once two
    different classes were read, whatever its failures hide. `tolerance` is how many ranks the
    answers to each item may lie apart and be the same.
    """
    asked, read, differ = pairs_in(replies, tolerance)
    one_failed = (replies > 0).sum(axis=1) * (replies == 0).sum(axis=1)
    # With "no class" as a class of its own every pair that was asked is read.
    counts = (differ + one_failed, differ, differ + asked - read)
    if not of_any:
        return FlipPairs(groups, asked, read, differ, *counts)
    complete = read == asked
    marks = (asked, complete, complete & (differ > 0), *counts)
    return FlipPairs(groups, *((mark > 0).astype(np.int64) for mark in marks))


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
    told: dict[str, Any] = {"failed": failed, "mode": mode, "alpha": alpha}
    if policy == "complete":
        read = found.groups.count(found.read > 0)
        note = ["" if size else "no complete pair: every item has a failure" for size in read]
        return share_estimates(metric, found.differ, found.read, found.groups, note=note, **told)
    if policy == "strict":
        return share_estimates(metric, found.strict, found.pairs, found.groups, **told)
    if policy == "bounds":
        return _failure_bounds(found, metric, failed)
    raise Problem(f"no policy named '{policy}'{suggestion(policy, list(POLICIES))}")


def _failure_bounds(found: FlipPairs, metric: str, failed: Ints) -> Estimates:
    """Limits that failures leave open around the rate of what was read."""
    rate, low, high = (
        share_estimates(metric, hits, trials, found.groups)
        for hits, trials in (
            (found.differ, found.read),
            (found.certain, found.pairs),
            (found.possible, found.pairs),
        )
    )
    note = [
        BOUNDS + (f"; failures leave {100 * width:.1f} pts open" if width > WIDE else "")
        for width in (high.value - low.value).tolist()
    ]
    return replace(rate, low=low.value, high=high.value, n=found.n, failed=failed, note=note)
