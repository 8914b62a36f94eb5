"""Classes under several views -> how often they differ, and whether noise alone would do it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from flipmeter.measure.arrays import Ranks, rank_table, ranks, same_length
from flipmeter.measure.inference import METHODS, Z95, mcnemar, wilson
from flipmeter.registry import suggestion
from flipmeter.types import Estimate, Policy, Problem

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
    level: float = 0.95,
) -> Estimate:
    """Share of items whose class differs between two views, with its Wilson interval.

    `complete` drops an item that failed on either side. `strict` treats "no class" as a class of
    its own: one failure is a flip, two are not. `bounds` gives the complete rate between "every
    failure would have agreed" and "every failure would have flipped": limits, not a confidence
    interval.
    """
    first, second = ranks(a, "a", n_classes), ranks(b, "b", n_classes)
    same_length(a=first, b=second)
    return estimate_flips(count_flips([first, second]), policy, level=level)


def flip_rate_any(
    matrix: npt.ArrayLike,
    policy: Policy = "complete",
    *,
    n_classes: int | None = None,
    level: float = 0.95,
) -> Estimate:
    """Share of items whose class is not the same in all conditions (items x conditions).

    It grows with the number of conditions: compare it only with itself. Two classes that were
    read differ whatever a third failure hides, so `complete` may lie below the lower bound.
    """
    table = rank_table(matrix, "matrix", n_classes)
    return estimate_flips(count_flips(list(table.T)), policy, level=level)


def noise_floor(a: npt.ArrayLike, a_prime: npt.ArrayLike, policy: Policy = "complete") -> Estimate:
    """Share of items whose class differs between two runs of the same prompts."""
    first, second = ranks(a, "a"), ranks(a_prime, "a_prime")
    same_length(a=first, a_prime=second)
    counts = count_flips([first, second])
    rate = estimate_flips(counts, policy, "noise")
    return replace(rate, note=joined(rate.note, silent_noise(counts)))


def silent_noise(counts: FlipCounts) -> str:
    """Warn of noise that is exactly 0: a cached reply looks like a model that never wavers."""
    if counts.strict or not counts.n_complete:
        return ""
    return f"0 of {counts.n} differ; at a temperature above 0 look for cached replies"


def joined(*notes: str) -> str:
    """Put several notes into one."""
    return "; ".join(note for note in notes if note)


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
    n, b, c = count_discordant((x, y), (u, v), policy)
    p = [mcnemar(b, c, method) if n else math.nan for method in METHODS]
    total = replace(flip_rate(x, y, policy), metric="total")
    return NoiseTest(noise_floor(u, v, policy), total, n, b, c, *p)


def count_discordant(
    views: tuple[Ranks, Ranks], runs: tuple[Ranks, Ranks], policy: Policy
) -> tuple[int, int, int]:
    """Count the items compared, those only the views flip (b) and those only the runs flip (c)."""
    if policy == "bounds":
        raise Problem("a test needs one answer per item; use policy 'complete' or 'strict'")
    moved, noisy = views[0] != views[1], runs[0] != runs[1]
    kept = np.ones_like(moved)
    if policy == "complete":
        kept = np.min([*views, *runs], axis=0) > 0
    b, c = kept & moved & ~noisy, kept & noisy & ~moved
    return int(np.count_nonzero(kept)), int(np.count_nonzero(b)), int(np.count_nonzero(c))


def excess_disagreement(
    a: npt.ArrayLike,
    a_prime: npt.ArrayLike,
    b: npt.ArrayLike,
    b_prime: npt.ArrayLike,
    *,
    ordinal: bool = False,
) -> Estimate:
    """How much two views disagree beyond what two runs of each disagree with themselves.

    Unbiased for half the sum of (p - q)^2, which is 0 only if both views give the same answers
    with the same chances; `ordinal` counts the distance instead of the flip. Single estimates may
    fall below 0. The interval is the normal one, over items read in all four runs.
    """
    runs = [ranks(run, "runs") for run in (a, a_prime, b, b_prime)]
    same_length(a=runs[0], a_prime=runs[1], b=runs[2], b_prime=runs[3])
    kept = np.min(runs, axis=0) > 0
    x, x2, y, y2 = (run[kept] for run in runs)
    across = (_apart(x, y, ordinal) + _apart(x, y2, ordinal)) / 4
    across += (_apart(x2, y, ordinal) + _apart(x2, y2, ordinal)) / 4
    excess = across - (_apart(x, x2, ordinal) + _apart(y, y2, ordinal)) / 2
    return mean_estimate(excess, "excess", failed=int((~kept).sum()))


def mean_estimate(
    values: npt.NDArray[np.float64], metric: str, failed: int = 0, note: str = ""
) -> Estimate:
    """Mean of a number per item, with the normal 95 % interval; fewer than two items have none."""
    n = len(values)
    if n == 0:
        return Estimate(math.nan, failed=failed, metric=metric, note=note or "no complete item")
    mean = float(values.mean())
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(mean, mean - half, mean + half, n, failed=failed, metric=metric, note=note)


def _apart(x: Ranks, y: Ranks, ordinal: bool) -> npt.NDArray[np.float64]:
    return np.asarray(np.abs(x - y) if ordinal else x != y, dtype=np.float64)


@dataclass(frozen=True)
class FlipCounts:
    """Everything the three policies need to know: a rate is a division away."""

    n: int
    n_complete: int
    flipped: int
    strict: int
    surely: int
    possibly: int


def count_flips(conditions: Sequence[Ranks]) -> FlipCounts:
    """Count the items that differ between conditions, failures set apart.

    An item surely differs once two different classes were read, whatever its failures hide.
    """
    table = np.stack(conditions)
    lowest, highest = table.min(axis=0), table.max(axis=0)
    complete, strict = lowest > 0, lowest != highest
    lowest_read = np.where(table > 0, table, np.iinfo(np.int64).max).min(axis=0)
    surely = lowest_read < highest
    return FlipCounts(
        n=table.shape[1],
        n_complete=int(np.count_nonzero(complete)),
        flipped=int(np.count_nonzero(complete & strict)),
        strict=int(np.count_nonzero(strict)),
        surely=int(np.count_nonzero(surely)),
        possibly=int(np.count_nonzero(surely | ~complete)),
    )


def estimate_flips(
    counts: FlipCounts, policy: Policy, metric: str = "flip_rate", level: float = 0.95
) -> Estimate:
    """Turn counts into a rate under one policy."""
    if policy == "complete":
        return _complete(counts, metric, level)
    if policy == "strict":
        low, high = wilson(counts.strict, counts.n, level)
        value, failed = counts.strict / counts.n, counts.n - counts.n_complete
        return Estimate(value, low, high, counts.n, counts.strict, failed, metric)
    if policy == "bounds":
        return _bounds(counts, metric)
    raise Problem(f"no policy named '{policy}'{suggestion(policy, list(POLICIES))}")


def _complete(counts: FlipCounts, metric: str, level: float) -> Estimate:
    k, n, failed = counts.flipped, counts.n_complete, counts.n - counts.n_complete
    if n == 0:
        note = "no complete pair: every item has a failure"
        return Estimate(math.nan, k=0, failed=failed, metric=metric, note=note)
    low, high = wilson(k, n, level)
    return Estimate(k / n, low, high, n, k, failed, metric)


def _bounds(counts: FlipCounts, metric: str) -> Estimate:
    n, n_complete = counts.n, counts.n_complete
    low, high = counts.surely / n, counts.possibly / n
    note = "bounds, not a confidence interval"
    if high - low > WIDE:
        note += f"; failures leave {100 * (high - low):.1f} pts open"
    value = counts.flipped / n_complete if n_complete else math.nan
    return Estimate(value, low, high, n, counts.flipped, n - n_complete, metric, note=note)
