"""Votes or probabilities -> when an answer can be relied on, and which answers flip most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.errors import Problem
from flipmeter.stats.blocks import pairs_in
from flipmeter.stats.formulas import by_group, correlations, midranks, share_estimates
from flipmeter.stats.groups import (
    Booleans,
    Estimates,
    Floats,
    Groups,
    Ints,
    Ranks,
    Rows,
    counted_rows,
    estimates,
    ratio,
    rows_of,
    undefined,
)
from flipmeter.stats.panel import Panel
from flipmeter.stats.readings import graded, viewed
from flipmeter.stats.resampling import any_of, jackknife
from flipmeter.types import Contrast

# --- probabilities ----------------------------------------------------------------------------


def margins(probabilities: npt.ArrayLike) -> Floats:
    """Difference between the two largest probabilities (items x classes)."""
    ordered = np.sort(_simplex(probabilities), axis=1)
    return np.asarray(ordered[:, -1] - ordered[:, -2])


def entropies(probabilities: npt.ArrayLike) -> Floats:
    """Uncertainty of each item in nats, 0 (sure) to log M."""
    return np.asarray(special.entr(_simplex(probabilities)).sum(axis=1))


def confidence_bins(score: Floats, n_bins: int) -> Ints:
    """Number bins of about equal size from 0, the least first; equal scores stay together."""
    edges = np.unique(np.quantile(score, np.linspace(0, 1, n_bins + 1)[1:-1]))
    place = np.searchsorted(edges, score, side="right")
    return np.asarray(np.unique(place, return_inverse=True)[1], dtype=np.int64)


def _simplex(probabilities: npt.ArrayLike) -> Floats:
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise Problem(f"probabilities are items x classes; got an array of shape {table.shape}")
    if not ((table >= 0).all() and np.allclose(table.sum(axis=1), 1, atol=1e-6)):
        raise Problem("the probabilities of every item must add up to 1")
    return table


# --- abstaining -------------------------------------------------------------------------------


def consensus(table: Ranks, n_classes: int) -> tuple[Ranks, Ints]:
    """The class that most conditions give, and how many do; no class and 0 if none does."""
    places = np.arange(1, n_classes + 1)
    counts = (table[:, :, None] == places).sum(axis=1)
    votes = counts.max(axis=1)
    mean = ratio((counts * places).sum(axis=1), counts.sum(axis=1))
    away = np.where(counts == votes[:, None], np.abs(places - mean[:, None]), np.inf)
    winner = places[np.argmin(np.round(away, 9), axis=1)]
    return np.where(votes > 0, winner, 0), votes


def area_under(sums: Floats) -> Floats:
    """The area under selective accuracy by coverage (... x 1), from items and right ones by step.

    Between two steps accuracy is taken to change evenly; before the first it is that of the first.
    """
    half = sums.shape[-1] // 2
    answered, right = (np.cumsum(part, axis=-1) for part in (sums[..., :half], sums[..., half:]))
    accuracy = ratio(right, answered)
    before = np.concatenate([accuracy[..., :1], accuracy[..., :-1]], axis=-1)
    before = np.where(np.isnan(before), accuracy, before)
    width = ratio(sums[..., :half], answered[..., -1:])
    return np.asarray(np.nansum(width * (before + accuracy) / 2, axis=-1)[..., None])


# --- all groups -------------------------------------------------------------------------------


def confidence_estimates(
    gold: Ranks, table: Ranks, n_classes: int, groups: Groups
) -> dict[str, Estimates]:
    """Estimate in every group what is gained by answering only where all conditions agree."""
    winner, votes = consensus(table, n_classes)
    n_views, right = table.shape[1], winner == gold
    agree = votes == n_views
    coverage = share_estimates("coverage", agree, np.ones(len(gold), dtype=np.bool_), groups)
    n_agree = groups.count(agree).tolist()
    why = ["" if size else "no item on which all agree" for size in n_agree]
    selective = share_estimates("selective_accuracy", right, agree, groups, note=why)
    steps = [votes == step for step in range(n_views, -1, -1)]
    adds, each = [*steps, *(step & right for step in steps)], np.eye(len(steps))
    unseen = np.concatenate([np.hstack([each, 0 * each]), np.hstack([each, each])])
    area = jackknife(
        ["abstention_area"],
        adds,
        groups,
        area_under,
        reach=[(0.0, 1.0)],
        n=groups.count(),
        unseen=any_of(unseen, area_under),
    )
    return {"coverage": coverage, "selective_accuracy": selective, **area}


def confidence_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield what agreement over the views of each contrast, and over all views, is worth."""
    for found in graded(panel, contrasts):
        if found.span is None:  # agreement is a vote of classes
            some = confidence_estimates(found.gold, found.table, found.n_classes, found.groups)
            yield from counted_rows(found.own, some.values(), found.contrast, "strict")


