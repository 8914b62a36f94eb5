"""Candidates item by item -> what a choice is worth on items that it was not made on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flipmeter.measure.effects.field import Candidate, Field
from flipmeter.measure.effects.pareto import (
    NOBODY,
    Samples,
    by_contrast,
    choose,
    flip_estimate,
    score_estimate,
)
from flipmeter.measure.inference.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.measure.inference.chosen import CANNOT_FLIP
from flipmeter.measure.inference.judge import UNREADABLE_LIMIT
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.measure.statistics.resample import SEED, weights
from flipmeter.types import ALPHA, Estimate


@dataclass(frozen=True)
class HeldOut:
    """The choice evaluated on items that it was not made on, in both directions.

    `chosen` are the candidates that the two halves choose; every item is judged by the choice of
    the half that it is not in. Intervals are of the whole procedure, choices included.
    """

    chosen: tuple[Candidate, Candidate]
    score: Estimate
    flips: Mapping[str, Estimate]


def halves(gold: Ranks, seed: int = 0) -> Booleans:
    """Mark one half of the clusters, every class about evenly in both."""
    chance = np.random.default_rng([SEED, seed])
    order = np.lexsort((chance.random(len(gold)), gold))
    is_first = np.empty(len(gold), dtype=np.bool_)
    is_first[order] = np.arange(len(gold)) % 2 == 0
    return is_first


def held_out(
    field: Field,
    limits: Mapping[str, float] | None = None,
    *,
    seed: int = 0,
    dataset: str = "",
    unreadable_limit: float = UNREADABLE_LIMIT,
) -> HeldOut | None:
    """Choose on one half of the items and judge on the other, both ways; None if a half is empty.

    The best of many is partly luck; this number is not, because its items were not chosen on. The
    bootstrap over clusters repeats the choice in each resample. Its interval is never narrower than
    that of the two choices as they are, which holds for rare flips too.
    """
    first = halves(field.gold, seed)
    if first.all():
        return None
    samples = weights(field.n_clusters, dataset)
    picks = [
        choose(field.on(half), samples[:, half], limits or {}, unreadable_limit=unreadable_limit)
        for half in (first, ~first)
    ]
    if NOBODY in (picks[0][0], picks[1][0]):
        return None
    judged = _Judged(field, picks, first, samples)
    return HeldOut(
        (field.candidates[picks[0][0]], field.candidates[picks[1][0]]),
        score_estimate(field, judged.score),
        by_contrast(field, [judged.flips(at) for at in range(len(field.contrasts))]),
    )


@dataclass(frozen=True)
class _Judged:
    """The choices of both halves, as they are and in every resample; the other half judges each."""

    field: Field
    picks: Sequence[Ints]
    first: Booleans
    samples: Samples

    @property
    def score(self) -> Bounded:
        good, rated = self._as_is(self.field.good), self._as_is(self.field.rated)
        if self.field.by == "accuracy":
            found = bounded_share(good * rated, rated, ALPHA)
        else:
            found = bounded_mean(good, ALPHA, bottom=0.0, top=1.0)
        return _widened(found, self._resampled(self.field.good))

    def flips(self, at: int) -> Estimate:
        pairs = self.field.pairs
        if not self._as_is(np.broadcast_to(pairs.varies[:, at, None], self.field.good.shape)).any():
            return flip_estimate(CANNOT_FLIP)
        found = bounded_share(
            self._as_is(pairs.differ[:, at]), self._as_is(pairs.read[:, at]), ALPHA
        )
        return flip_estimate(_widened(found, self._resampled(pairs.rates[:, at])))

    def _as_is(self, values: Floats) -> Floats:
        """Every cluster's value of the candidate that the other half chose."""
        judged_by = np.where(self.first, self.picks[1][0], self.picks[0][0])
        return np.asarray(values[judged_by, np.arange(len(judged_by))])

    def _resampled(self, values: Floats) -> Floats:
        """Mean of values (candidates x clusters, NaN: none) in all resamples with two choices."""
        known = ~np.isnan(values)
        summed, n = np.zeros((2, len(self.samples)))
        usable = (self.picks[0] != NOBODY) & (self.picks[1] != NOBODY)
        rows = np.arange(len(self.samples))
        for half, pick in ((self.first, self.picks[1]), (~self.first, self.picks[0])):
            drawn = self.samples[:, half].astype(np.float64)
            summed += (drawn @ np.nan_to_num(values[:, half]).T)[rows, pick]
            n += (drawn @ known[:, half].T.astype(np.float64))[rows, pick]
        return np.asarray(ratio(summed, n)[1:][usable[1:] & (n[1:] > 0)])


def _widened(found: Bounded, drawn: Floats) -> Bounded:
    """An interval that also holds the middle 95 % of resamples."""
    if not len(drawn) or not found.n:
        return found
    low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
    return replace(found, low=min(found.low, float(low)), high=max(found.high, float(high)))
