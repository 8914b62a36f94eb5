"""Candidates on the same clusters -> the Pareto front, the one to choose, and its confidence.

Clusters are the unit: an item with its seeds and copies. Limits and intervals hold over all
candidates that are compared (METHODS E5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.registry import suggestion
from flipmeter.stats.blocks import pairs_in
from flipmeter.stats.bounds import Bounded
from flipmeter.stats.chosen import (
    Chosen,
    PairCounts,
    bounds_of,
    is_unreadable,
    limit_levels,
    simultaneous,
    simultaneous_means,
    within_limits,
)
from flipmeter.stats.formulas import check_known
from flipmeter.stats.frame import Decisions, differ, distinct, refuse_mae
from flipmeter.stats.groups import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.stats.judge import UNREADABLE_LIMIT, replies_under
from flipmeter.stats.panel import Panel, compared
from flipmeter.stats.reading import first_panels
from flipmeter.stats.resampling import as_is, find_kinds, resamples
from flipmeter.types import Contrast, Estimate

MANY = 100
"""More candidates than this are compared with the front alone, table by table."""


def non_dominated(losses: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Mark the Pareto front: (..., candidates, axes), less is better on all axes.

    One beats another if it is nowhere worse and somewhere better; equals do not beat each other.
    """
    table = np.asarray(losses, dtype=np.float64)
    if table.shape[-2] > MANY:
        each = table.reshape(-1, *table.shape[-2:])
        return np.stack([_front(one) for one in each]).reshape(table.shape[:-1])
    beaten = np.zeros(table.shape[:-1], dtype=np.bool_)
    for place in range(table.shape[-2]):
        one = table[..., place, None, :]
        beaten |= (one <= table).all(axis=-1) & (one < table).any(axis=-1)
    return ~beaten


