"""Gold and predictions -> accuracy, macro-F1, correlations and distance, with intervals.

Every score is a function of the table of counts, gold (M rows) by predicted (M + 1 columns, the
first is "no class"), and works on a stack of tables as well as on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.stats.formulas import by_group, midranks, share_estimates
from flipmeter.stats.groups import (
    Booleans,
    Estimates,
    Floats,
    Groups,
    Ints,
    Ranks,
    Rows,
    estimates,
    ratio,
    rows_of,
)
from flipmeter.stats.metrics import added_scores, scored_by
from flipmeter.stats.panel import Panel
from flipmeter.stats.resampling import jackknife
from flipmeter.types import Mode

MOMENT_SCORES = ("accuracy", "pearson", "mae_normalised")
N_MOMENTS = 8
"""Items, right ones, distances, and the five sums of a correlation."""
ERRORS = (0.5, 0.75, 1.0)
"""By how much of the scale an item may be wrong that is not in the sample."""


def moments(gold: Floats, given: Floats, right: Booleans) -> Floats:
    """Contributions of each item (items x moments); gold and answer are shares of the scale."""
    ones = np.ones_like(gold)
    away = np.abs(given - gold)
    parts = [ones, right, away, gold, given, gold**2, given**2, gold * given]
    return np.stack([np.asarray(part, dtype=np.float64) for part in parts], axis=-1)


def moment_scores(sums: Floats, names: Sequence[str]) -> dict[str, Floats]:
    """Scores from sums of moments (... x moments)."""
    n, right, away, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum(n * xx - x**2, 0) * np.maximum(n * yy - y**2, 0)
    # The rounding error of a constant side is not spread.
    spread = np.where(spread > 1e-18 * np.maximum(n, 1) ** 4, spread, 0.0)
    known = {
        "accuracy": ratio(right, n),
        "pearson": ratio(n * xy - x * y, np.sqrt(spread)),
        "mae_normalised": ratio(away, n),
    }
    return {name: known[name] for name in names}


def moved_by_one(sums: Floats, values: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Contribution of one extra item to scores if it is right, and the change if it is wrong.

    Sums are groups x moments, values groups x names. Gold lies evenly on the scale. An error is
    three quarters of the scale large, or half of it if that moves a score more; in a mean distance
    it is all of it.
    """
    places = np.linspace(0, 1, 9)

    def moved(gold: Floats, given: Floats, *, is_right: bool = False) -> Floats:
        """Mean change of scores by one extra item, times the items."""
        more = moments(gold, given, np.full(len(gold), is_right))
        found = moment_scores(sums[:, None] + more, names)
        change = np.stack([found[name] for name in names], axis=-1) - values[:, None]
        return np.asarray(np.nan_to_num((sums[:, None, :1] + 1) * change).mean(axis=1))

    def slip(error: float) -> Floats:
        """The change by gold and answers that lie so far apart, up and down."""
        upper = places[places >= error]
        return moved(np.r_[upper, upper - error], np.r_[upper - error, upper]) - right

    right = moved(places, places, is_right=True)
    half, large, whole = map(slip, ERRORS)
    large = np.where(np.abs(half) > np.abs(large), half, large)
    is_distance = np.array([name.startswith("mae") for name in names])
    return right, np.where(is_distance, whole, large)


def shares(ranks: Ints, n_ranks: Ints | int) -> Floats:
    """Ranks as shares of their scale."""
    return np.asarray((ranks - 1) / (n_ranks - 1), dtype=np.float64)


ScorePolicy = Literal["complete", "strict"]

SCORES = (
    "accuracy",
    "macro_f1",
    "spearman",
    "mae",
    "parse_failure",
    "kendall_tau_b",
    "qwk",
    "mae_normalised",
    "macro_f1_present",
)
STRICT_SCORES = ("accuracy", "macro_f1", "macro_f1_present")
"""The scores that a failure can make worse: there is no distance to "no class"."""


def confusions(gold: Ranks, predicted: Ranks, n_classes: int, groups: Groups) -> Floats:
    """Count gold against predicted classes in every group: a stack of tables."""
    shape = groups.n, n_classes, n_classes + 1
    cells = (groups.of * shape[1] + gold - 1) * shape[2] + predicted
    return np.bincount(cells, minlength=math.prod(shape)).reshape(shape).astype(np.float64)


