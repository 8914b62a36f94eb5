"""Gold and predicted classes -> accuracy, macro-F1, rank correlation and distance.

Every score is a function of the table of counts, gold (M rows) by predicted (M + 1 columns, the
first is "no class"), and works on a stack of tables as well as on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from flipmeter.measure.panel.checked import Floats, Ints, Ranks, ranks, ratio, same_length
from flipmeter.measure.panel.groups import Estimates, Groups, estimates, one_group
from flipmeter.measure.statistics.formulas import Z95, wilson
from flipmeter.registry import suggestion
from flipmeter.types import Problem

ScorePolicy = Literal["complete", "strict"]
Interval = tuple[Floats, Floats]

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


@dataclass(frozen=True)
class Performance:
    """How well predictions match the gold classes; NaN where a number is undefined.

    n counts the items that accuracy and F1 rest on; `support` is their gold classes, lowest first.
    The other scores always rest on the items that were read, `parse_failure` on all of them.
    """

    accuracy: float
    macro_f1: float
    spearman: float
    mae: float
    parse_failure: float
    n: int
    kendall_tau_b: float
    qwk: float
    mae_normalised: float
    macro_f1_present: float
    support: tuple[int, ...]


def performance(
    gold: npt.ArrayLike,
    predicted: npt.ArrayLike,
    n_classes: int,
    policy: ScorePolicy = "complete",
) -> Performance:
    """Score predictions against gold; `complete` leaves failures out, `strict` calls them wrong.

    Macro-F1 runs over all classes of the scale, with 0 for a class nobody gave or got;
    `macro_f1_present` runs over the gold classes. A constant side leaves the correlations NaN.
    """
    if n_classes < 2:
        raise Problem(f"a scale needs at least two classes; got n_classes = {n_classes}")
    truth, read = ranks(gold, "gold", n_classes), ranks(predicted, "predicted", n_classes)
    same_length(gold=truth, predicted=read)
    if truth.min() < 1:
        raise Problem("gold holds 0; leave out the items that have no gold class")
    table = confusion(truth, read, n_classes)
    scored = _scored(table, policy)
    values = {name: float(value) for name, value in scores(table, policy).items()}
    support = tuple(int(count) for count in scored.sum(axis=1))
    return Performance(**values, n=sum(support), support=support)


def confusion(gold: Ranks, predicted: Ranks, n_classes: int) -> Floats:
    """Count gold against predicted classes."""
    return np.asarray(confusions(gold, predicted, n_classes, one_group(len(gold)))[0])


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


def intervals(tables: Floats, policy: ScorePolicy = "complete") -> dict[str, Interval]:
    """Compute 95 % intervals of the scores that have a plain one.

    Wilson for shares, normal for distances, delta method for macro-F1 and Spearman.
    """
    scored, read = _scored(tables, policy), tables[..., 1:]
    low, high = _mae_interval(read)
    steps = read.shape[-1] - 1
    return {
        "accuracy": wilson(_diagonal(read).sum(axis=-1), _total(scored)),
        "macro_f1": _f1_interval(scored),
        "spearman": _spearman_interval(read),
        "mae": (low, high),
        "mae_normalised": (low / steps, high / steps),
        "parse_failure": wilson(tables[..., 0].sum(axis=-1), _total(tables)),
    }


def score_estimates(tables: Floats, policy: ScorePolicy = "complete") -> dict[str, Estimates]:
    """Turn a stack of tables into estimates of each of `SCORES`."""
    values, ends = scores(tables, policy), intervals(tables, policy)
    failed, everything = _whole(tables[..., 0].sum(axis=-1)), _whole(_total(tables))
    hits = {"accuracy": _whole(_diagonal(tables[..., 1:]).sum(axis=-1)), "parse_failure": failed}
    counts_all = {"parse_failure", *(STRICT_SCORES if policy == "strict" else ())}
    return {
        name: _estimates(
            *(name, values[name], ends.get(name)),
            n=everything if name in counts_all else everything - failed,
            k=hits.get(name),
            failed=failed,
        )
        for name in SCORES
    }


def _estimates(
    name: str, values: Floats, ends: Interval | None, *, n: Ints, k: Ints | None, failed: Ints
) -> Estimates:
    lost = np.isnan(values)
    if ends is not None:
        ends = np.where(lost, np.nan, ends[0]), np.where(lost, np.nan, ends[1])
    note = [_reason(size) if is_lost else "" for is_lost, size in zip(lost, n, strict=True)]
    return estimates(name, values, ends, n=n, k=k, failed=failed, note=note)


def _reason(n: int) -> str:
    return "undefined: one side is constant" if n else "undefined: nothing was read"


def _whole(counts: Floats) -> Ints:
    return counts.astype(np.int64)


def _scored(tables: Floats, policy: ScorePolicy) -> Floats:
    """Return the counts that accuracy and F1 see."""
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


def _given_and_got(scored: Floats) -> Floats:
    """Gold count plus predicted count of each class; 1 where there is neither."""
    return np.asarray(np.maximum(scored.sum(axis=-1) + scored[..., 1:].sum(axis=-2), 1))


def _f1(scored: Floats) -> Floats:
    return np.asarray(2 * _diagonal(scored[..., 1:]) / _given_and_got(scored))


def _f1_interval(scored: Floats) -> Interval:
    n, n_classes, f1 = np.maximum(_total(scored), 1), scored.shape[-2], _f1(scored)
    share = _given_and_got(scored) / n[..., None]
    slope = np.zeros_like(scored) - (f1 / share)[..., None]
    slope[..., 1:] -= (f1 / share)[..., None, :]
    slope[..., np.arange(n_classes), np.arange(n_classes) + 1] += 2 / share
    chance, slope = scored / n[..., None, None], slope / n_classes
    variance = _total(chance * slope**2) - _total(chance * slope) ** 2
    half = Z95 * np.sqrt(np.maximum(variance, 0) / n)
    mean = f1.mean(axis=-1)
    return np.maximum(mean - half, 0), np.minimum(mean + half, 1)


def _mae_interval(read: Floats) -> Interval:
    n, distance = _total(read), _distance(read)
    mean = ratio(_total(distance * read), n)
    squares = _total(read * (distance - mean[..., None, None]) ** 2)
    half = Z95 * np.sqrt(ratio(ratio(squares, n - 1), n))
    return np.maximum(mean - half, 0), mean + half


def _spearman_interval(read: Floats) -> Interval:
    """Delta method on Fisher's scale; the usual formulas for untied ranks are too narrow here."""
    n, rho = _total(read), _spearman(read)
    usable = (n > 3) & (np.abs(rho) < 1 - 1e-12)
    z = np.arctanh(np.where(usable, rho, np.nan))
    chance = read / np.maximum(n, 1)[..., None, None]
    slope = _spearman_slope(chance, rho)
    variance = _total(chance * slope**2) - _total(chance * slope) ** 2
    half = Z95 * np.sqrt(ratio(np.maximum(variance, 0), n)) / np.where(usable, 1 - rho**2, np.nan)
    return np.tanh(z - half), np.tanh(z + half)


