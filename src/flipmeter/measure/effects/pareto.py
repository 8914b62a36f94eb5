"""Candidates item by item -> the Pareto front, the one to choose, and its confidence.

Clusters are the unit: an item with its seeds and copies. Limits and intervals hold over all
candidates that are compared (METHODS E5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from flipmeter.base.pareto import non_dominated
from flipmeter.measure.effects.field import Candidate, Field
from flipmeter.measure.inference.bounds import Bounded
from flipmeter.measure.inference.chosen import (
    Chosen,
    bounds_of,
    is_unreadable,
    limit_levels,
    simultaneous,
    simultaneous_means,
    within_limits,
)
from flipmeter.measure.inference.judge import UNREADABLE_LIMIT
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, ratio
from flipmeter.measure.statistics.kinds import find_kinds
from flipmeter.measure.statistics.resample import as_is, resamples
from flipmeter.registry import suggestion
from flipmeter.types import Estimate, Problem

T = TypeVar("T")

NOBODY = -1
CANNOT_FLIP = "cannot vary, so nothing can flip: it counts as 0"
UNREAD = "no pair could be read"
EXACT = 9
"""Numbers are compared to so many decimals: a mean over seeds must not win by its last bit."""
HELD = 4_000_000
"""Number of values in memory at once while resamples are compared."""

Samples = npt.NDArray[np.floating]
"""Count of each cluster (column) in each sample (row)."""


@dataclass(frozen=True)
class Standing:
    """The evidence about a candidate among the others; chances are shares of resamples of items.

    Intervals, and the one-sided bounds in `upper`, are simultaneous over all candidates.
    `unreadable` are shares of pairs; `unreadable_in` names the contrasts with too many of them.
    """

    candidate: Candidate
    score: Estimate
    flips: Mapping[str, Estimate]
    upper: Mapping[str, float]
    unreadable: Mapping[str, float]
    unreadable_in: tuple[str, ...]
    cost: float
    is_on_front: bool
    is_allowed: bool
    chance_on_front: float
    chance_chosen: float

    @property
    def rater(self) -> str:
        return self.candidate[0]

    @property
    def level(self) -> str:
        return self.candidate[1]

    @property
    def cannot_flip(self) -> set[str]:
        """The contrasts without a rate, which count as 0."""
        return {name for name, flip in self.flips.items() if flip.note == CANNOT_FLIP}


# --- the front --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateLimits:
    """Limits on flips by contrast (infinity: none), and the levels of their bounds."""

    most: Floats
    levels: Floats
    unreadable: float


@dataclass(frozen=True)
class _Measured:
    """A field in some samples of its clusters: samples x candidates (x contrasts)."""

    good: Floats
    flips: Floats
    allowed: Booleans
    cost: Floats

    @property
    def losses(self) -> Floats:
        cost = np.broadcast_to(self.cost, self.good.shape)[..., None]
        return np.concatenate([1 - self.good[..., None], self.flips, cost], axis=-1)


def _measured(field: Field, samples: Samples, limits: CandidateLimits) -> _Measured:
    """Flip rates are 0 where nothing can flip, and 1 where nothing could be read."""
    drawn = samples.astype(np.float64)
    good = ratio(drawn @ field.good.T, drawn.sum(axis=1, keepdims=True))
    rates = field.pairs.rates
    shape = (len(drawn), *rates.shape[:2])
    known = ~np.isnan(rates)
    flat = (part.reshape(-1, field.n_clusters).T for part in (np.nan_to_num(rates), known))
    summed, n = ((drawn @ part.astype(np.float64)).reshape(shape) for part in flat)
    unread = field.pairs.varies.astype(np.float64)
    flips = np.where(n > 0, summed / np.maximum(n, 1e-9), unread)
    held = limits.most, limits.levels
    allowed = within_limits(field.pairs, *held, unreadable_limit=limits.unreadable, samples=drawn)
    return _Measured(good.round(EXACT), flips.round(EXACT), allowed, field.cost)


def chosen_in(field: Field, samples: Samples, limits: CandidateLimits) -> Ints:
    """The candidate to choose in each sample of clusters, NOBODY where none is allowed.

    It is the best one whose flips are shown to be below the limits, by bounds that hold for all
    candidates together; of equals the one that flips least, then the cheapest, then the first. The
    levels of the bounds are those of the field as it is.
    """
    parts = in_parts(field, samples)
    return np.concatenate([_chosen(_measured(field, part, limits)) for part in parts])


def limits_of(
    field: Field,
    limits: Mapping[str, float],
    unreadable_limit: float = UNREADABLE_LIMIT,
    *,
    with_others: bool = False,
) -> CandidateLimits:
    """The limits of a choice, which are the same in every sample."""
    for name in limits:
        if name not in field.contrasts:
            raise Problem(f"no contrast named '{name}'{suggestion(name, list(field.contrasts))}")
    most = np.array([limits.get(name, np.inf) for name in field.contrasts])
    levels = limit_levels(field.pairs, most, with_others=with_others)
    return CandidateLimits(most, levels, unreadable_limit)


def _chosen(found: _Measured) -> Ints:
    kept = found.allowed
    is_any = kept.any(axis=-1)
    flips = found.flips.sum(axis=-1).round(EXACT)
    for loss in (1 - found.good, flips, np.broadcast_to(found.cost, found.good.shape)):
        least = np.where(kept, loss, np.inf).min(axis=-1, keepdims=True)
        kept = kept & (loss <= least)
    return np.where(is_any, kept.argmax(axis=-1), NOBODY)


# --- how sure it is ---------------------------------------------------------------------------


def standings(
    field: Field,
    limits: Mapping[str, float] | None = None,
    *,
    dataset: str = "",
    unreadable_limit: float = UNREADABLE_LIMIT,
) -> list[Standing]:
    """Say of every candidate how good it is, whether anybody beats it, and how sure that is.

    All candidates are resampled together, over the same clusters.
    """
    held = limits_of(field, limits or {}, unreadable_limit, with_others=True)
    whole = _measured(field, as_is(field.n_clusters), held)
    front = non_dominated(whole.losses)[0]
    on_front, chosen = _resampled(field, held, dataset)
    scores, rates = simultaneous_scores(field), bounds_of(field.pairs, held.levels)
    told = over_candidates(len(field.candidates))
    unreadable = field.pairs.unreadable
    too_many = is_unreadable(unreadable, unreadable_limit)
    found = []
    for place, candidate in enumerate(field.candidates):
        found.append(
            Standing(
                candidate,
                score_estimate(field, scores.bounds[place], told),
                by_contrast(field, [flip_estimate(one, told) for one in rates[place]]),
                by_contrast(field, [one.upper for one in rates[place]]),
                by_contrast(field, unreadable[place].tolist()),
                tuple(np.array(field.contrasts)[too_many[place]].tolist()),
                float(field.cost[place]),
                bool(front[place]),
                bool(whole.allowed[0, place]),
                float(on_front[place]),
                float((chosen == place).mean()),
            )
        )
    return found


def over_candidates(n: int) -> str:
    """The note of an interval that holds for whichever of n candidates is chosen."""
    return f"simultaneous over {n} candidates" if n > 1 else ""


def simultaneous_scores(field: Field) -> Chosen:
    """Scores of all candidates, with simultaneous bounds."""
    if field.by == "accuracy":
        return simultaneous((field.good * field.rated).T, field.rated.T)
    return simultaneous_means(field.good.T)


def by_contrast(field: Field, values: Sequence[T]) -> dict[str, T]:
    return dict(zip(field.contrasts, values, strict=True))


def _resampled(field: Field, limits: CandidateLimits, dataset: str) -> tuple[Floats, Ints]:
    """Share of resamples with each candidate on the front, and as the choice."""
    fronts, chosen = [], []
    kinds = find_kinds(field.columns, field.n_clusters)
    seen = field if kinds is None else field.on(kinds.first)
    for at, drawn in enumerate(resamples(field.n_clusters, dataset)):
        counts: Samples = drawn
        if kinds is not None:  # clusters of a kind count alike
            cells = np.arange(len(drawn))[:, None] * len(kinds) + kinds.of
            summed = np.bincount(cells.ravel(), drawn.ravel(), len(drawn) * len(kinds))
            counts = summed.reshape(len(drawn), len(kinds)).astype(np.float64)
        for samples in in_parts(seen, counts if at else counts[1:]):
            found = _measured(seen, samples, limits)
            fronts.append(non_dominated(found.losses))
            chosen.append(_chosen(found))
    return np.concatenate(fronts).mean(axis=0), np.concatenate(chosen)


def in_parts(field: Field, samples: Samples) -> Iterator[Samples]:
    """Samples in parts whose numbers can be held at once."""
    size = max(1, HELD // max(1, len(field.candidates) * (len(field.contrasts) + 2)))
    return (samples[start : start + size] for start in range(0, len(samples), size))


def score_estimate(field: Field, found: Bounded, note: str = "") -> Estimate:
    """Accuracy, or the error in ranks or units, with its interval."""
    if field.by == "accuracy":
        value, low, high = found.value, found.low, found.high
    else:
        value, low, high = ((1 - x) * field.length for x in (found.value, found.high, found.low))
    return Estimate(value, low, high, found.n, metric=field.by, note=note)


def flip_estimate(found: Bounded, note: str = "") -> Estimate:
    if not found.n:
        return Estimate(np.nan, note=UNREAD if found.upper else CANNOT_FLIP)
    return Estimate(found.value, found.low, found.high, found.n, note=note)
