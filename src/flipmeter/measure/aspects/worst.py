"""Gold and classes under several views -> what the worst of the positions costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.measure.estimates.long_table import Rows, rows_of
from flipmeter.measure.panel.checked import (
    Booleans,
    Floats,
    Ranks,
    ratio,
)
from flipmeter.measure.panel.graded import graded
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.panel.units import differ
from flipmeter.measure.statistics.jackknife import jackknife
from flipmeter.measure.statistics.shares import share_ends, share_estimates
from flipmeter.types import ALPHA, Contrast, Policy, Problem, Span

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
    lows = [_gap(*pair, groups, ALPHA / len(pairs)).low for pair in pairs]
    highs = [_gap(*pair, groups, ALPHA).high for pair in pairs]
    gaps = np.maximum(np.max(lows, axis=0), 0), np.max(highs, axis=0)
    spread = estimates("spread", ratio(np.ptp(hits, axis=0), n), gaps, **told)
    found = {"robust_accuracy": robust, "worst_accuracy": worst, **expected, "spread": spread}
    return found | _costs(gold, table, groups, costs)


def _gap(one: Booleans, other: Booleans, groups: Groups, alpha: float) -> Estimates:
    """Difference between the accuracies of two conditions."""
    columns = [one.astype(np.int64) - other, np.ones(len(one))]
    reach = [(-1.0, 1.0)]
    return jackknife(["gap"], columns, groups, reach=reach, n=groups.count(), alpha=alpha)["gap"]


def _costs(gold: Ranks, table: Ranks, groups: Groups, costs: Costs) -> dict[str, Estimates]:
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
