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
    choices_of,
    estimate_rows,
    plain,
)
from flipmeter.measure.estimates.long_table import Rows
from flipmeter.measure.inference.blocks import Row, read_blocks
from flipmeter.measure.inference.bounds import Bounded, bounded_mean, bounded_share
from flipmeter.measure.inference.judge import DRAWS
from flipmeter.measure.inference.randomisation.randomise import evidence
from flipmeter.measure.panel.checked import Booleans, Floats
from flipmeter.measure.panel.panel import Panel, compared
from flipmeter.measure.panel.units import differ
from flipmeter.types import ALPHA, Contrast, Estimate

HALF = 0.5


def pair_estimates(choices: Choices) -> Found:
    """Estimate the preference of one judge for a place, and its accuracy by order."""
    read = choices.classes > 0
    complete: Booleans = np.asarray(read.all(axis=1))
    failed = int((~complete).sum())
    found: Found = {}
    if complete.any():
        mine = choices.among(complete)
        found["first_share"] = plain(as_estimate("first_share", _first_share(mine), failed))
        found["first_test"] = plain(_tested(mine, failed))
        same = ~differ(mine.classes[:, 0], mine.classes[:, 1], mine.tolerance)
        found["consistency"] = plain(_share("consistency", mine, same.astype(np.float64), failed))
    for order, name in enumerate(("ties:1", "ties:2")):
        own = choices.among(read[:, order])
        if read[:, order].any():
            tied = (own.places[:, order] == 0).astype(np.float64)
            found[name] = plain(_share(name, own, tied, int((~read[:, order]).sum())))
    graded = choices.gold > 0
    return found | (_accuracies(choices.among(graded)) if graded.any() else {})


def _first_share(choices: Choices) -> Bounded:
    """Share of wins of what stood first; an item whose orders agree adds exactly one half."""
    wins = by_cluster(choices, (choices.places == 1).sum(axis=1).astype(np.float64))
    decided = by_cluster(choices, (choices.places > 0).sum(axis=1).astype(np.float64))
    some = decided > 0
    lean = bounded_mean(wins[some] / decided[some] - HALF, ALPHA, bottom=-HALF, top=HALF)
    return Bounded(
        *(lean.value + HALF, lean.low + HALF, lean.high + HALF),
        *(lean.lower + HALF, lean.upper + HALF),
        lean.n,
    )


def _tested(choices: Choices, failed: int) -> Estimate:
    """The core's exact test of direction: does the winner move with its place?"""
    row = Row(choices.classes, None, choices.cluster, span=choices.span)
    p = evidence(read_blocks(row), draws=DRAWS, seed=0)
    note = "randomisation test of direction"
    n = len(choices.classes)
    return Estimate(p.p_direction, n=n, failed=failed, metric="first_test", note=note)


def _share(name: str, choices: Choices, marks: Floats, failed: int) -> Estimate:
    hits, trials = by_cluster(choices, marks), by_cluster(choices, np.ones(len(marks)))
    return as_estimate(name, bounded_share(hits, trials, ALPHA), failed)


def _accuracies(choices: Choices) -> Found:
    """Accuracy in each order, in both, and of agreement; what was not read is wrong."""
    read = choices.classes > 0
    right = read & ~differ(choices.classes, choices.gold[:, None], choices.tolerance)
    failed = int((choices.classes < 1).any(axis=1).sum())
    marks: dict[str, Booleans] = {
        "accuracy:1": right[:, 0],
        "accuracy:2": right[:, 1],
        "accuracy_both": np.asarray(right.all(axis=1)),
    }
    return {
        name: plain(_share(name, choices, mark.astype(np.float64), failed))
        for name, mark in marks.items()
    }


def pair_rows(panel: Panel, contrasts: Sequence[Contrast]) -> Iterator[Rows]:
    """Yield the preference for a place from every contrast that swaps two answers."""
    for contrast in contrasts:
        found = compared(panel, contrast)
        if not contrast.swaps_answers or not found.items.any():
            continue
        swapped = found.items & (panel.places.n == 2)
        for group in np.flatnonzero(found.measured & (panel.groups.count(swapped) > 0)).tolist():
            mine = swapped & (panel.groups.of == group)
            yield from estimate_rows(
                group, pair_estimates(choices_of(panel, contrast, mine)), contrast.name
            )
