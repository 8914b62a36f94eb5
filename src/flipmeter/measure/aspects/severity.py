"""Classes under several views -> how far they are apart, in forms that can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import Booleans, Floats, Ints, Ranks, rank_table, ratio
from flipmeter.measure.panel.groups import Estimates, Groups, estimates, one_group
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.measure.statistics.bootstrap import Sums, bootstrap, jackknife, over
from flipmeter.measure.statistics.formulas import wilson
from flipmeter.types import Contrast, Estimate, Problem

MEANS = ("distance", "disagreement")
OF_PAIRS = ("kappa", "qwk", "alpha")
OF_MANY = ("alpha",)


def severity(matrix: npt.ArrayLike, n_classes: int) -> dict[str, Estimate]:
    """Say how far the classes of items lie apart over conditions (items x conditions).

    `distance` is the mean over pairs of conditions of the distance in ranks, divided by M - 1;
    `disagreement` the share of pairs of conditions that differ, which, unlike "any differs", does
    not grow with their number; `far` the share of items that are two or more ranks apart, `polar`
    of those on both sides of the middle. `alpha` is Krippendorff's, ordinal. Two conditions also
    have Cohen's `kappa` (1 - flips / flips by chance) and the quadratic-weighted `qwk`. Items with
    a failure are left out, except that alpha keeps those with two classes or more.
    """
    table = _checked(matrix, n_classes)
    each = np.full(len(table), n_classes)
    found = severity_estimates(table, each, one_group(len(table)))
    return {name: one.only() for name, one in found.items()}


def krippendorff_alpha(matrix: npt.ArrayLike, n_classes: int) -> float:
    """Ordinal alpha of items x raters or conditions, 0 for "no class"; NaN if nothing varies."""
    table = _checked(matrix, n_classes)
    together = _coincidences(table, n_classes).sum(axis=0)
    return float(_alpha(together))


def _checked(matrix: npt.ArrayLike, n_classes: int) -> Ranks:
    if n_classes < 2:
        raise Problem(f"a scale needs at least two classes; got n_classes = {n_classes}")
    return rank_table(matrix, "matrix", n_classes)


def severity_estimates(table: Ranks, n_classes: Ints, groups: Groups) -> dict[str, Estimates]:
    """Estimate the severity in every group: items x conditions, and the scale of every item."""
    complete = table.min(axis=1) > 0
    lowest, highest = table.min(axis=1), table.max(axis=1)
    n, failed = groups.count(complete), groups.count(~complete)
    middle = (n_classes + 1) / 2
    marks = {
        "far": complete & (highest - lowest >= 2),
        "polar": complete & (lowest < middle) & (highest > middle),
    }
    found = {name: _share(name, mark, groups, n, failed) for name, mark in marks.items()}
    scale = int(n_classes.max())
    together = _coincidences(table, scale)
    apart = np.abs(np.subtract.outer(np.arange(scale), np.arange(scale)))
    runs = np.where(complete, table.shape[1], 1)
    distance = (together * apart).sum(axis=(1, 2)) / runs / np.maximum(n_classes - 1, 1)
    differ = (together * (apart > 0)).sum(axis=(1, 2)) / runs
    means = [np.where(complete, column, 0.0) for column in (distance, differ)]
    is_pair = table.shape[1] == 2
    cells = _tables(table, complete, scale) if is_pair else together
    found |= bootstrap(MEANS, [*means, complete], groups, n=n, failed=failed)
    return found | jackknife(
        OF_PAIRS if is_pair else OF_MANY,
        [*cells.reshape(len(table), -1).T],
        groups,
        _of_pairs if is_pair else _of_many,
        n=n,
        failed=failed,
        scale="fisher",
    )


def _share(name: str, mark: Booleans, groups: Groups, n: Ints, failed: Ints) -> Estimates:
    k = groups.count(mark)
    low, high = (np.where(n > 0, end, np.nan) for end in wilson(k, n))
    return estimates(name, ratio(k, n), (low, high), n=n, k=k, failed=failed)


def _coincidences(table: Ranks, n_classes: int) -> Floats:
    """Return what each item adds to the pairs of classes it was given, every class once in all."""
    counts = (table[:, :, None] == np.arange(1, n_classes + 1)).sum(axis=1).astype(np.float64)
    pairs = counts[:, :, None] * counts[:, None, :]
    places = np.arange(n_classes)
    pairs[:, places, places] -= counts
    runs = counts.sum(axis=1)
    return np.asarray(pairs / np.maximum(runs - 1, 1)[:, None, None])


def _tables(pair: Ranks, complete: Booleans, n_classes: int) -> Floats:
    cells = np.zeros((len(pair), n_classes, n_classes))
    at = np.flatnonzero(complete)
    cells[at, pair[at, 0] - 1, pair[at, 1] - 1] = 1
    return cells


def _of_pairs(sums: Sums) -> Sums:
    tables = _squares(sums)
    kappa, qwk = _kappas(tables)
    return np.stack([kappa, qwk, _alpha(tables + np.swapaxes(tables, -1, -2))], axis=-1)


def _of_many(sums: Sums) -> Sums:
    return np.asarray(_alpha(_squares(sums))[..., None])


def _squares(sums: Sums) -> Sums:
    n_classes = math.isqrt(sums.shape[-1])
    return sums.reshape(*sums.shape[:-1], n_classes, n_classes)


def _kappas(tables: Sums) -> tuple[Sums, Sums]:
    """Return Cohen's kappa and the quadratic-weighted one of every table."""
    rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
    n, places = rows.sum(axis=-1), np.arange(tables.shape[-1], dtype=tables.dtype)
    differ = n - np.trace(tables, axis1=-2, axis2=-1)
    kappa = 1 - over(differ * n, n**2 - (rows * columns).sum(axis=-1))
    squares = np.subtract.outer(places, places) ** 2
    apart = np.einsum("...ij,ij->...", tables, squares)
    expected = n * ((rows + columns) @ places**2) - 2 * (rows @ places) * (columns @ places)
    return kappa, 1 - over(apart * n, expected)


def _alpha(together: Sums) -> Sums:
    """Return ordinal alpha: distances between classes are those of their mid-ranks, squared."""
    sizes = together.sum(axis=-1)
    n = sizes.sum(axis=-1)
    rank = np.cumsum(sizes, axis=-1) - sizes / 2 - n[..., None] / 2
    spread = (sizes * rank**2).sum(axis=-1)
    within = spread - ((together @ rank[..., None])[..., 0] * rank).sum(axis=-1)
    return np.asarray(1 - over((n - 1) * within, n * spread))


def severity_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the severity of every contrast, pairs and aggregates in the same terms.

    Between classes without an order there is no distance.
    """
    for contrast in contrasts:
        found = compared(panel, contrast)
        if not found.items.any() or panel.nominal.all():
            continue
        table = np.stack(conditions(panel, contrast, found.items), axis=1)
        groups = panel.groups.among(found.items)
        for one in severity_estimates(table, panel.n_classes[groups.of], groups).values():
            own = found.measured & ~panel.nominal & (one.n > 0)
            yield rows_of(own, one, contrast.name, "complete")