def _front(table: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Mark the front of one table: in sorted order, no row is beaten by a later one."""
    on_front: npt.NDArray[np.bool_] = np.asarray(
        np.isnan(table).any(axis=1)
    )  # a NaN neither beats nor is beaten
    known = ~on_front
    rows, same = np.unique(table[known], axis=0, return_inverse=True)
    is_best = np.zeros(len(rows), dtype=np.bool_)
    left = np.arange(len(rows))
    while left.size:
        best, left = left[0], left[1:]
        is_best[best] = True
        left = left[(rows[left] < rows[best]).any(axis=1)]
    on_front[known] = is_best[same.reshape(-1)]
    return on_front


Candidate = tuple[str, str]
"""A rater and a level."""

By = Literal["accuracy", "mae"]
Cost = Literal["calls", "tokens", "none"]
BY: tuple[By, ...] = ("accuracy", "mae")
COSTS: tuple[Cost, ...] = ("calls", "tokens", "none")


@dataclass(frozen=True)
class Field:
    """Candidates on the same clusters: how good each is, where it flips and what it costs an item.

    `good` (candidates x clusters) is 1 for right and 0 for wrong, or 1 minus the distance as a
    share of the scale, whose `length` is in ranks or units; a fault is as bad as can be. It is a
    mean over `rated` decisions: seeds, and items of the cluster. `gold` is the class of the first
    item of each cluster.
    """

    candidates: tuple[Candidate, ...]
    contrasts: tuple[str, ...]
    gold: Ranks
    length: float
    n_seeds: int
    n_items: int
    good: Floats
    rated: Floats
    pairs: PairCounts
    cost: Floats
    by: By = "accuracy"

    @property
    def n_clusters(self) -> int:
        return len(self.gold)

    @property
    def columns(self) -> list[Floats]:
        """Numbers of every cluster that tell how good candidates are and where they flip."""
        parts = self.good, self.pairs.asked, self.pairs.read, self.pairs.differ
        return [column for part in parts for column in part.reshape(-1, self.n_clusters)]

    def on(self, clusters: Booleans | Ints) -> Field:
        """The field with only these clusters."""
        return replace(
            self,
            gold=self.gold[clusters],
            good=self.good[:, clusters],
            rated=self.rated[:, clusters],
            pairs=self.pairs.on(clusters),
        )


# --- reading ----------------------------------------------------------------------------------


def read_field(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    *,
    by: By = "accuracy",
    cost: Cost = "calls",
) -> Field:
    """Lay the decisions on one dataset out by candidate, on the items that all of them rated.

    Every contrast with a verdict is an axis of its own; other aggregates are left out.
    """
    check_known(by, BY, "score")
    check_known(cost, COSTS, "cost")
    if by == "mae":
        refuse_mae(decisions, "by mae")
    axes = [contrast for contrast in contrasts if contrast.is_judged]
    panels = first_panels(decisions)
    about = [_About.of(panel) for panel in panels]
    if len({name for one in about for name in one.keys["dataset"]}) > 1:
        raise Problem("candidates are compared on one dataset; choose one")
    sizes = sorted({n for one in about for n in one.sizes})
    if len(sizes) > 1:
        raise Problem(f"candidates with {sizes} classes cannot be compared; leave some out")
    items = reduce(np.intersect1d, [one.usable for one in about])
    if not len(items):
        raise Problem("no item with a gold class was rated by all candidates")
    order = distinct(decisions, "rater", "level")
    shape = len(order), len(axes), about[0].n_clusters
    rated, good = np.zeros((2, shape[0], shape[2]))
    gold, varies = np.zeros(shape[2], dtype=np.int64), np.zeros(shape[:2], dtype=np.bool_)
    sums = _Sums(gold, rated, good, np.zeros((3, *shape)), varies)
    for panel in panels:
        _add_panel(panel, items, order, axes, by, sums)
    kept = np.flatnonzero(sums.rated.any(axis=0))
    asked, read, differ = (of[:, :, kept] for of in sums.pairs)
    return Field(
        candidates=tuple(order),
        contrasts=tuple(contrast.name for contrast in axes),
        gold=sums.gold[kept],
        length=float((sizes[0] - 1) * about[0].step),
        n_seeds=len({seed for one in about for seed in one.keys["seed"]}),
        n_items=len(items),
        good=sums.good[:, kept] / sums.rated[:, kept],
        rated=sums.rated[:, kept],
        pairs=PairCounts(asked, read, differ, sums.varies),
        cost=_mean_item_costs(decisions, order, cost, about[0].reference),
        by=by,
    )


@dataclass(frozen=True)
class _About:
    """Facts of a panel that must fit those of the others; `usable` are items in all its groups."""

    keys: pl.DataFrame
    sizes: list[int]
    step: float
    reference: str
    n_clusters: int
    usable: Ints

    @classmethod
    def of(cls, panel: Panel) -> _About:
        usable = panel.asked((panel.reference, 0)) & (panel.gold > 0)
        groups = (usable & (panel.groups.of == one) for one in range(panel.groups.n))
        return cls(
            panel.keys,
            panel.n_classes.tolist(),
            float(panel.units.step[0]),
            panel.reference,
            len(panel.cluster_names),
            reduce(np.intersect1d, [panel.item[own] for own in groups]),
        )


@dataclass(frozen=True)
class _Sums:
    """Sums by candidate and cluster (pairs also by contrast), and the first gold of a cluster."""

    gold: Ranks
    rated: Floats
    good: Floats
    pairs: Floats
    varies: Booleans


def _add_panel(
    panel: Panel,
    items: Ints,
    order: Sequence[Candidate],
    axes: Sequence[Contrast],
    by: By,
    sums: _Sums,
) -> None:
    """Add the items of a panel that all candidates share.

    A reply that never came is not asked; one that cannot be read is not a flip.
    """
    shared = np.flatnonzero(np.isin(panel.item, items))
    places = [order.index(key) for key in panel.keys.select("rater", "level").iter_rows()]
    candidate, cluster = np.array(places)[panel.groups.of[shared]], panel.cluster[shared]
    here, of = np.unique(candidate, return_inverse=True)

    def add(values: npt.NDArray[np.generic], to: Floats) -> None:
        """Add up values by candidate and cluster; those of a candidate all come at once."""
        shape, weights = (len(here), to.shape[1]), np.asarray(values, dtype=np.float64)
        summed = np.bincount(of * shape[1] + cluster, weights, shape[0] * shape[1])
        to[here] += summed.reshape(shape)

    classes, gold = panel.classes((panel.reference, 0))[shared], panel.gold[shared]
    clusters, first = np.unique(cluster, return_index=True)
    sums.gold[clusters] = np.where(sums.gold[clusters] > 0, sums.gold[clusters], gold[first])
    if by == "accuracy":
        right = (classes > 0) & ~differ(classes, gold, panel.tolerance[shared])
        good = right.astype(np.float64)
    else:
        n_classes = int(panel.n_classes[0])
        farthest = np.maximum(gold - 1, n_classes - gold)
        away = np.where(classes > 0, np.abs(classes - gold), farthest)
        good = 1 - away / (n_classes - 1)
    add(np.ones(len(shared)), sums.rated)
    add(good, sums.good)
    for at, contrast in enumerate(axes):
        found = compared(panel, contrast)
        counts = ((found.items & found.measured[panel.groups.of]) | found.proved)[shared]
        pairs = pairs_in(replies_under(panel, contrast)[shared], panel.tolerance[shared])
        for n, to in zip(pairs, sums.pairs, strict=True):
            add(n * counts, to[:, at])
        sums.varies[candidate[found.measured[panel.groups.of[shared]]], at] = True


def _mean_item_costs(
    decisions: Decisions, order: Sequence[Candidate], cost: Cost, reference: str
) -> Floats:
    """Mean cost of an item under the base view."""
    if cost == "none":
        return np.zeros(len(order))
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    each = {"calls": pl.col("n_calls"), "tokens": tokens}[cost]
    first = decisions.lazy().filter(view=reference, repeat=0)
    asked = first.group_by("rater", "level").agg(each.mean()).pipe(collected, "streaming")
    known = {(rater, level): value for rater, level, value in asked.iter_rows()}
    missing = [level or "the base" for rater, level in order if known.get((rater, level)) is None]
    if missing:
        raise Problem(f"the {cost} of {missing[0]} are unknown; use --cost calls or none")
    return np.array([known[one] for one in order], dtype=np.float64)


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
        return {name for name, flip in self.flips.items() if not (flip.n or self.upper[name])}


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


def _measure_samples(field: Field, samples: Samples, limits: CandidateLimits) -> _Measured:
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
    return np.concatenate(
        [_choose_candidates(_measure_samples(field, part, limits)) for part in parts]
    )


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


def _choose_candidates(found: _Measured) -> Ints:
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
    whole = _measure_samples(field, as_is(field.n_clusters), held)
    front = non_dominated(whole.losses)[0]
    on_front, chosen = _resample_front(field, held, dataset)
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


def _resample_front(field: Field, limits: CandidateLimits, dataset: str) -> tuple[Floats, Ints]:
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
            found = _measure_samples(seen, samples, limits)
            fronts.append(non_dominated(found.losses))
            chosen.append(_choose_candidates(found))
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
