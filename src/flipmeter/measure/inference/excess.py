"""Repeated views in groups -> the excess of each, with the interval that a verdict has."""

from __future__ import annotations

import numpy as np

from flipmeter.measure.inference.blocks import Blocks
from flipmeter.measure.inference.bounds import LOWEST_EXCESS, Bounded, bounded_mean
from flipmeter.measure.inference.sizes import block_excess
from flipmeter.measure.panel.checked import Ints
from flipmeter.measure.panel.groups import Estimates, Groups, estimates
from flipmeter.types import ALPHA


def grouped_excess(
    first: Ints, again: Ints, clusters: Ints, groups: Groups, metric: str
) -> Estimates:
    """Excess over noise of every group, from items x views of first replies and of repeats."""
    found = [_group(first, again, clusters, groups.of == group) for group in range(groups.n)]
    n = np.array([bounded.n for bounded, _ in found])
    return estimates(
        metric,
        np.array([bounded.value for bounded, _ in found]),
        (
            np.array([max(bounded.low, 0.0) if bounded.n else np.nan for bounded, _ in found]),
            np.array([bounded.high if bounded.n else np.nan for bounded, _ in found]),
        ),
        n=n,
        failed=np.array([failed for _, failed in found]),
        note=["" if size else "no complete item" for size in n],
    )


def _group(
    first: Ints, again: Ints, clusters: Ints, mine: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> tuple[Bounded, int]:
    names, cluster = np.unique(clusters[mine], return_inverse=True)
    replies = np.stack([first[mine], again[mine]], axis=2)
    blocks = Blocks(replies, cluster.astype(np.int64), len(names))
    values, counted = block_excess(blocks)
    means = blocks.means(values, counted)
    return bounded_mean(means, ALPHA, bottom=LOWEST_EXCESS), int((~counted).sum())
