"""Classes under several views -> how far they are apart, in forms that can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import Booleans, Floats, Ranks
from flipmeter.measure.panel.groups import Estimates, Groups
from flipmeter.measure.panel.panel import Panel, compared, conditions
from flipmeter.measure.panel.units import differ
from flipmeter.measure.statistics.jackknife import any_of, jackknife, over
from flipmeter.measure.statistics.shares import share_estimates
from flipmeter.types import Contrast

MEANS = ("distance", "disagreement")
OF_PAIRS = ("kappa", "qwk", "alpha")
OF_MANY = ("alpha",)
LARGE_MOVE = 0.75


def severity_estimates(table: Ranks, n_classes: int, groups: Groups) -> dict[str, Estimates]:
    """Estimate the severity in every group of one scale: items x conditions."""
    complete = table.min(axis=1) > 0
    lowest, highest = table.min(axis=1), table.max(axis=1)
    n, failed = groups.count(complete), groups.count(~complete)
    middle = (n_classes + 1) / 2
    marks = {
        "far": complete & (highest - lowest >= 2),
        "polar": complete & (lowest < middle) & (highest > middle),
    }
    found = {
        name: share_estimates(name, mark, complete, groups, failed=failed)
        for name, mark in marks.items()
    }
    together, places = coincidences(table, n_classes), np.arange(n_classes)
    apart = np.abs(np.subtract.outer(places, places))
    runs = np.where(complete, table.shape[1], 1)
    distance = (together * apart).sum(axis=(1, 2)) / runs / (n_classes - 1)
    differ = (together * (apart > 0)).sum(axis=(1, 2)) / runs
    means = [np.where(complete, column, 0.0) for column in (distance, differ)]
    is_pair = table.shape[1] == 2
    cells = _tables(table, complete, n_classes) if is_pair else together
    shares = [(0.0, 1.0)] * len(MEANS)
    found |= jackknife(MEANS, [*means, complete], groups, reach=shares, n=n, failed=failed)
    names, statistic = (OF_PAIRS, _of_pairs) if is_pair else (OF_MANY, _of_many)
    return found | jackknife(
        names,
        [*cells.reshape(len(table), -1).T],
        groups,
        statistic,
        n=n,
        failed=failed,
        reach=[(-1.0, 1.0)] * len(names),
        unseen=any_of(_unseen(n_classes, 1 if is_pair else table.shape[1]), statistic),
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


def _tables(pair: Ranks, complete: Booleans, n_classes: int) -> Floats:
    cells = np.zeros((len(pair), n_classes, n_classes))
    at = np.flatnonzero(complete)
    cells[at, pair[at, 0] - 1, pair[at, 1] - 1] = 1
    return cells


def _of_pairs(sums: Floats) -> Floats:
    tables = _squares(sums)
    kappa, qwk = _kappas(tables)
    return np.stack([kappa, qwk, ordinal_alpha(tables + np.swapaxes(tables, -1, -2))], axis=-1)


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
    kappa = 1 - over(differ * n, n**2 - (rows * columns).sum(axis=-1))
    squares = np.subtract.outer(places, places) ** 2
    apart = np.einsum("...ij,ij->...", tables, squares)
    expected = n * ((rows + columns) @ places**2) - 2 * (rows @ places) * (columns @ places)
    return kappa, 1 - over(apart * n, expected)


def ordinal_alpha(together: Floats) -> Floats:
    """Ordinal alpha: distances between classes are those of their mid-ranks, squared."""
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
        for n_classes in panel.class_sizes:
            own = found.measured & ~panel.nominal & panel.of_size(n_classes)
            kept = own[groups.of]
            if not kept.any():
                continue
            for one in severity_estimates(table[kept], n_classes, groups.among(kept)).values():
                yield rows_of(own & (one.n > 0), one, contrast.name, "complete")
        own = found.measured & panel.units.decimal
        for one in _in_units(panel, table, groups, own):
            yield rows_of(own & (one.n > 0), one, contrast.name, "complete")


def _in_units(panel: Panel, table: Ranks, groups: Groups, own: Booleans) -> Iterator[Estimates]:
    """Distance between decimal scores: in the units of the scale, and as a share of it."""
    kept = own[groups.of]
    if not kept.any():
        return
    table, among = table[kept], groups.among(kept)
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
