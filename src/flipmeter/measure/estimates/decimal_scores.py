"""Gold and decimal scores -> agreement within the tolerance, correlations and distance in units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.estimates.moments import moment_scores, moments, moved_by_one, shares
from flipmeter.measure.estimates.scored import DISTANCES, explained
from flipmeter.measure.estimates.scores import ScorePolicy
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.statistics.correlation import by_group, midranks
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Mode

DECIMAL_SCORES = ("accuracy", "pearson", "spearman", "mae", "mae_normalised")
DECIMAL_ONLY = ("pearson",)


def is_scored(name: str, decimal: Booleans) -> Booleans:
    """Mark the groups that a score is for: decimal ones have fewer, and one of their own."""
    if name not in DECIMAL_SCORES:
        return ~decimal
    return decimal if name in DECIMAL_ONLY else np.ones_like(decimal)


def graded(panel: Panel, view: str) -> Booleans:
    """Mark the groups with gold for at least one item of a view."""
    return panel.groups.count(panel.asked((view, 0)) & (panel.gold > 0)) > 0


def decimal_rows(panel: Panel, policies: Sequence[ScorePolicy], mode: Mode) -> Iterator[Rows]:
    """Yield how well decimal scores match gold, in every group that has some, view by view.

    Accuracy is the share of scores that lie within the tolerance of gold.
    """
    if not panel.units.decimal.any():
        return
    for view in panel.views:
        own, ranks = panel.units.decimal & graded(panel, view), panel.ranks[view, 0]
        items = panel.asked((view, 0)) & (panel.gold > 0) & own[panel.groups.of]
        groups = panel.groups.among(items)
        groups = groups if mode == "recommended" else replace(groups, cluster=None)
        right, read = panel.is_right(ranks[items], items), ranks[items] > 0
        failed = groups.count(~read)
        for policy in policies:
            counted = read if policy == "complete" else np.ones_like(read)
            told: dict[str, Any] = {"failed": failed, "mode": mode}
            found = share_estimates("accuracy", right, counted, groups, **told)
            note = [
                why if span is None else f"within {span.within:g} of gold"
                for span, why in zip(panel.units.spans, found.note, strict=True)
            ]
            yield rows_of(own, replace(found, note=note), view, policy)
        for one in _distances(panel, ranks, items & (ranks > 0), groups.among(read), failed):
            yield rows_of(own, explained(one), view, "complete")


def _distances(
    panel: Panel, ranks: Ranks, read: Booleans, groups: Groups, failed: Ints
) -> Iterator[Estimates]:
    n_ranks, n = panel.n_classes[groups.of], groups.count()
    gold, given = (shares(of[read], n_ranks) for of in (panel.gold, ranks))
    placed = (
        by_group(of, groups, lambda own: midranks(own) / max(len(own), 1)) for of in (gold, given)
    )
    for name, (first, second) in (("pearson", (gold, given)), ("spearman", placed)):
        adds = moments(first, second, np.zeros(len(first), dtype=np.bool_))
        correlated: Any = {"statistic": _pearson, "reach": [(-1.0, 1.0)], "unseen": _unseen}
        yield jackknife((name,), [*adds.T], groups, n=n, failed=failed, **correlated)[name]
    length = (panel.n_classes - 1) * panel.units.step
    away, ones = np.abs(given - gold), np.ones_like(gold)
    columns = [away * length[groups.of], away, ones]
    ends = np.stack([length, np.ones_like(length)], axis=-1)
    reach = np.stack([0 * ends, ends], axis=-1)
    yield from jackknife(DISTANCES, columns, groups, reach=reach, n=n, failed=failed).values()


def _pearson(sums: Floats) -> Floats:
    return moment_scores(sums, ["pearson"])["pearson"][..., None]


def _unseen(sums: Floats, values: Floats, n: int) -> Floats:
    right, slip = moved_by_one(sums, values, ["pearson"])
    return np.stack([right + np.minimum(slip, 0), right + np.maximum(slip, 0)], axis=-1)
