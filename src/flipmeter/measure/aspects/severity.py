"""Classes under several views -> how far they are apart, in forms that can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from flipmeter.measure.estimates.long_table import Rows, counted_rows
from flipmeter.measure.panel.checked import Booleans, Floats, Ranks, ratio
from flipmeter.measure.panel.graded import Viewed, by_size, viewed
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.panel.units import differ
from flipmeter.measure.statistics.jackknife import any_of, jackknife
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast

MEANS = ("distance", "disagreement")
OF_PAIRS = ("kappa", "qwk", "alpha")
OF_MANY = ("alpha",)
LARGE_MOVE = 0.75


def severity_estimates(table: Ranks, n_classes: int, groups: Groups) -> dict[str, Estimates]:
    """Estimate how far classes lie apart in every group of one scale: items x conditions.

    `distance` is the mean over pairs of conditions of the distance in ranks, divided by M - 1;
    `disagreement` the share of pairs of conditions that differ, which, unlike "any differs", does
    not grow with their number; `far` the share of items that are two or more ranks apart, `polar`
    of those on both sides of the middle. `alpha` is Krippendorff's, ordinal. Two conditions also
    have Cohen's `kappa` (1 - flips / flips by chance) and the quadratic-weighted `qwk`. Items with
    a failure are left out, except that alpha keeps those with two classes or more.
    """
    complete, n_views = table.min(axis=1) > 0, table.shape[1]
    lowest, highest = table.min(axis=1), table.max(axis=1)
    n, failed = groups.count(complete), groups.count(~complete)
    middle = (n_classes + 1) / 2
    far, polar = highest - lowest >= 2, (lowest < middle) & (highest > middle)
    found = {
        name: share_estimates(name, complete & mark, complete, groups, failed=failed)
        for name, mark in (("far", far), ("polar", polar))
    }
    together, places = coincidences(table, n_classes), np.arange(n_classes)
    apart = np.abs(np.subtract.outer(places, places))
    runs = np.where(complete, n_views, 1)
    distance = (together * apart).sum(axis=(1, 2)) / runs / (n_classes - 1)
    differ = (together * (apart > 0)).sum(axis=(1, 2)) / runs
    columns = [*(np.where(complete, column, 0.0) for column in (distance, differ)), complete]
    shares = [(0.0, 1.0)] * len(MEANS)
    found |= jackknife(MEANS, columns, groups, reach=shares, n=n, failed=failed)
    names, statistic = (OF_PAIRS, _of_pairs) if n_views == 2 else (OF_MANY, _of_many)
    cells = together
    if n_views == 2:
        cells, at = np.zeros_like(together), np.flatnonzero(complete)
        cells[at, table[at, 0] - 1, table[at, 1] - 1] = 1
    return found | jackknife(
        names,
        [*cells.reshape(len(table), -1).T],
        groups,
        statistic,
        n=n,
        failed=failed,
        reach=[(-1.0, 1.0)] * len(names),
        unseen=any_of(_unseen(n_classes, 1 if n_views == 2 else n_views), statistic),
    )


def _unseen(n_classes: int, weight: int) -> Floats:
    """One more item in any cell of the table, as far off as three quarters of the scale."""
    most = math.ceil(LARGE_MOVE * (n_classes - 1))
    cells = [(a, b) for a in range(n_classes) for b in range(n_classes) if abs(a - b) in (0, most)]
    rows = np.zeros((len(cells), n_classes, n_classes))
    for row, (a, b) in zip(rows, cells, strict=True):
        row[a, b] += weight / 2
        row[b, a] += weight / 2
    return rows.reshape(len(cells), -1)


def coincidences(table: Ranks, n_classes: int) -> Floats:
    """The contribution of each item to the table of class pairs, every class once in all."""
    counts = (table[:, :, None] == np.arange(1, n_classes + 1)).sum(axis=1).astype(np.float64)
    pairs = counts[:, :, None] * counts[:, None, :]
    places = np.arange(n_classes)
    pairs[:, places, places] -= counts
    runs = counts.sum(axis=1)
    return np.asarray(pairs / np.maximum(runs - 1, 1)[:, None, None])


def _of_pairs(sums: Floats) -> Floats:
    tables = _squares(sums)
    alpha = ordinal_alpha(tables + np.swapaxes(tables, -1, -2))
    return np.stack([*_kappas(tables), alpha], axis=-1)


def _of_many(sums: Floats) -> Floats:
    return np.asarray(ordinal_alpha(_squares(sums))[..., None])


def _squares(sums: Floats) -> Floats:
    n_classes = math.isqrt(sums.shape[-1])
    return sums.reshape(*sums.shape[:-1], n_classes, n_classes)


def _kappas(tables: Floats) -> tuple[Floats, Floats]:
    """Cohen's kappa and the quadratic-weighted one of every table."""
    rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
    n, places = rows.sum(axis=-1), np.arange(tables.shape[-1], dtype=tables.dtype)
    differ = n - np.trace(tables, axis1=-2, axis2=-1)
    kappa = 1 - ratio(differ * n, n**2 - (rows * columns).sum(axis=-1))
    squares = np.subtract.outer(places, places) ** 2
    apart = np.einsum("...ij,ij->...", tables, squares)
    expected = n * ((rows + columns) @ places**2) - 2 * (rows @ places) * (columns @ places)
    return kappa, 1 - ratio(apart * n, expected)