def scores(
    tables: Floats, policy: ScorePolicy = "complete", names: Sequence[str] = SCORES
) -> dict[str, Floats]:
    """Compute some of `SCORES` for a table, or for every table of a stack."""
    scored, read = _scored(tables, policy), tables[..., 1:]
    n_read, n_scored, f1 = _sum_table(read), _sum_table(scored), _f1(scored)
    present = scored.sum(axis=-1) > 0
    mae = ratio(_sum_table(_rank_distances(read) * read), n_read)
    known: dict[str, Callable[[], Floats]] = {
        "accuracy": lambda: ratio(_diagonal(read).sum(axis=-1), n_scored),
        "macro_f1": lambda: np.where(n_scored > 0, f1.mean(axis=-1), np.nan),
        "spearman": lambda: _spearman(read),
        "mae": lambda: mae,
        "parse_failure": lambda: ratio(tables[..., 0].sum(axis=-1), _sum_table(tables)),
        "kendall_tau_b": lambda: _kendall(read),
        "qwk": lambda: _qwk(read),
        "mae_normalised": lambda: mae / (read.shape[-1] - 1),
        "macro_f1_present": lambda: ratio((f1 * present).sum(axis=-1), present.sum(axis=-1)),
    }
    return {name: known[name]() for name in names}


def _scored(tables: Floats, policy: ScorePolicy) -> Floats:
    """The counts for accuracy and F1."""
    if policy == "strict":
        return tables
    if policy == "complete":
        return np.asarray(tables * (np.arange(tables.shape[-1]) > 0))
    raise Problem(f"no score policy named '{policy}'{suggestion(policy, ['complete', 'strict'])}")


def _sum_table(tables: Floats) -> Floats:
    return np.asarray(tables.sum(axis=(-2, -1)))


def _diagonal(read: Floats) -> Floats:
    return np.asarray(np.diagonal(read, axis1=-2, axis2=-1))


def _rank_distances(read: Floats) -> Floats:
    places = np.arange(read.shape[-1], dtype=np.float64)
    return np.asarray(np.abs(places[:, None] - places))


def _f1(scored: Floats) -> Floats:
    """F1 of each class; 0 where it is neither gold nor predicted."""
    times = scored.sum(axis=-1) + scored[..., 1:].sum(axis=-2)
    return np.asarray(2 * _diagonal(scored[..., 1:]) / np.maximum(times, 1))


def _spearman(read: Floats) -> Floats:
    """Pearson's correlation of mid-ranks."""
    gold, predicted = read.sum(axis=-1), read.sum(axis=-2)
    x, y = _centred_midranks(gold), _centred_midranks(predicted)
    together = _sum_table(x[..., :, None] * read * y[..., None, :])
    spread = (gold * x**2).sum(axis=-1) * (predicted * y**2).sum(axis=-1)
    return ratio(together, np.sqrt(spread))


def _centred_midranks(counts: Floats) -> Floats:
    middle = counts.sum(axis=-1, keepdims=True) / 2
    return np.asarray(np.cumsum(counts, axis=-1) - counts / 2 - middle)


def _kendall(read: Floats) -> Floats:
    """Kendall's tau-b: concordant minus discordant pairs over those that neither side ties."""
    n = _sum_table(read)
    ties = [(read.sum(axis=axis) ** 2).sum(axis=-1) for axis in (-1, -2)]
    untied = np.sqrt((n**2 - ties[0]) * (n**2 - ties[1])) / 2
    return ratio(_count_concordant(read) - _count_concordant(read[..., ::-1]), untied)


def _count_concordant(read: Floats) -> Floats:
    """Count the pairs of items in which both sides rise."""
    below = read.cumsum(axis=-2).cumsum(axis=-1)
    return _sum_table(read[..., 1:, 1:] * below[..., :-1, :-1])


def _qwk(read: Floats) -> Floats:
    """Quadratic-weighted kappa; NaN only when both sides give one and the same class."""
    weights, n = _rank_distances(read) ** 2, _sum_table(read)
    expected = read.sum(axis=-1)[..., :, None] * read.sum(axis=-2)[..., None, :]
    return np.asarray(1 - ratio(_sum_table(weights * read) * n, _sum_table(weights * expected)))


LARGE_ERROR = 0.75
"""Share of the scale that an error not seen yet may have in a score other than a mean: with half of
it, differences of Spearman's coefficient cover 70 % where errors are rare and large."""


