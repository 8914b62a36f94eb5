"""Gold and predicted classes of many groups -> their scores, with intervals over clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flipmeter.measure.estimates.one_more import one_more
from flipmeter.measure.estimates.scores import (
    SCORES,
    STRICT_SCORES,
    ScorePolicy,
    confusions,
    scores,
)
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.metrics import added_scores, scored_by
from flipmeter.types import Mode

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
    rare = _rarest(gold[counted], n_classes, whose.among(counted)) < FEWEST_OF_CLASS
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


def _rarest(gold: Ranks, n_classes: int, groups: Groups) -> Ints:
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
