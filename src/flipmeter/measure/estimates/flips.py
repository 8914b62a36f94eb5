"""Classes under several views -> how often they differ, and whether noise alone would do it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flipmeter.measure.inference.sizes import grouped_excess
from flipmeter.measure.panel.checked import Ints, Ranks, rank_table, ranks, ratio, same_length
from flipmeter.measure.panel.groups import (
    Estimates,
    Groups,
    estimates,
    joined,
    one_group,
)
from flipmeter.measure.statistics.formulas import METHODS, mcnemar, wilson
from flipmeter.registry import suggestion
from flipmeter.types import LEVEL, Estimate, Policy, Problem

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
    """Share of items whose class differs between two views, with its Wilson interval.

    `complete` drops an item that failed on either side. `strict` treats "no class" as a class of
    its own: one failure is a flip, two are not. `bounds` gives the complete rate between "every
    failure would have agreed" and "every failure would have flipped": limits, not a confidence
    interval.
    """
    first, second = ranks(a, "a", n_classes), ranks(b, "b", n_classes)
    same_length(a=first, b=second)
    counts = count_flips([first, second], one_group(len(first)))
    return estimate_flips(counts, policy, level=level).only()


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
    counts = count_flips(list(table.T), one_group(len(table)))
    return estimate_flips(counts, policy, level=level).only()


def noise_floor(a: npt.ArrayLike, a_prime: npt.ArrayLike, policy: Policy = "complete") -> Estimate:
    """Share of items whose class differs between two runs of the same prompts."""
    first, second = ranks(a, "a"), ranks(a_prime, "a_prime")
    same_length(a=first, a_prime=second)
    counts = count_flips([first, second], one_group(len(first)))
    rate = estimate_flips(counts, policy, "noise").only()
    silent = silent_noise(len(first), int(counts.n_complete[0]), int(counts.strict[0]))
    return replace(rate, note=joined(rate.note, silent))


def silent_noise(n: int, n_complete: int, strict: int) -> str:
    """Warn of noise that is exactly 0: a cached reply looks like a model that never wavers."""
    if strict or not n_complete:
        return ""
    return f"0 of {n} differ; at a temperature above 0 look for cached replies"


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
    views: tuple[Ranks, Ranks], runs: tuple[Ranks, Ranks], policy: Policy, groups: Groups
) -> tuple[Ints, Ints, Ints]:
    """Count the items compared, those only the views flip (b) and those only the runs flip (c)."""
    if policy == "bounds":
        raise Problem("a test needs one answer per item; use policy 'complete' or 'strict'")
    moved, noisy = views[0] != views[1], runs[0] != runs[1]
    kept = np.ones_like(moved)
    if policy == "complete":
        kept = np.min([*views, *runs], axis=0) > 0
    only_moved, only_noisy = kept & moved & ~noisy, kept & noisy & ~moved
    return groups.count(kept), groups.count(only_moved), groups.count(only_noisy)


def excess_disagreement(
    a: npt.ArrayLike, a_prime: npt.ArrayLike, b: npt.ArrayLike, b_prime: npt.ArrayLike
) -> Estimate:
    """How much two views disagree beyond what two runs of each disagree with themselves.

    Unbiased for half the sum of (p - q)^2, which is 0 only if both views give the same answers
    with the same chances. Single estimates may fall below 0. The interval is that of a verdict.
    """
    runs = [ranks(run, "runs") for run in (a, a_prime, b, b_prime)]
    same_length(a=runs[0], a_prime=runs[1], b=runs[2], b_prime=runs[3])
    one, n = one_group(len(runs[0])), len(runs[0])
    first, again = np.stack(runs[::2], axis=1), np.stack(runs[1::2], axis=1)
    return grouped_excess(first, again, np.arange(n), one, "excess").only()


@dataclass(frozen=True)
class FlipCounts:
    """Everything the three policies need to know of each group: a rate is a division away."""

    n: Ints
    n_complete: Ints
    flipped: Ints
    strict: Ints
    surely: Ints
    possibly: Ints


def count_flips(conditions: Sequence[Ranks], groups: Groups) -> FlipCounts:
    """Count the items that differ between conditions, failures set apart.

    An item surely differs once two different classes were read, whatever its failures hide.
    """
    table = np.stack(conditions)
    lowest, highest = table.min(axis=0), table.max(axis=0)
    complete, strict = lowest > 0, lowest != highest
    lowest_read = np.where(table > 0, table, np.iinfo(np.int64).max).min(axis=0)
    surely = lowest_read < highest
    return FlipCounts(
        n=groups.count(),
        n_complete=groups.count(complete),
        flipped=groups.count(complete & strict),
        strict=groups.count(strict),
        surely=groups.count(surely),
        possibly=groups.count(surely | ~complete),
    )


def estimate_flips(
    counts: FlipCounts, policy: Policy, metric: str = "flip_rate", level: float = LEVEL
) -> Estimates:
    """Turn counts into rates under one policy."""
    if policy == "complete":
        return _complete(counts, metric, level)
    if policy == "strict":
        k, n, failed = counts.strict, counts.n, counts.n - counts.n_complete
        return estimates(metric, ratio(k, n), wilson(k, n, level), n=n, k=k, failed=failed)
    if policy == "bounds":
        return _bounds(counts, metric)
    raise Problem(f"no policy named '{policy}'{suggestion(policy, list(POLICIES))}")


def _complete(counts: FlipCounts, metric: str, level: float) -> Estimates:
    k, n, failed = counts.flipped, counts.n_complete, counts.n - counts.n_complete
    low, high = (np.where(n > 0, end, np.nan) for end in wilson(k, n, level))
    note = ["" if size else "no complete pair: every item has a failure" for size in n.tolist()]
    return estimates(metric, ratio(k, n), (low, high), n=n, k=k, failed=failed, note=note)


def _bounds(counts: FlipCounts, metric: str) -> Estimates:
    n, k, failed = counts.n, counts.flipped, counts.n - counts.n_complete
    low, high = ratio(counts.surely, n), ratio(counts.possibly, n)
    note = [_width_note(width) for width in (high - low).tolist()]
    value = ratio(k, counts.n_complete)
    return estimates(metric, value, (low, high), n=n, k=k, failed=failed, note=note)


def _width_note(width: float) -> str:
    note = "bounds, not a confidence interval"
    return note + (f"; failures leave {100 * width:.1f} pts open" if width > WIDE else "")
