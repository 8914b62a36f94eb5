"""Aggregators that cut a score into classes: wins weighted by label, and plain net wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from flipmeter.decide.aggregators.outcomes import (
    Aggregated,
    Comparisons,
    Floats,
    Ints,
    is_paper,
    place,
)
from flipmeter.registry import suggestion
from flipmeter.types import Mode, Problem

Thresholds = Literal["expected", "equal", "self"]


def weighted_sum(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
    thresholds: Thresholds | None = None,
    lam: float = 0.5,
    shares: Sequence[float] | None = None,
) -> Ints:
    """Cut the sum of outcome times label into classes.

    `expected` thresholds lie midway between the sums that a perfect comparator gives to
    neighbouring classes. `equal` are bins of one width, into which its sums do not fall one by one:
    paper mode has no others, and puts a sum on a cut into the upper bin, not towards the middle.

    `self` is a reconstruction of self-supervised thresholds, whose published formulas we could not
    read: `lam` parts of the expected ones, and the rest from the quantiles of the sums of *these*
    items at the assumed `shares` of the classes (equal ones unless given). A class then depends on
    what else is in the call.
    """
    compared = Comparisons.of(outcomes, labels, n_classes)
    return weighted(compared, mode, thresholds=thresholds, lam=lam, shares=shares).ranks


def copeland(
    outcomes: npt.ArrayLike,
    labels: npt.ArrayLike,
    n_classes: int,
    *,
    mode: Mode = "recommended",
) -> Ints:
    """Cut the net number of wins into bins of one width; the labels do not matter.

    Net wins on a cut go towards the middle of the scale, in paper mode into the upper bin.
    """
    return net_wins(Comparisons.of(outcomes, labels, n_classes), mode).ranks


def weighted(
    compared: Comparisons,
    mode: Mode,
    *,
    thresholds: Thresholds | None = None,
    lam: float = 0.5,
    shares: Sequence[float] | None = None,
) -> Aggregated:
    """Cut the sum of outcome times label."""
    labels, sums = compared.labels, compared.outcomes @ compared.labels
    kind = _kind(thresholds, mode)
    if kind == "equal":
        return _in_equal_bins(compared, sums, int(labels.sum()), mode)
    ideal = np.sign(compared.classes[:, None] - labels) @ labels
    expected: Ints = ideal[:-1] + ideal[1:]  # twice the threshold, to stay with whole numbers
    if kind == "expected":
        return place(2 * sums, expected, "central")
    learned = np.quantile(2 * sums, _below(shares, compared.n_classes))
    return place(2 * sums, _blended(expected, learned, lam), "central")


def net_wins(compared: Comparisons, mode: Mode) -> Aggregated:
    """Cut the net number of wins."""
    net = compared.outcomes.sum(axis=1)
    return _in_equal_bins(compared, net, len(compared.labels), mode)


def _in_equal_bins(compared: Comparisons, scores: Ints, limit: int, mode: Mode) -> Aggregated:
    """Cut [-limit, limit] into M bins, in whole numbers."""
    n_classes = compared.n_classes
    cuts = limit * (2 * compared.classes[:-1] - n_classes)
    return place(n_classes * scores, cuts, "highest" if is_paper(mode) else "central")


def _kind(thresholds: Thresholds | None, mode: Mode) -> Thresholds:
    if thresholds is None:
        return "equal" if is_paper(mode) else "expected"
    if thresholds not in get_args(Thresholds):
        known = list(get_args(Thresholds))
        raise Problem(f"no thresholds named '{thresholds}'{suggestion(thresholds, known)}")
    if is_paper(mode) and thresholds != "equal":
        raise Problem(
            f"paper mode has equal thresholds; ask for '{thresholds}' in mode recommended"
        )
    return thresholds


def _blended(expected: Ints, learned: Floats, lam: float) -> Floats:
    if not 0 <= lam <= 1:
        raise Problem(f"lam is the weight of the expected thresholds, from 0 to 1; got {lam}")
    return lam * expected + (1 - lam) * learned


def _below(shares: Sequence[float] | None, n_classes: int) -> Floats:
    """The share of items below each cut."""
    assumed = np.full(n_classes, 1 / n_classes) if shares is None else np.asarray(shares, float)
    if assumed.shape != (n_classes,) or not (assumed >= 0).all() or not np.isfinite(assumed).all():
        raise Problem(f"shares must be {n_classes} numbers, one per class, none negative")
    if not np.isclose(assumed.sum(), 1):
        raise Problem(f"shares must add up to 1; these add up to {assumed.sum():g}")
    below: Floats = np.minimum(assumed.cumsum()[:-1], 1)
    return below
