"""Verdicts of a judge in both orders of two answers -> which place it prefers, and what that costs.

Both orders of an item are one cluster, with its seeds and copies. A tie chooses no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flipmeter.measure.aspects.options import (
    Choices,
    Found,
    as_estimate,
    by_cluster,
    chosen_among,
    estimate_rows,
    p_of_direction,
)
from flipmeter.measure.estimates.long_table import Rows
from flipmeter.measure.inference.blocks import Row
from flipmeter.measure.inference.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.measure.panel.checked import Booleans
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.panel.units import differ
from flipmeter.types import ALPHA, Contrast, Estimate

HALF = 0.5
ACCURACIES = ("accuracy:1", "accuracy:2", "accuracy_both")


def pair_estimates(choices: Choices) -> Found:
    """Estimate the preference of one judge for a place, and its accuracy by order.

    `first_share` is the share of wins of the answer shown first, over both orders and without
    ties: 1/2 for a judge without a preference. `consistency` is the share of items with the same
    verdict in both orders. `ties:1` and `ties:2` are shares by order, and with gold `accuracy:1`,
    `accuracy:2` and `accuracy_both`, where what was not read is wrong.
    """
    read = choices.classes > 0
    complete: Booleans = np.asarray(read.all(axis=1))
    found: Found = {}
    if complete.any():
        mine, failed = choices.among(complete), int((~complete).sum())
        found["first_share"] = as_estimate("first_share", _first_share(mine), failed)
        p = p_of_direction(Row(mine.classes, None, mine.cluster, span=mine.span))
        n, note = len(mine.classes), "randomisation test of direction"
        found["first_test"] = Estimate(p, n=n, failed=failed, metric="first_test", note=note)
        same = ~differ(mine.classes[:, 0], mine.classes[:, 1], mine.tolerance)
        found["consistency"] = _share("consistency", mine, same, failed)
    for order, name in enumerate(("ties:1", "ties:2")):
        own = choices.among(read[:, order])
        if read[:, order].any():
            tied, failed = own.places[:, order] == 0, int((~read[:, order]).sum())
            found[name] = _share(name, own, tied, failed)
    if not (choices.gold > 0).any():
        return found
    graded = choices.among(choices.gold > 0)
    read = graded.classes > 0
    right = read & ~differ(graded.classes, graded.gold[:, None], graded.tolerance)
    failed = int((~read).any(axis=1).sum())
    marks = (right[:, 0], right[:, 1], np.asarray(right.all(axis=1)))
    for name, mark in zip(ACCURACIES, marks, strict=True):
        found[name] = _share(name, graded, mark, failed)
    return found


def _first_share(choices: Choices) -> Bounded:
    """Share of wins of what stood first; an item whose orders agree adds exactly one half."""
    wins = by_cluster(choices, (choices.places == 1).sum(axis=1).astype(np.float64))
    decided = by_cluster(choices, (choices.places > 0).sum(axis=1).astype(np.float64))
    some = decided > 0
    lean = bounded_mean(wins[some] / decided[some] - HALF, ALPHA, bottom=-HALF, top=HALF)
    low, high, lower, upper = (end + HALF for end in (lean.low, lean.high, lean.lower, lean.upper))
    return Bounded(lean.value + HALF, low, high, lower, upper, lean.n)


def _share(name: str, choices: Choices, marks: Booleans, failed: int) -> Estimate:
    hits, trials = (
        by_cluster(choices, marks.astype(np.float64)),
        by_cluster(choices, np.ones(len(marks))),
    )
    return as_estimate(name, bounded_share(hits, trials, ALPHA), failed)


def pair_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for a place from every contrast that swaps two answers."""
    for contrast in (one for one in contrasts if one.swaps_answers):
        found = compared(panel, contrast)
        for group, _, choices in chosen_among(panel, found, contrast, panel.places.n == 2):
            yield from estimate_rows(group, pair_estimates(choices), np.nan, contrast.name)
