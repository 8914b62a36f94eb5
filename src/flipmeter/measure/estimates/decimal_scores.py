"""Gold and decimal scores -> agreement within the tolerance, correlations and distance in units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.estimates.moments import moment_scores, moments, moved_by_one, shares
from flipmeter.measure.estimates.scored import DISTANCES, explained
from flipmeter.measure.estimates.scores import ScorePolicy
from flipmeter.measure.panel.checked import Booleans, Floats, Ints
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.statistics.correlation import by_group, midranks
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Mode

DECIMAL_SCORES = ("accuracy", "pearson", "spearman", "mae", "mae_normalised")
DECIMAL_ONLY = ("pearson",)


class _Told(TypedDict):
    """Numbers of counted and of unreadable items of every group."""

    n: Ints
    failed: Ints


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
        own = panel.units.decimal & graded(panel, view)
        items = panel.asked((view, 0)) & (panel.gold > 0) & own[panel.groups.of]
        for policy in policies:
            yield rows_of(own, _accuracy(panel, view, items, policy, mode), view, policy)
        for one in _distances(panel, view, items, mode):
            yield rows_of(own, explained(one), view, "complete")


def _accuracy(
    panel: Panel, view: str, items: Booleans, policy: ScorePolicy, mode: Mode
) -> Estimates:
    ranks, groups = panel.ranks[view, 0][items], _whose(panel.groups.among(items), mode)
    read, right = ranks > 0, panel.is_right(ranks, items)
    counted = read if policy == "complete" else np.ones_like(read)
    near = ["" if span is None else f"within {span.within:g} of gold" for span in panel.units.spans]
    failed = groups.count(~read)
    found = share_estimates("accuracy", right, counted, groups, failed=failed, mode=mode)
    return replace(found, note=[told or why for told, why in zip(near, found.note, strict=True)])


def _whose(groups: Groups, mode: Mode) -> Groups:
    return groups if mode == "recommended" else replace(groups, cluster=None)


def _distances(panel: Panel, view: str, items: Booleans, mode: Mode) -> Iterator[Estimates]:
    read = items & (panel.ranks[view, 0] > 0)
    groups, failed = _whose(panel.groups.among(read), mode), panel.groups.count(items & ~read)
    n_ranks, told = panel.n_classes[groups.of], _Told(n=groups.count(), failed=failed)
    gold, given = (shares(of[read], n_ranks) for of in (panel.gold, panel.ranks[view, 0]))
    yield _correlation("pearson", gold, given, groups, told)
    first, second = (by_group(of, groups, _placed) for of in (gold, given))
    yield _correlation("spearman", first, second, groups, told)
    length = (panel.n_classes - 1) * panel.units.step
    away, ones = np.abs(given - gold), np.ones_like(gold)
    columns = [away * length[groups.of], away, ones]
    ends = np.stack([length, np.ones_like(length)], axis=-1)
    reach = np.stack([0 * ends, ends], axis=-1)
    yield from jackknife(DISTANCES, columns, groups, reach=reach, **told).values()


def _placed(values: Floats) -> Floats:
    """Ranks among themselves, as shares of all."""
    return midranks(values) / max(len(values), 1)


def _correlation(name: str, gold: Floats, given: Floats, groups: Groups, told: _Told) -> Estimates:
    """A correlation in every group, with its interval over clusters."""
    names = ("pearson",)
    adds = moments(gold, given, np.zeros(len(gold), dtype=np.bool_))

    def statistic(sums: Floats) -> Floats:
        return moment_scores(sums, names)["pearson"][..., None]

    def unseen(sums: Floats, values: Floats, n: int) -> Floats:
        right, slip = moved_by_one(sums, values, names)
        return np.stack([right + np.minimum(slip, 0), right + np.maximum(slip, 0)], axis=-1)

    columns, reach = [*adds.T], [(-1.0, 1.0)]
    found = jackknife((name,), columns, groups, statistic, reach=reach, unseen=unseen, **told)
    return found[name]
