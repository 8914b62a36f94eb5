"""Candidates on shared items -> bounds that hold for whichever of them is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.errors import Problem
from flipmeter.stats.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.stats.groups import Booleans, Floats, ratio
from flipmeter.types import ALPHA

DRAWS = 20_000
LOOSE = 5.0
"""Pseudo-items on which candidates flip independently: few items show little correlation."""


@dataclass(frozen=True)
class Chosen:
    """Bounds of every candidate that hold together; each alone stands at 1 - `level`."""

    bounds: tuple[Bounded, ...]
    level: float
    n_candidates: int


def simultaneous(
    hits: npt.ArrayLike,
    trials: npt.ArrayLike | None = None,
    *,
    looked_at: int | None = None,
) -> Chosen:
    """Bound the flip rates of all candidates at once, from items x candidates of flips.

    `trials` counts the readable pairs behind each cell (one each if left out). `looked_at` is the
    number of candidates that were looked at, where only some of them are given.
    """
    flips = np.asarray(hits, dtype=np.float64)
    if flips.ndim != 2 or not flips.size:
        raise Problem(f"flips must be items x candidates; got shape {flips.shape}")
    asked = np.ones_like(flips) if trials is None else np.asarray(trials, dtype=np.float64)
    if asked.shape != flips.shape:
        raise Problem(f"trials has shape {asked.shape} but flips has {flips.shape}; align them")
    given = flips.shape[1]
    more = max(looked_at or given, given) - given
    level = joint_level(_cell_flip_shares(flips, asked), ALPHA) if not more else 0.0
    level = max(level, ALPHA / (given + more))
    bounds = [bounded_share(flips[:, c], asked[:, c], level) for c in range(given)]
    return Chosen(tuple(bounds), level, given + more)


def joint_level(shares: Floats, alpha: float, *, seed: int = 0) -> float:
    """Level of each of several bounds at which all hold at 1 - alpha, by their correlation.

    Between Bonferroni's and alpha: the quantile of the largest of normals as correlated as the
    candidates' flips are over shared items (max-t).
    """
    n_candidates = shares.shape[1]
    if n_candidates == 1:
        return alpha
    root = np.linalg.cholesky(correlation(shares))
    normal = _normal_draws(n_candidates, seed) @ root.T
    cut = float(np.quantile(normal.max(axis=1), 1 - alpha))
    return float(np.clip(special.ndtr(-cut), alpha / n_candidates, alpha))


@lru_cache(maxsize=4)
def _normal_draws(n_candidates: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal((DRAWS, n_candidates))


def correlation(shares: Floats) -> Floats:
    """Correlation of candidates over items, drawn towards none where items are few."""
    centred = shares - shares.mean(axis=0)
    scale = np.sqrt((centred**2).mean(axis=0))
    unit = centred / np.where(scale > 0, scale, 1.0)
    n = len(shares)
    found = unit.T @ unit / (n + LOOSE)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def _cell_flip_shares(flips: Floats, asked: Floats) -> Floats:
    """Share of flips in each cell, the candidate's mean where an item could not be read."""
    shares = flips / np.where(asked > 0, asked, 1.0)
    means = np.where(asked > 0, shares, 0.0).sum(axis=0) / np.maximum((asked > 0).sum(axis=0), 1)
    return np.where(asked > 0, shares, means)


def simultaneous_means(values: Floats) -> Chosen:
    """Bound the means of all candidates at once, from items x candidates of values in 0 to 1."""
    level = joint_level(values, ALPHA)
    bounds = [bounded_mean(one, level, bottom=0.0, top=1.0) for one in values.T]
    return Chosen(tuple(bounds), level, values.shape[1])


# --- limits over several contrasts ------------------------------------------------------------


