"""Candidates item by item -> those that nobody beats, the one to choose, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.measure.statistics.formulas import wilson
from flipmeter.measure.statistics.resample import SEED, Side, as_is, read_sides, weights
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Estimate, Problem

Candidate = tuple[str, str]
"""A rater and a level."""

By = Literal["accuracy", "mae"]
Cost = Literal["calls", "tokens", "none"]
BY: tuple[By, ...] = ("accuracy", "mae")
COSTS: tuple[Cost, ...] = ("calls", "tokens", "none")
NOBODY = -1
CANNOT_FLIP = "cannot vary, so that nothing can flip: it counts as 0"
LEVEL = 0.95
EXACT = 9
"""Numbers are compared to so many decimals: a mean over seeds must not win by its last bit."""
HELD = 4_000_000
"""How many numbers are held at once while resamples are compared."""

Samples = npt.NDArray[np.float32]
"""How often each item (column) stands in each sample (row)."""


@dataclass(frozen=True)
class Field:
    """Candidates on the same items: how good each is, where it flips and what it costs an item.

    `good` (candidates x items) is 1 for right and 0 for wrong, or 1 minus the distance as a share
    of the scale; a fault is as bad as can be. `flips` (candidates x contrasts x items) is strict,
    NaN where a contrast cannot vary or was not asked. Both are means over seeds.
    """

    candidates: tuple[Candidate, ...]
    contrasts: tuple[str, ...]
    gold: Ranks
    n_classes: int
    n_seeds: int
    good: Floats
    flips: Floats
    cost: Floats
    by: By = "accuracy"

    @property
    def n_items(self) -> int:
        return len(self.gold)

    def on(self, items: Booleans) -> Field:
        """Return the field with only these items."""
        return replace(
            self, gold=self.gold[items], good=self.good[:, items], flips=self.flips[:, :, items]
        )

    def among(self, kept: Sequence[int]) -> Field:
        """Return the field with only these candidates."""
        places = np.asarray(kept, dtype=np.int64)
        return replace(
            self,
            candidates=tuple(self.candidates[place] for place in kept),
            good=self.good[places],
            flips=self.flips[places],
            cost=self.cost[places],
        )


@dataclass(frozen=True)
class Standing:
    """What is known of a candidate among the others; chances are shares of resamples of items."""

    candidate: Candidate
    score: Estimate
    flips: Mapping[str, Estimate]
    upper: Mapping[str, float]
    cost: float
    is_on_front: bool
    is_allowed: bool
    chance_on_front: float
    chance_chosen: float


@dataclass(frozen=True)
class HeldOut:
    """What the choice is worth on items that it was not made on, both ways round.

    `chosen` are the candidates that the two halves choose; every item is judged by the choice of
    the half that it is not in.
    """

    chosen: tuple[Candidate, Candidate]
    score: Estimate
    flips: Mapping[str, Estimate]


# --- reading ----------------------------------------------------------------------------------


def read_field(
    decisions: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    by: By = "accuracy",
    cost: Cost = "calls",
) -> Field:
    """Lay the decisions on one dataset out by candidate, on the items that all of them rated.

    Every pair of views is an axis of its own; aggregates are left out.
    """
    _known(by, BY, "score")
    _known(cost, COSTS, "cost")
    pairs = [contrast for contrast in contrasts if contrast.is_pair]
    keys, sides = read_sides(decisions, pairs, "recommended")
    if keys["dataset"].n_unique() > 1:
        raise Problem("candidates are compared on one dataset; name it")
    sizes = sorted({side.n_classes for side in sides})
    if len(sizes) > 1:
        raise Problem(f"candidates with {sizes} classes cannot be compared; leave some out")
    items = reduce(np.intersect1d, [side.items[side.usable[0]] for side in sides])
    if not len(items):
        raise Problem("there is no item with a gold class that all candidates rated")
    own: dict[Candidate, list[Side]] = {}
    for (rater, _, level, _), side in zip(keys.iter_rows(), sides, strict=True):
        own.setdefault((rater, level), []).append(side.only(items))
    order = list(decisions.select("rater", "level").unique(maintain_order=True).iter_rows())
    return Field(
        candidates=tuple(order),
        contrasts=tuple(contrast.name for contrast in pairs),
        gold=own[order[0]][0].gold,
        n_classes=sizes[0],
        n_seeds=keys["seed"].n_unique(),
        good=np.stack([np.mean([_good(side, by) for side in own[one]], axis=0) for one in order]),
        flips=np.stack([_flips(own[one]) for one in order]),
        cost=_costs(decisions, order, cost),
        by=by,
    )


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        raise Problem(f"no {what} named '{name}'{suggestion(name, list(names))}")


def _good(side: Side, by: By) -> Floats:
    if by == "accuracy":
        return np.asarray(side.classes == side.gold, dtype=np.float64)
    farthest = np.maximum(side.gold - 1, side.n_classes - side.gold)
    away = np.where(side.classes > 0, np.abs(side.classes - side.gold), farthest)
    return np.asarray(1 - away / (side.n_classes - 1))


def _flips(sides: Sequence[Side]) -> Floats:
    """Return the share of seeds in which an item flips, NaN where it is usable in none of them."""
    flipped = np.sum(
        [side.usable[1:] & (side.pairs[:, 0] != side.pairs[:, 1]) for side in sides], 0
    )
    return ratio(flipped, np.sum([side.usable[1:] for side in sides], axis=0))


def _costs(decisions: pl.DataFrame, order: Sequence[Candidate], cost: Cost) -> Floats:
    """Return what an item costs under the base view, on average."""
    if cost == "none":
        return np.zeros(len(order))
    tokens = pl.col("prompt_tokens") + pl.col("completion_tokens")
    each = {"calls": pl.col("n_calls"), "tokens": tokens}[cost]
    asked = decisions.filter(view="base", repeat=0).group_by("rater", "level").agg(each.mean())
    known = {(rater, level): value for rater, level, value in asked.iter_rows()}
    missing = [level or "the base" for rater, level in order if known[rater, level] is None]
    if missing:
        raise Problem(f"the {cost} of {missing[0]} are not known; weigh by --cost calls or none")
    return np.array([known[one] for one in order], dtype=np.float64)


# --- the front --------------------------------------------------------------------------------


def non_dominated(losses: npt.ArrayLike) -> Booleans:
    """Mark the candidates that nobody beats: (..., candidates, axes), less is better on all axes.

    One beats another if it is nowhere worse and somewhere better; equals do not beat each other.
    """
    table = np.asarray(losses, dtype=np.float64)
    beaten = np.zeros(table.shape[:-1], dtype=np.bool_)
    for place in range(table.shape[-2]):
        one = table[..., place, None, :]
        beaten |= (one <= table).all(axis=-1) & (one < table).any(axis=-1)
    return ~beaten


@dataclass(frozen=True)
class _Measured:
    """A field in some samples of its items: samples x candidates (x contrasts)."""

    good: Floats
    flips: Floats
    upper: Floats
    cost: Floats

    @property
    def losses(self) -> Floats:
        cost = np.broadcast_to(self.cost, self.good.shape)[..., None]
        return np.concatenate([1 - self.good[..., None], np.nan_to_num(self.flips), cost], axis=-1)

    def allowed(self, limits: Floats) -> Booleans:
        """Mark the candidates whose flips are surely below all limits."""
        return np.asarray((self.upper < limits).all(axis=-1))


def _measured(field: Field, samples: Samples) -> _Measured:
    n_samples, shape = len(samples), field.flips.shape[:2]
    drawn = samples.astype(np.float64)
    asked = ~np.isnan(field.flips)
    flat = [
        part.reshape(-1, field.n_items).T.astype(np.float64)
        for part in (np.where(asked, field.flips, 0), asked)
    ]
    k, n = ((drawn @ part).reshape(n_samples, *shape).round(EXACT) for part in flat)
    good = ratio(drawn @ field.good.T, drawn.sum(axis=1, keepdims=True))
    return _Measured(good.round(EXACT), ratio(k, n).round(EXACT), upper_bounds(k, n), field.cost)


def upper_bounds(k: Floats, n: Floats) -> Floats:
    """Return the one-sided 95 % Clopper-Pearson bound, 0 where nothing can flip.

    A part of a flip, as a mean over seeds has it, counts as a whole one.
    """
    # Resamples repeat a few counts many times over, and the inverse is slow.
    pairs, place = np.unique(
        np.stack([np.ceil(k), n], axis=-1).reshape(-1, 2), axis=0, return_inverse=True
    )
    hits, size = pairs.T
    inside = special.betaincinv(hits + 1, np.maximum(size - hits, 1), LEVEL)
    bounds = np.where(size == 0, 0.0, np.where(hits >= size, 1.0, inside))
    return np.asarray(bounds[place.ravel()].reshape(k.shape))


def choose(field: Field, samples: Samples, limits: Mapping[str, float]) -> Ints:
    """Return the candidate to choose in each sample of items, NOBODY where none is allowed.

    It is the best one whose flips are surely below the limits; of equals the one that flips least,
    then the cheapest, then the first.
    """
    return _chosen(_measured(field, samples), _limits(field, limits))


def _limits(field: Field, limits: Mapping[str, float]) -> Floats:
    for name in limits:
        if name not in field.contrasts:
            raise Problem(f"no contrast named '{name}'{suggestion(name, list(field.contrasts))}")
    return np.array([limits.get(name, np.inf) for name in field.contrasts])


def _chosen(found: _Measured, limits: Floats) -> Ints:
    kept = found.allowed(limits)
    is_any = kept.any(axis=-1)
    flips = np.nan_to_num(found.flips).sum(axis=-1).round(EXACT)
    for loss in (1 - found.good, flips, np.broadcast_to(found.cost, found.good.shape)):
        least = np.where(kept, loss, np.inf).min(axis=-1, keepdims=True)
        kept = kept & (loss <= least)
    return np.where(is_any, kept.argmax(axis=-1), NOBODY)


# --- how sure it is ---------------------------------------------------------------------------


def standings(
    field: Field, limits: Mapping[str, float] | None = None, *, dataset: str = ""
) -> list[Standing]:
    """Say of every candidate how good it is, whether anybody beats it, and how sure that is.

    All candidates are resampled together, over the same items.
    """
    bounds = _limits(field, limits or {})
    whole = _measured(field, as_is(field.n_items))
    front = non_dominated(whole.losses)[0]
    allowed = whole.allowed(bounds)[0]
    drawn, on_front, chosen = _resampled(field, bounds, dataset)
    found = []
    for place, candidate in enumerate(field.candidates):
        found.append(
            Standing(
                candidate,
                _score(field, field.good[place], drawn[:, place]),
                {name: _flip(field.flips[place, at]) for at, name in enumerate(field.contrasts)},
                dict(zip(field.contrasts, whole.upper[0, place].tolist(), strict=True)),
                float(field.cost[place]),
                bool(front[place]),
                bool(allowed[place]),
                float(on_front[place]),
                float((chosen == place).mean()),
            )
        )
    return found


def _resampled(field: Field, bounds: Floats, dataset: str) -> tuple[Floats, Floats, Ints]:
    """Return in resamples how good each is, how often on the front, and who would be chosen."""
    samples = weights(field.n_items, dataset)[1:]
    size = max(1, HELD // max(1, field.flips.shape[0] * (field.flips.shape[1] + 2)))
    good, fronts, chosen = [], [], []
    for start in range(0, len(samples), size):
        found = _measured(field, samples[start : start + size])
        good.append(found.good)
        fronts.append(non_dominated(found.losses))
        chosen.append(_chosen(found, bounds))
    return np.concatenate(good), np.concatenate(fronts).mean(axis=0), np.concatenate(chosen)


def _score(field: Field, good: Floats, drawn: Floats | None = None) -> Estimate:
    """Return the accuracy with its Wilson interval, or the error in ranks with a bootstrap one."""
    n = len(good)
    if field.by == "accuracy":
        low, high = wilson(np.array([good.sum()]), np.array([n]))
        return Estimate(float(good.mean()), float(low[0]), float(high[0]), n, metric="accuracy")
    top = field.n_classes - 1
    if drawn is None:
        drawn = ratio(weights(n, "")[1:] @ good, float(n))
    low, high = ((1 - end) * top for end in np.quantile(drawn, [0.975, 0.025]))
    return Estimate(float((1 - good.mean()) * top), float(low), float(high), n, metric="mae")


def _flip(flips: Floats) -> Estimate:
    known = flips[~np.isnan(flips)]
    if not len(known):
        return Estimate(np.nan, note=CANNOT_FLIP)
    low, high = wilson(np.array([known.sum()]), np.array([len(known)]))
    return Estimate(float(known.mean()), float(low[0]), float(high[0]), len(known))


def halves(gold: Ranks, seed: int = 0) -> Booleans:
    """Mark one half of the items, every class about evenly in both."""
    chance = np.random.default_rng([SEED, seed])
    order = np.lexsort((chance.random(len(gold)), gold))
    is_first = np.empty(len(gold), dtype=np.bool_)
    is_first[order] = np.arange(len(gold)) % 2 == 0
    return is_first


def held_out(
    field: Field, limits: Mapping[str, float] | None = None, *, seed: int = 0
) -> HeldOut | None:
    """Choose on one half of the items and judge on the other, both ways; None if a half has nobody.

    The best of many is partly luck; this number is not, because its items were not chosen on.
    """
    first = halves(field.gold, seed)
    picks = []
    for half in (first, ~first):
        own = field.on(half)
        picks.append(
            int(choose(own, as_is(own.n_items), limits or {})[0]) if half.any() else NOBODY
        )
    if NOBODY in picks:
        return None
    judged_by = np.where(first, picks[1], picks[0])
    items = np.arange(field.n_items)
    good, flips = field.good[judged_by, items], field.flips[judged_by, :, items].T
    return HeldOut(
        (field.candidates[picks[0]], field.candidates[picks[1]]),
        _score(field, good),
        {name: _flip(flips[at]) for at, name in enumerate(field.contrasts)},
    )
