"""Votes over positions, or probabilities -> when an answer can be relied on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

from flipmeter.measure.estimates.long_table import Rows, counted_rows
from flipmeter.measure.panel.checked import (
    Floats,
    Ints,
    Ranks,
    ratio,
)
from flipmeter.measure.panel.graded import graded
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.statistics.jackknife import any_of, jackknife
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast, Problem

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