def _spearman_slope(chance: Floats, rho: Floats) -> Floats:
    """How Spearman's coefficient moves with the chance of each cell."""
    gold, predicted = chance.sum(axis=-1), chance.sum(axis=-2)
    x, y = _centred_midranks(gold), _centred_midranks(predicted)
    spread_x, spread_y = (gold * x**2).sum(axis=-1), (predicted * y**2).sum(axis=-1)
    places = np.arange(chance.shape[-1])
    step = np.sign(places[:, None] - places) / 2
    along_x = _times(np.einsum("...ij,...j->...i", chance, y), step)
    along_y = _times(np.einsum("...ij,...i->...j", chance, x), step)
    together = x[..., :, None] * y[..., None, :] + along_x[..., :, None] + along_y[..., None, :]
    own_x = ratio(x**2 + 2 * _times(gold * x, step), spread_x[..., None])
    own_y = ratio(y**2 + 2 * _times(predicted * y, step), spread_y[..., None])
    own = own_x[..., :, None] + own_y[..., None, :]
    scaled = ratio(together, np.sqrt(spread_x * spread_y)[..., None, None])
    return np.asarray(scaled - rho[..., None, None] / 2 * own)


def _times(rows: Floats, matrix: Floats) -> Floats:
    """Multiply each row alone: `@` would round a row differently in a stack of another height."""
    return np.asarray(np.einsum("...i,ij->...j", rows, matrix))


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