@dataclass(frozen=True)
class PairCounts:
    """Pairs of every candidate and contrast by shared cluster: compared, readable and different.

    All three are candidates x contrasts x clusters. `varies` (candidates x contrasts) is false
    where a contrast cannot change the prompt, so that nothing can flip.
    """

    asked: Floats
    read: Floats
    differ: Floats
    varies: Booleans

    def on(self, clusters: Booleans | npt.NDArray[np.int64]) -> PairCounts:
        """The counts of only these clusters."""
        return replace(
            self,
            asked=self.asked[:, :, clusters],
            read=self.read[:, :, clusters],
            differ=self.differ[:, :, clusters],
        )

    @property
    def rates(self) -> Floats:
        """Share of the readable pairs that differ, NaN in clusters without one."""
        return ratio(self.differ, self.read)

    @property
    def unreadable(self) -> Floats:
        """Mean share of pairs that cannot be read, by candidate and contrast; NaN without pairs."""
        shares = ratio(self.asked - self.read, self.asked)
        return ratio(np.nan_to_num(shares).sum(axis=-1), (self.asked > 0).sum(axis=-1))


def limit_levels(
    pairs: PairCounts,
    limits: Floats,
    *,
    with_others: bool = True,
) -> Floats:
    """Level of the bounds on each contrast at which they hold for all candidates together.

    Contrasts with a limit (the others have infinity) share one level: a candidate passes only if
    all of its bounds do, so that Bonferroni counts candidates and not contrasts, whereas the max-t
    level is that of all bounds. `with_others=False` leaves out the others' levels.
    """
    limited = np.isfinite(limits)
    shared = _joint_alpha(pairs, np.flatnonzero(limited).tolist())
    if not with_others:
        return np.where(limited, shared, np.nan)
    own = (_joint_alpha(pairs, [at]) for at in np.flatnonzero(~limited).tolist())
    levels = np.full(len(limits), shared)
    levels[~limited] = list(own)
    return levels


def _joint_alpha(pairs: PairCounts, contrasts: list[int]) -> float:
    columns = pairs.varies[:, contrasts]
    if not columns.any():
        return ALPHA
    differ, read = (part[:, contrasts][columns].T for part in (pairs.differ, pairs.read))
    shared = joint_level(_cell_flip_shares(differ, read), ALPHA)
    return max(shared, ALPHA / int(columns.any(axis=1).sum()))


def bounds_of(pairs: PairCounts, levels: Floats) -> list[list[Bounded]]:
    """Flip rate of every candidate (and contrast) with bounds at the level of its contrast."""
    return [
        [
            bounded_share(differ, read, float(level)) if varies else CANNOT_FLIP
            for differ, read, varies, level in zip(*one, levels, strict=True)
        ]
        for one in zip(pairs.differ, pairs.read, pairs.varies, strict=True)
    ]


CANNOT_FLIP = Bounded(math.nan, 0.0, 0.0, 0.0, 0.0, 0)


def within_limits(
    pairs: PairCounts,
    limits: Floats,
    levels: Floats,
    *,
    unreadable_limit: float,
    samples: npt.NDArray[np.floating] | None = None,
    alpha: float = ALPHA,
) -> Booleans:
    """Mark the candidates whose flips are shown to be below all limits, in every sample.

    A row of `samples` says how often each cluster stands in it; without any there is one, with
    every cluster once. Candidates pass where the bound of `bounded_share` at the level of all of
    them is below the limit; then the others are tested at the level of those that remain, until no
    more pass (step-down): in at most alpha a candidate passes that is at its limit or above.
    Candidates whose unreadable share under a limited contrast is above `unreadable_limit` are not
    allowed.
    """
    drawn = np.ones((1, pairs.read.shape[2]))
    if samples is not None:
        drawn = samples.astype(np.float64, copy=False)
    can_fail = np.zeros(len(pairs.varies), dtype=np.bool_)
    readable = np.ones((len(drawn), len(pairs.varies)), dtype=np.bool_)
    held: list[tuple[npt.NDArray[np.int64], _Held]] = []
    for at in np.flatnonzero(limits <= 1):
        of = np.flatnonzero(pairs.varies[:, at])
        asked, read, differ = (part[of, at] for part in (pairs.asked, pairs.read, pairs.differ))
        readable[:, of] &= ~is_unreadable(
            _mean_cluster_share(asked - read, asked, drawn), unreadable_limit
        )
        can_fail[of] = True
        held.append((of, _hold_cluster_shares(differ, read, float(limits[at]), drawn)))
    return _stepped_down(held, readable, can_fail, levels[limits <= 1], alpha)