SCORES: Mapping[str, Callable[[npt.ArrayLike], Floats]] = {"margin": margins, "entropy": entropies}
N_BINS = 5
NO_PROBABILITIES = "no probabilities: a study asks for them with `scores: true`"
UNREAD = "no item with probabilities was read under all views"
NO_TREND = "undefined: all flip, none does, or all are equally certain"


def certainty_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the flips of every contrast by how sure the answer was under the base view.

    `margin:1` to `margin:5` are flip rates from the smallest to the largest margin, `entropy:1` to
    `entropy:5` from the smallest to the largest entropy; `_rho` and `_trend` say whether they rise
    or fall. An item counts if it was read under all views and has probabilities.
    """
    known = panel.probabilities.is_not_null().to_numpy()
    scores = {name: _scored(panel, known, of) for name, of in SCORES.items()}
    for found in viewed(panel, contrasts):
        name, asked = found.contrast.name, known[found.items]
        kept = (found.table.min(axis=1) > 0) & asked
        flips = (pairs_in(found.table, panel.tolerance[found.items])[2] > 0)[kept]
        groups = found.groups.among(kept)
        for score, of in scores.items():
            yield from _sure_rows(name, flips, groups, score, of[found.items][kept])
        silent = found.measured & (groups.count() == 0) & ~panel.units.decimal
        n_known = found.groups.among(asked).count()
        why = [UNREAD if n else NO_PROBABILITIES for n in n_known.tolist()]
        yield rows_of(silent, undefined("margin_trend", why), name, "complete")


def _scored(panel: Panel, known: Booleans, of: Callable[[npt.ArrayLike], Floats]) -> Floats:
    """Score the probabilities of every item that has some, NaN for the others."""
    score = np.full(len(known), np.nan)
    n_classes = panel.n_classes[panel.groups.of]
    for size in np.unique(n_classes[known]).tolist():
        own = known & (n_classes == size)
        lists = panel.probabilities.filter(own)
        if (lists.list.len() != size).any():
            raise Problem(f"a decision on {size} classes has another number of probabilities")
        score[own] = of(np.array(lists.to_list()))
    return score


def _sure_rows(
    contrast: str, flips: Booleans, groups: Groups, name: str, score: Floats
) -> Iterator[Rows]:
    """Flips by fifths of a score, and whether they rise or fall with it."""
    place = by_group(score, groups, lambda own: confidence_bins(own, N_BINS).astype(float))
    for number in range(N_BINS):
        own = place == number
        among = groups.among(own)
        least, most = np.full(among.n, np.inf), np.full(among.n, -np.inf)
        np.minimum.at(least, among.of, score[own])
        np.maximum.at(most, among.of, score[own])
        note = [f"{low:.3f} to {high:.3f}" for low, high in zip(least, most, strict=True)]
        everything = np.ones(len(among.of), dtype=np.bool_)
        rate = share_estimates(f"{name}:{number + 1}", flips[own], everything, among, note=note)
        yield rows_of(rate.n > 0, rate, contrast, "complete")
    n, (rho, p) = groups.count(), trends(flips, score, groups)
    why = np.where(np.isnan(rho), NO_TREND, "").tolist()
    yield rows_of(n > 0, estimates(f"{name}_rho", rho, n=n, note=why), contrast, "complete")
    tested, statistic = estimates(f"{name}_trend", p, n=n, note=why), (n - 1) * rho**2
    yield rows_of(n > 0, tested, contrast, "complete", p=p, statistic=statistic)


def trends(flips: Booleans, score: Floats, groups: Groups) -> tuple[Floats, Floats]:
    """Spearman's rho between a score and flips in every group, and its p by Mantel's (n - 1) rho².

    This is Cochran and Armitage's test for a trend with ranks for scores. Both are NaN where all
    flip, none does, or all are equally sure.
    """
    ranks, n = by_group(score, groups, midranks), groups.count()
    rho = correlations(ranks, flips.astype(np.float64), groups)
    return rho, np.asarray(special.chdtrc(1, np.maximum(n - 1, 0) * rho**2))
