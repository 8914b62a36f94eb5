"""Classes under several views -> how far they move, and what the worst of the positions costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.errors import Problem
from flipmeter.stats.formulas import share_ends, share_estimates
from flipmeter.stats.frame import differ
from flipmeter.stats.groups import (
    Booleans,
    Estimates,
    Floats,
    Groups,
    Ranks,
    Rows,
    counted_rows,
    estimates,
    ratio,
    rows_of,
)
from flipmeter.stats.panel import Panel
from flipmeter.stats.readings import Viewed, by_size, graded, viewed
from flipmeter.stats.resampling import any_of, jackknife
from flipmeter.types import ALPHA, Contrast, Policy, Span

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
        unseen=any_of(_unseen_move_rows(n_classes, 1 if n_views == 2 else n_views), statistic),
    )


def _unseen_move_rows(n_classes: int, weight: int) -> Floats:
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
    tables = _square_tables(sums)
    alpha = ordinal_alpha(tables + np.swapaxes(tables, -1, -2))
    return np.stack([*_kappas(tables), alpha], axis=-1)


def _of_many(sums: Floats) -> Floats:
    return np.asarray(ordinal_alpha(_square_tables(sums))[..., None])


def _square_tables(sums: Floats) -> Floats:
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


STRICT = ("robust_accuracy", "worst_accuracy", "expected_accuracy", "spread")
GUARANTEED = "at least 95 %, for any number of positions"


def cost_matrix(costs: npt.ArrayLike | None, n_classes: int, *, nominal: bool = False) -> Floats:
    """A checked matrix of costs, gold by given; the distance in ranks if none is named."""
    places = np.arange(n_classes, dtype=np.float64)
    if costs is None:
        apart = np.abs(places[:, None] - places)
        return np.minimum(apart, 1) if nominal else apart
    table = np.asarray(costs, dtype=np.float64)
    if table.shape != (n_classes, n_classes):
        raise Problem(f"costs must be {n_classes} x {n_classes}, gold by given; got {table.shape}")
    if not np.isfinite(table).all():
        raise Problem("costs must be numbers; one of them is not finite")
    return table


@dataclass(frozen=True)
class Costs:
    """Costs of giving one rank for another, their range, and the tolerance for equal ranks."""

    between: Callable[[Ranks, Ranks], Floats]
    reach: tuple[float, float]
    tolerance: int = 0

    @classmethod
    def of_classes(cls, table: Floats) -> Costs:
        reach = float(table.min()), float(table.max())
        return cls(lambda gold, given: np.asarray(table[gold - 1, given - 1]), reach)

    @classmethod
    def of_span(cls, span: Span) -> Costs:
        """The distance of scores, in their units."""
        reach = 0.0, span.high - span.low
        return cls(lambda a, b: np.asarray(np.abs(a - b) * span.step), reach, span.tolerance)


def worst_estimates(
    gold: Ranks, table: Ranks, groups: Groups, costs: Costs
) -> dict[str, Estimates]:
    """Estimate the worst case in every group of one scale; every item has a gold class.

    `robust_accuracy` is the share of items that are right under every condition; `worst_accuracy`
    the accuracy of the worst condition and `spread` the best minus the worst, with intervals that
    hold although the condition was picked by looking; `expected_accuracy` is the mean over
    conditions. A failure is wrong. On items without a failure: `cost` is the mean cost of the
    classes given, `instability_cost` the mean cost between two conditions.
    """
    right: Booleans = ((table > 0) & ~differ(table, gold[:, None], costs.tolerance)).T
    n, failed = groups.count(), groups.count(table.min(axis=1) < 1)
    hits = np.stack([groups.count(of) for of in right])
    all_right, everything = np.asarray(right.all(axis=0)), np.ones(len(gold), bool)
    robust = share_estimates("robust_accuracy", all_right, everything, groups, failed=failed)
    # The worst one may be any of them: the upper end must hold for all, the lower for its own.
    low = np.min([share_ends(of, everything, groups)[0] for of in right], axis=0)
    strict = ALPHA / len(right)
    high = np.min([share_ends(of, everything, groups, strict)[1] for of in right], axis=0)
    told: dict[str, Any] = {"n": n, "failed": failed, "note": GUARANTEED}
    worst = estimates("worst_accuracy", ratio(hits.min(axis=0), n), (low, high), **told)
    name, ends = ["expected_accuracy"], [(0.0, 1.0)]
    columns = [right.mean(axis=0), everything]
    expected = jackknife(name, columns, groups, reach=ends, n=n, failed=failed)
    pairs = list(permutations(right, 2))
    lows = [_accuracy_gap(*pair, groups, ALPHA / len(pairs)).low for pair in pairs]
    highs = [_accuracy_gap(*pair, groups, ALPHA).high for pair in pairs]
    gaps = np.maximum(np.max(lows, axis=0), 0), np.max(highs, axis=0)
    spread = estimates("spread", ratio(np.ptp(hits, axis=0), n), gaps, **told)
    found = {"robust_accuracy": robust, "worst_accuracy": worst, **expected, "spread": spread}
    return found | _cost_estimates(gold, table, groups, costs)


def _accuracy_gap(one: Booleans, other: Booleans, groups: Groups, alpha: float) -> Estimates:
    """Difference between the accuracies of two conditions."""
    columns = [one.astype(np.int64) - other, np.ones(len(one))]
    reach = [(-1.0, 1.0)]
    return jackknife(["gap"], columns, groups, reach=reach, n=groups.count(), alpha=alpha)["gap"]


def _cost_estimates(
    gold: Ranks, table: Ranks, groups: Groups, costs: Costs
) -> dict[str, Estimates]:
    complete = table.min(axis=1) > 0
    given = np.where(complete[:, None], table, 1)
    cost = costs.between(gold[:, None], given).mean(axis=1) * complete
    between = [(costs.between(a, b) + costs.between(b, a)) / 2 for a, b in combinations(given.T, 2)]
    names, columns = ("cost", "instability_cost"), [cost, np.mean(between, axis=0) * complete]
    n, failed = groups.count(complete), groups.count(~complete)
    ends = [costs.reach] * 2
    return jackknife(names, [*columns, complete], groups, reach=ends, n=n, failed=failed)


def worst_rows(
    panel: Panel, contrasts: Sequence[Contrast], costs: npt.ArrayLike | None = None
) -> Iterator[Rows]:
    """Yield the worst case over the views of every contrast, and over all views of the run."""
    for found in graded(panel, contrasts):
        if found.span is None:
            matrix = cost_matrix(costs, found.n_classes, nominal=found.nominal)
            own = Costs.of_classes(matrix)
        elif costs is None:
            own = Costs.of_span(found.span)
        else:
            raise Problem("costs are M x M, a class by a class; decimal scores cost their distance")
        some = worst_estimates(found.gold, found.table, found.groups, own)
        for name, one in some.items():
            policy: Policy = "strict" if name in STRICT else "complete"
            yield rows_of(found.own & (one.n > 0), one, found.contrast, policy)