def _stepped_down(
    held: list[tuple[npt.NDArray[np.int64], _Held]],
    readable: Booleans,
    can_fail: Booleans,
    levels: Floats,
    alpha: float,
) -> Booleans:
    allowed, left = readable & ~can_fail, np.full(len(readable), can_fail.sum())
    while held:
        level = np.maximum(levels[0], alpha / np.maximum(left, 1))[:, None]
        allowed = readable.copy()
        for of, one in held:
            allowed[:, of] &= one.is_below(level)
        now = (can_fail & ~allowed).sum(axis=1)
        if (now >= left).all():
            break
        left = np.minimum(now, left)
    return allowed


def is_unreadable(shares: Floats, limit: float) -> Booleans:
    """Mark shares of unreadable pairs that are above their limit; there may be none (NaN)."""
    return np.asarray(shares.round(9) > limit)


@dataclass(frozen=True)
class _Held:
    """Shares of candidates in samples (samples x candidates) that are compared with a limit.

    `size` is the number of trials behind each mean, still to be divided by what `bounded_share`
    divides it by where clusters have `several`.
    """

    mean: Floats
    size: Floats
    n: Floats
    several: Booleans
    limit: float

    def is_below(self, level: Floats) -> Booleans:
        """Whether `bounded_share` at a level (by sample) has its upper bound below the limit.

        The Beta distribution at the limit tells it without its inverse, which takes ten times as
        long.
        """
        size = self.size
        if self.several.any():
            t = special.stdtrit(np.maximum(self.n - 1, 1), 1 - level) / special.ndtri(1 - level)
            size = np.where(self.several & (self.n > 1), size / t**2, size)
        misses = (1 - self.mean) * size
        at_limit = special.betainc(self.mean * size + 1, np.maximum(misses, 1e-9), self.limit)
        return np.asarray((at_limit > 1 - level) & (misses >= 1e-9))


def _hold_cluster_shares(hits: Floats, trials: Floats, limit: float, drawn: Floats) -> _Held:
    n = _clusters_with_trials(trials, drawn)
    mean = np.where(n > 0, _mean_cluster_share(hits, trials, drawn), 1.0)
    several = ~((trials == 1) | (trials == 0)).all(axis=1)
    size = n
    if several.any():
        squares = drawn @ np.nan_to_num(ratio(hits, trials) ** 2).T
        spread = squares + 1 - (n * mean + 1) ** 2 / (n + 1)
        variance = np.maximum(spread, 1e-12) / np.maximum(n, 1) ** 2
        most = np.maximum(drawn @ trials.T, n)
        size = np.where(several & (n > 1), np.clip(mean * (1 - mean) / variance, n, most), n)
    return _Held(mean, size, n, several, limit)


def _mean_cluster_share(hits: Floats, trials: Floats, drawn: Floats) -> Floats:
    """Mean share over the clusters with a trial, in every sample; NaN without any."""
    shares = np.nan_to_num(ratio(hits, trials))
    summed = drawn @ shares.T if shares.any() else np.zeros((len(drawn), len(shares)))
    return ratio(summed, _clusters_with_trials(trials, drawn))


def _clusters_with_trials(trials: Floats, drawn: Floats) -> Floats:
    """Number of clusters with a trial in each sample."""
    if (trials > 0).all():
        return np.repeat(drawn.sum(axis=1, keepdims=True), len(trials), axis=1)
    return np.asarray(drawn @ (trials > 0).T.astype(np.float64))