def ordinal_alpha(together: Floats) -> Floats:
    """Ordinal alpha: distances between classes are those of their mid-ranks, squared."""
    sizes = together.sum(axis=-1)
    n = sizes.sum(axis=-1)
    rank = np.cumsum(sizes, axis=-1) - sizes / 2 - n[..., None] / 2
    spread = (sizes * rank**2).sum(axis=-1)
    within = spread - ((together @ rank[..., None])[..., 0] * rank).sum(axis=-1)
    return np.asarray(1 - ratio((n - 1) * within, n * spread))


def severity_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the severity of every contrast, pairs and aggregates in the same terms.

    Between classes without an order there is no distance.
    """
    for found in () if panel.nominal.all() else viewed(panel, contrasts):
        name = found.contrast.name
        for n_classes, own, kept in by_size(panel, found, ~panel.nominal):
            some = severity_estimates(found.table[kept], n_classes, found.groups.among(kept))
            yield from counted_rows(own, some.values(), name)
        own = found.measured & panel.units.decimal
        yield from counted_rows(own, _in_units(panel, found, own[found.groups.of]), name)


def _in_units(panel: Panel, found: Viewed, kept: Booleans) -> Iterator[Estimates]:
    """Distance between decimal scores: in the units of the scale, and as a share of it."""
    if not kept.any():
        return
    table, among = found.table[kept], found.groups.among(kept)
    complete, middle = table.min(axis=1) > 0, (panel.n_classes[among.of] + 1) / 2
    pairs = list(combinations(table.T, 2))
    apart = np.mean([np.abs(a - b) for a, b in pairs], axis=0) * complete
    tolerance = panel.units.tolerance[among.of]
    moved = np.mean([differ(a, b, tolerance) for a, b in pairs], axis=0) * complete
    length = (panel.n_classes - 1.0)[among.of]
    n, failed = among.count(complete), among.count(~complete)
    units = (panel.n_classes - 1) * panel.units.step
    shares = np.broadcast_to([0.0, 1.0], (among.n, 2))
    reach = np.stack([np.stack([0 * units, units], axis=-1), shares, shares], axis=1)
    columns = [apart * panel.units.step[among.of], apart / length, moved, complete]
    names = ("difference", *MEANS)
    yield from jackknife(names, columns, among, reach=reach, n=n, failed=failed).values()
    sides = complete & (table.min(axis=1) < middle) & (table.max(axis=1) > middle)
    yield share_estimates("polar", sides, complete, among, failed=failed)
