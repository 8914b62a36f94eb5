"""Gold and predicted classes -> accuracy, macro-F1, rank correlation and distance.

Every score is a function of the table of counts, gold (M rows) by predicted (M + 1 columns, the
first is "no class"), and works on a stack of tables as well as on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from flipmeter.measure.panel.checked import Floats, Ranks, ratio
from flipmeter.measure.panel.groups import Groups
from flipmeter.registry import suggestion
from flipmeter.types import Problem

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
    n_read, n_scored, f1 = _total(read), _total(scored), _f1(scored)
    present = scored.sum(axis=-1) > 0
    mae = ratio(_total(_distance(read) * read), n_read)
    known: dict[str, Callable[[], Floats]] = {
        "accuracy": lambda: ratio(_diagonal(read).sum(axis=-1), n_scored),
        "macro_f1": lambda: np.where(n_scored > 0, f1.mean(axis=-1), np.nan),
        "spearman": lambda: _spearman(read),
        "mae": lambda: mae,
        "parse_failure": lambda: ratio(tables[..., 0].sum(axis=-1), _total(tables)),
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


def _total(tables: Floats) -> Floats:
    return np.asarray(tables.sum(axis=(-2, -1)))


def _diagonal(read: Floats) -> Floats:
    return np.asarray(np.diagonal(read, axis1=-2, axis2=-1))


def _distance(read: Floats) -> Floats:
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
    together = _total(x[..., :, None] * read * y[..., None, :])
    spread = (gold * x**2).sum(axis=-1) * (predicted * y**2).sum(axis=-1)
    return ratio(together, np.sqrt(spread))


def _centred_midranks(counts: Floats) -> Floats:
    middle = counts.sum(axis=-1, keepdims=True) / 2
    return np.asarray(np.cumsum(counts, axis=-1) - counts / 2 - middle)


def _kendall(read: Floats) -> Floats:
    """Kendall's tau-b: concordant minus discordant pairs over those that neither side ties."""
    n = _total(read)
    ties = [(read.sum(axis=axis) ** 2).sum(axis=-1) for axis in (-1, -2)]
    untied = np.sqrt((n**2 - ties[0]) * (n**2 - ties[1])) / 2
    return ratio(_rising(read) - _rising(read[..., ::-1]), untied)


def _rising(read: Floats) -> Floats:
    """Count the pairs of items in which both sides rise."""
    below = read.cumsum(axis=-2).cumsum(axis=-1)
    return _total(read[..., 1:, 1:] * below[..., :-1, :-1])


def _qwk(read: Floats) -> Floats:
    """Quadratic-weighted kappa; NaN only when both sides give one and the same class."""
    weights, n = _distance(read) ** 2, _total(read)
    expected = read.sum(axis=-1)[..., :, None] * read.sum(axis=-2)[..., None, :]
    return np.asarray(1 - ratio(_total(weights * read) * n, _total(weights * expected)))
