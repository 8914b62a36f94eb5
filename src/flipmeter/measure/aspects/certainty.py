"""Probabilities under the base view -> whether the answers that are least sure flip most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.aspects.confidence import confidence_bins, entropies, margins
from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.inference.blocks import pairs_in
from flipmeter.measure.panel.checked import Booleans, Floats
from flipmeter.measure.panel.graded import viewed
from flipmeter.measure.panel.groups import Groups, estimates, undefined
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.statistics.correlation import by_group, correlations, midranks
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast, Problem

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