def one_more(
    tables: Floats, values: Floats, names: Sequence[str], n: int, policy: ScorePolicy = "complete"
) -> tuple[Floats, Floats]:
    """Contribution of one extra item to scores if it is right, and the change if it is wrong.

    `tables` are groups x gold x class and `values` groups x names, over n clusters. Classes are as
    frequent as gold. An error is three quarters of the scale large, or half of it if that moves a
    score more; in a mean distance it is all of it.
    """
    gold = tables.sum(axis=2)
    share = np.nan_to_num(ratio(gold, gold.sum(axis=1, keepdims=True)))
    most, places = tables.shape[1] - 1, np.arange(tables.shape[1])

    def moved(gold: Ints, given: Ints) -> Floats:
        """Change of scores by one extra item in a cell: groups x names x cells."""
        more = np.zeros((len(gold), *tables.shape[1:]))
        more[np.arange(len(gold)), gold, given + 1] = 1
        found = scores(tables[:, None] + more, policy, names=names)
        change = np.stack([found[name] for name in names], axis=1) - values[..., None]
        return np.asarray((n + 1) * change)

    def slip(step: int) -> Floats:
        """Root mean square of what errors by so many classes add, with the sign of their mean."""
        gold = np.concatenate([places[step:], places[:-step]])
        away = moved(gold, np.concatenate([places[:-step], places[step:]])) - right[..., gold]
        weight = np.where(np.isnan(away), 0.0, share[:, None, gold])
        away = np.nan_to_num(away)
        size = np.sqrt(np.nan_to_num(ratio((weight * away**2).sum(axis=2), weight.sum(axis=2))))
        return np.where((weight * away).sum(axis=2) > 0, size, -size)

    right = moved(places, places)
    steps = max(1, most // 2), math.ceil(LARGE_ERROR * most), most
    half, large, whole = map(slip, steps)
    large = np.where(np.abs(half) > np.abs(large), half, large)
    is_distance = np.array([name.startswith("mae") for name in names])
    added = (np.nan_to_num(right) * share[:, None]).sum(axis=2)
    return added, np.where(is_distance, whole, large)


DISTANCES = ("mae", "mae_normalised")
COEFFICIENTS = ("macro_f1", "spearman", "kendall_tau_b", "qwk", "macro_f1_present")
COVERED = ("macro_f1", "spearman")
"""Coefficients whose interval holds in small samples (docs/calibration.md); others have none."""

NOT_COVERED = "no interval: none is known to hold in small samples"
FEWEST_OF_CLASS = 3
"""A class with fewer items decides macro F1 by chance: with none of it, its F1 is 0."""

RARE_CLASS = f"no interval: macro F1 needs at least {FEWEST_OF_CLASS} items of every class"


def score_estimates(
    gold: Ranks,
    predicted: Ranks,
    n_classes: int,
    groups: Groups,
    policy: ScorePolicy = "complete",
    mode: Mode = "recommended",
) -> dict[str, Estimates]:
    """Estimate the scores of every group of one scale, with intervals over clusters of items.

    In paper mode every item counts by itself, and the interval of accuracy is Wilson's.
    """
    whose = groups if mode == "recommended" else replace(groups, cluster=None)
    read = predicted > 0
    counted = read if policy == "complete" else np.ones_like(read)
    failed = groups.count(~read)
    told: dict[str, Any] = {"n": groups.count(counted), "failed": failed}
    right = gold == predicted
    accuracy = share_estimates("accuracy", right, counted, whose, failed=failed, mode=mode)
    cells = np.zeros((len(gold), n_classes * (n_classes + 1)), dtype=np.bool_)
    cells[np.arange(len(gold)), (gold - 1) * (n_classes + 1) + predicted] = counted
    found = {"accuracy": accuracy, **_coefficients(cells, n_classes, whose, policy, told)}
    rare = _rarest_class_clusters(gold[counted], n_classes, whose.among(counted)) < FEWEST_OF_CLASS
    found["macro_f1"] = _without_interval(found["macro_f1"], rare, RARE_CLASS)
    if policy == "complete":
        away = np.where(read, np.abs(gold - predicted), 0).astype(np.float64)
        columns = [away, away / (n_classes - 1), counted]
        reach = [(0.0, n_classes - 1.0), (0.0, 1.0)]
        found |= jackknife(DISTANCES, columns, whose, reach=reach, **told)
        tables = confusions(gold, predicted, n_classes, groups)[..., 1:]
        found |= {
            name: estimates(name, scored_by(name, tables), note=NOT_COVERED, **told)
            for name in added_scores()
        }
    names = (*SCORES, *added_scores())
    return {name: explained(found[name]) for name in names if name in found}


def _coefficients(
    cells: Booleans, n_classes: int, groups: Groups, policy: ScorePolicy, told: dict[str, Any]
) -> dict[str, Estimates]:
    """Estimate the scores that are not means over items from the cell that each item is in."""
    names = COEFFICIENTS if policy == "complete" else STRICT_SCORES[1:]

    def statistic(sums: Floats) -> Floats:
        values = scores(_as_tables(sums, n_classes), policy, names=names)
        return np.stack([values[name] for name in names], axis=-1)

    def unseen(sums: Floats, values: Floats, n: int) -> Floats:
        right, slip = one_more(_as_tables(sums, n_classes), values, names, n, policy)
        return np.stack([right + np.minimum(slip, 0), right + np.maximum(slip, 0)], axis=-1)

    reach = [(0.0 if name.startswith("macro_f1") else -1.0, 1.0) for name in names]
    found = jackknife(names, [*cells.T], groups, statistic, reach=reach, unseen=unseen, **told)
    everywhere = np.ones(groups.n, dtype=np.bool_)
    for name in names:
        if name not in COVERED:
            found[name] = _without_interval(found[name], everywhere, NOT_COVERED)
    return found


def _as_tables(sums: Floats, n_classes: int) -> Floats:
    return sums.reshape(*sums.shape[:-1], n_classes, n_classes + 1)


def _rarest_class_clusters(gold: Ranks, n_classes: int, groups: Groups) -> Ints:
    """Clusters with an item of the rarest class, in every group."""
    cluster = np.arange(len(gold)) if groups.cluster is None else groups.cluster
    width = int(cluster.max(initial=0)) + 1
    cells = np.unique((groups.of * n_classes + gold - 1) * width + cluster) // width
    counts = np.bincount(cells, minlength=groups.n * n_classes).reshape(groups.n, n_classes)
    return np.asarray(counts.min(axis=1))


def _without_interval(found: Estimates, where: Booleans, why: str) -> Estimates:
    low, high = (np.where(where, np.nan, end) for end in (found.low, found.high))
    notes = zip(where.tolist(), found.note, strict=True)
    note = [why if is_open and not note else note for is_open, note in notes]
    return replace(found, low=low, high=high, note=note)


def explained(found: Estimates) -> Estimates:
    """Say why a score is undefined."""
    lost = np.isnan(found.value)
    low, high = (np.where(lost, np.nan, end) for end in (found.low, found.high))
    each = zip(lost.tolist(), found.n.tolist(), found.note, strict=True)
    why = ("undefined: nothing was read", "undefined: one side is constant")
    note = [why[size > 0] if is_lost else note for is_lost, size, note in each]
    return replace(found, low=low, high=high, note=note)


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
        for one in _distance_estimates(
            panel, ranks, items & (ranks > 0), groups.among(read), failed
        ):
            yield rows_of(own, explained(one), view, "complete")


def _distance_estimates(
    panel: Panel, ranks: Ranks, read: Booleans, groups: Groups, failed: Ints
) -> Iterator[Estimates]:
    n_ranks, n = panel.n_classes[groups.of], groups.count()
    gold, given = (shares(of[read], n_ranks) for of in (panel.gold, ranks))
    placed = (
        by_group(of, groups, lambda own: midranks(own) / max(len(own), 1)) for of in (gold, given)
    )
    for name, (first, second) in (("pearson", (gold, given)), ("spearman", placed)):
        adds = moments(first, second, np.zeros(len(first), dtype=np.bool_))
        correlated: Any = {
            "statistic": _pearson,
            "reach": [(-1.0, 1.0)],
            "unseen": _pearson_one_more,
        }
        yield jackknife((name,), [*adds.T], groups, n=n, failed=failed, **correlated)[name]
    length = (panel.n_classes - 1) * panel.units.step
    away, ones = np.abs(given - gold), np.ones_like(gold)
    columns = [away * length[groups.of], away, ones]
    ends = np.stack([length, np.ones_like(length)], axis=-1)
    reach = np.stack([0 * ends, ends], axis=-1)
    yield from jackknife(DISTANCES, columns, groups, reach=reach, n=n, failed=failed).values()


def _pearson(sums: Floats) -> Floats:
    return moment_scores(sums, ["pearson"])["pearson"][..., None]


def _pearson_one_more(sums: Floats, values: Floats, n: int) -> Floats:
    right, slip = moved_by_one(sums, values, ["pearson"])
    return np.stack([right + np.minimum(slip, 0), right + np.maximum(slip, 0)], axis=-1)
