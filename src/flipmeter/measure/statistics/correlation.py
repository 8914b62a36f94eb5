"""Two numbers per item -> how they rise together, in every group at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flipmeter.measure.panel.checked import Floats, ratio
from flipmeter.measure.panel.groups import Groups


def correlations(x: Floats, y: Floats, groups: Groups) -> Floats:
    """Pearson's correlation in every group, NaN where a side is constant."""
    n = groups.count()
    a, b = (of - ratio(groups.total(of), n)[groups.of] for of in (x, y))
    return ratio(groups.total(a * b), np.sqrt(groups.total(a**2) * groups.total(b**2)))


def midranks(numbers: Floats) -> Floats:
    """The rank of each number, equal ones sharing the mean of theirs."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def by_group(values: Floats, groups: Groups, make: Callable[[Floats], Floats]) -> Floats:
    """Apply a function to the numbers of each group by themselves."""
    order = np.argsort(groups.of, kind="stable")
    parts = np.split(values[order], np.cumsum(groups.count())[:-1])
    found = np.empty(len(values))
    found[order] = np.concatenate([make(part) if len(part) else part for part in parts])
    return found
