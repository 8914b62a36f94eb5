"""Candidates item by item -> what a choice is worth on items that it was not made on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.stats.chosen import CANNOT_FLIP
from flipmeter.stats.frame import quoted
from flipmeter.stats.front import (
    NOBODY,
    Candidate,
    Field,
    Samples,
    by_contrast,
    chosen_in,
    flip_estimate,
    limits_of,
    score_estimate,
)
from flipmeter.stats.groups import Booleans, Floats, Ints, Ranks, ratio
from flipmeter.stats.judge import UNREADABLE_LIMIT
from flipmeter.stats.resampling import SAME, SEED, resamples
from flipmeter.stats.residuals import CONTRASTS
from flipmeter.types import ALPHA, Estimate, Style

PROMPT_FACTORS = ("label_format", "shots", "clarity", "separator", "connector", "mood")
"""The factors of a prompt; fewer classes or another model would win every time."""

BETTER_UP = ("accuracy", "macro_f1", "spearman")
SHORT = {
    "acc": ("accuracy",),
    "f1": ("macro_f1",),
    "rho": ("spearman",),
    "mae": ("mae", "mae_normalised"),
}
"""The paper's names of metrics, and ours."""

NEEDED = ("factor", "level", "rater", "dataset", "metric", "value")
WARNING = (
    "every level was chosen alone: interactions are ignored, and the best of many is partly luck; "
    "run the config itself, on other items, before you rely on it"
)


@dataclass(frozen=True)
class LevelChoice:
    """The levels that improve a metric most, what each improves it by alone, and a warning."""

    metric: str
    baseline: Style
    levels: Mapping[str, Any] = field(hash=False)
    residuals: Mapping[str, float] = field(hash=False)
    warning: str = WARNING

    @property
    def style(self) -> Style:
        return replace(self.baseline, **self.levels)


def select_greedy(residuals: pl.DataFrame, *, baseline: Style, metric: str) -> LevelChoice:
    """Choose for each prompt factor the level with the best mean residual, or the base if none is.

    Best is lowest, and highest for accuracy, F1 and Spearman. The frame is that of `residuals`, of
    one rater; a level without a number is not chosen.
    """
    missing = [name for name in NEEDED if name not in residuals.columns]
    if missing:
        raise Problem(f"the residuals lack the columns {quoted(missing)}")
    metric = _known_metric(metric, residuals["metric"].unique(maintain_order=True).to_list())
    rows = residuals.filter(pl.col("factor").is_in(PROMPT_FACTORS), metric=metric, dataset="")
    if rows["rater"].n_unique() > 1:
        raters = quoted(rows["rater"].unique(maintain_order=True).to_list())
        raise Problem(f"the residuals are of {raters}; choose for one rater at a time")
    sign = -1 if metric in BETTER_UP else 1
    defined = rows.with_columns(pl.col("value").fill_nan(None)).drop_nulls("value")
    chosen: dict[str, str] = {}
    gained: dict[str, float] = {}
    for factor in PROMPT_FACTORS:
        levels = dict(defined.filter(factor=factor).select("level", "value").iter_rows())
        best = min(levels, key=lambda level: sign * levels[level], default=None)
        if best is not None and sign * levels[best] < -SAME:
            chosen[factor], gained[factor] = best, levels[best]
    levels = {name: int(best) if name == "shots" else best for name, best in chosen.items()}
    return LevelChoice(metric, baseline, levels, gained)


def objectives(residuals: pl.DataFrame) -> list[str]:
    """The metrics by which the paper chooses configs: accuracy, and every flip rate present."""
    names = residuals["metric"].unique(maintain_order=True).to_list()
    return [name for name in names if name == "accuracy" or name in CONTRASTS]


def _known_metric(name: str, known: list[str]) -> str:
    """A metric by its name, by the paper's short one, or in small letters."""
    small = name.casefold()
    wanted = SHORT.get(small, (small,))
    found = next((metric for metric in known if metric.casefold() in wanted), None)
    if found is None:
        raise Problem(f"no metric named '{name}'{suggestion(name, known)}")
    return found


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
    sides = [(half, field.on(half)) for half in (first, ~first)]
    held = [limits_of(own, limits or {}, unreadable_limit) for _, own in sides]
    drawn: list[Floats] = []
    picked = (NOBODY, NOBODY)
    for at, samples in enumerate(resamples(field.n_clusters, dataset)):
        picks = [
            chosen_in(own, samples[:, half], of)
            for (half, own), of in zip(sides, held, strict=True)
        ]
        if not at:
            picked = (int(picks[0][0]), int(picks[1][0]))
        if NOBODY in picked:
            return None
        means = _resample_means(field, samples, [(first, picks[1]), (~first, picks[0])])
        drawn.append(means if at else means[:, 1:])
    judged = _Judged(field, picked, first, np.concatenate(drawn, axis=1))
    return HeldOut(
        (field.candidates[picked[0]], field.candidates[picked[1]]),
        score_estimate(field, judged.score),
        by_contrast(field, [judged.flips(at) for at in range(len(field.contrasts))]),
    )


def _resample_means(
    field: Field, samples: Samples, judged: Sequence[tuple[Booleans, Ints]]
) -> Floats:
    """Means of score and flips by contrast in some resamples; NaN without two choices or a value.

    Each half is judged by the choices of the other.
    """
    summed, n = np.zeros((2, 1 + len(field.contrasts), len(samples)))
    rows = np.arange(len(samples))
    for half, pick in judged:
        drawn = samples[:, half].astype(np.float64)
        for at, values in enumerate((field.good, *np.moveaxis(field.pairs.rates, 1, 0))):
            own = values[:, half]
            summed[at] += (drawn @ np.nan_to_num(own).T)[rows, pick]
            n[at] += (drawn @ (~np.isnan(own)).T.astype(np.float64))[rows, pick]
    usable = np.all([pick != NOBODY for _, pick in judged], axis=0)
    return np.where(usable & (n > 0), ratio(summed, n), np.nan)


@dataclass(frozen=True)
class _Judged:
    """The choices of both halves, each judged by the other; `means` are those of resamples."""

    field: Field
    picked: tuple[int, int]
    first: Booleans
    means: Floats

    @property
    def score(self) -> Bounded:
        good, rated = self._as_is(self.field.good), self._as_is(self.field.rated)
        if self.field.by == "accuracy":
            found = bounded_share(good * rated, rated, ALPHA)
        else:
            found = bounded_mean(good, ALPHA, bottom=0.0, top=1.0)
        return _widen_interval(found, self.means[0])

    def flips(self, at: int) -> Estimate:
        pairs = self.field.pairs
        if not self._as_is(np.broadcast_to(pairs.varies[:, at, None], self.field.good.shape)).any():
            return flip_estimate(CANNOT_FLIP)
        found = bounded_share(
            self._as_is(pairs.differ[:, at]), self._as_is(pairs.read[:, at]), ALPHA
        )
        return flip_estimate(_widen_interval(found, self.means[1 + at]))

    def _as_is(self, values: Floats) -> Floats:
        """Every cluster's value of the candidate that the other half chose."""
        judged_by = np.where(self.first, self.picked[1], self.picked[0])
        return np.asarray(values[judged_by, np.arange(len(judged_by))])


def _widen_interval(found: Bounded, drawn: Floats) -> Bounded:
    """An interval that also holds the middle 95 % of resamples."""
    drawn = drawn[~np.isnan(drawn)]
    if not len(drawn) or not found.n:
        return found
    low, high = np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
    return replace(found, low=min(found.low, float(low)), high=max(found.high, float(high)))
