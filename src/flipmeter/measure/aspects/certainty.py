"""Probabilities under the base view -> whether the answers that are least sure flip most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.aspects.confidence import confidence_bins, entropies, margins
from flipmeter.measure.estimates.flips import spread
from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import Booleans, Floats
from flipmeter.measure.panel.groups import Groups, estimates, undefined
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.measure.statistics.correlation import by_group, correlations, midranks
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast, Problem

SCORES: Mapping[str, Callable[[npt.ArrayLike], Floats]] = {"margin": margins, "entropy": entropies}
N_BINS = 5
NO_PROBABILITIES = "no probabilities: a study asks for them with `scores: true`"
UNREAD = "no item with probabilities was read under all views"
NO_TREND = "undefined: all flip, none does, or all are equally certain"


def _trends(flips: Booleans, score: Floats, groups: Groups) -> tuple[Floats, Floats]:
    ranks, n = by_group(score, groups, midranks), groups.count()
    rho = correlations(ranks, flips.astype(np.float64), groups)
    return rho, np.asarray(special.chdtrc(1, np.maximum(n - 1, 0) * rho**2))


# --- all groups -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sure:
    """The flips of a contrast's items, and their certainty under the base view."""

    contrast: str
    flips: Booleans
    groups: Groups
    scores: Mapping[str, Floats]


def certainty_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the flips of every contrast by how sure the answer was under the base view.

    `margin:1` to `margin:5` are flip rates from the smallest to the largest margin, `entropy:1` to
    `entropy:5` from the smallest to the largest entropy; `_rho` and `_trend` say whether they rise
    or fall. An item counts if it was read under all views and has probabilities.
    """
    known = panel.probabilities.is_not_null().to_numpy()
    scores = {name: _scored(panel, known, of) for name, of in SCORES.items()}
    for contrast in contrasts:
        found = compared(panel, contrast)
        if not found.items.any():
            continue
        table = np.stack(conditions(panel, contrast, found.items), axis=1)
        kept = (table.min(axis=1) > 0) & known[found.items]
        flips = spread(table.T) > panel.tolerance[found.items]
        own = {name: score[found.items][kept] for name, score in scores.items()}
        groups = panel.groups.among(found.items).among(kept)
        yield from _sure_rows(_Sure(contrast.name, flips[kept], groups, own))
        silent = found.measured & (groups.count() == 0)
        n_known = panel.groups.among(found.items).among(known[found.items]).count()
        why = [UNREAD if n else NO_PROBABILITIES for n in n_known.tolist()]
        silent = silent & ~panel.units.decimal
        yield rows_of(silent, undefined("margin_trend", why), contrast.name, "complete")


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


def _sure_rows(sure: _Sure) -> Iterator[Rows]:
    n = sure.groups.count()
    for name, score in sure.scores.items():
        place = by_group(score, sure.groups, lambda own: confidence_bins(own, N_BINS).astype(float))
        for number in range(N_BINS):
            yield _bin_rows(sure, f"{name}:{number + 1}", score, place == number)
        rho, p = _trends(sure.flips, score, sure.groups)
        why = np.where(np.isnan(rho), NO_TREND, "").tolist()
        yield rows_of(
            n > 0, estimates(f"{name}_rho", rho, n=n, note=why), sure.contrast, "complete"
        )
        tested = estimates(f"{name}_trend", p, n=n, note=why)
        statistic = (n - 1) * rho**2
        yield rows_of(n > 0, tested, sure.contrast, "complete", p=p, statistic=statistic)


def _bin_rows(sure: _Sure, metric: str, score: Floats, own: Booleans) -> Rows:
    among = sure.groups.among(own)
    n, everything = among.count(), np.ones(int(own.sum()), dtype=np.bool_)
    least, most = np.full(among.n, np.inf), np.full(among.n, -np.inf)
    np.minimum.at(least, among.of, score[own])
    np.maximum.at(most, among.of, score[own])
    note = [f"{low:.3f} to {high:.3f}" for low, high in zip(least, most, strict=True)]
    rate = share_estimates(metric, sure.flips[own], everything, among, note=note)
    return rows_of(n > 0, rate, sure.contrast, "complete")
