"""The randomisation test by its definition: every permutation of every unit's readable replies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

Block = tuple[int, ...]
"""Replies of a block: first and repeat of each view in turn; 0 unreadable, -1 not asked."""


def naive_p(blocks: Sequence[Block], clusters: Sequence[int]) -> float:
    """Exact p of the smaller p-value of excess and direction, ordered classes."""
    n_views = len(blocks[0]) // 2
    every = any(all(x >= 0 for x in block) for block in blocks)
    some = any(x >= 0 for block in blocks for x in block[1::2])
    units: dict[tuple[object, ...], list[Block]] = {}
    for block, cluster in zip(blocks, clusters, strict=True):
        units.setdefault((cluster, tuple(x > 0 for x in block)), []).append(block)
    outcomes = [_unit(unit, n_views, every) for unit in units.values()]
    totals = np.array([np.sum(joint, axis=0) for joint in product(*outcomes)])
    excess = totals[:, 0] if every or not some else np.abs(totals[:, 0])
    least = np.minimum(_p(excess), _p((totals[:, 1:] ** 2).sum(axis=1)))
    return float((least <= least[0] + 1e-12).mean())


def _unit(blocks: list[Block], n_views: int, every: bool) -> list[Floats]:
    readable = [p for p, x in enumerate(blocks[0]) if x > 0]
    found = []
    for order in permutations(readable):
        total = np.zeros(1 + (1 if n_views == 2 else n_views))
        for block in blocks:
            dealt = list(block)
            for p, q in zip(readable, order, strict=True):
                dealt[p] = block[q]
            total += _outcome(dealt, n_views, every)
        found.append(total)
    return found


def _outcome(block: list[int], n_views: int, every: bool) -> Floats:
    views = [[x for x in block[2 * v : 2 * v + 2] if x > 0] for v in range(n_views)]
    full = [view for view in views if len(view) == 2]
    held = full if every else [view for view in views if view]
    excess = 0.0
    if len(held) >= 2 and full:
        across = [
            x != y for i, one in enumerate(held) for other in held[:i] for x in one for y in other
        ]
        excess = float(np.mean(across) - np.mean([x != y for x, y in full]))
    lean: list[Any]
    if n_views == 2:
        lean = [np.mean(views[1]) - np.mean(views[0])] if all(views) else [0.0]
    else:
        centre = np.mean([x for view in views for x in view]) if any(views) else 0.0
        lean = [sum(x - centre for x in view) for view in views]
    return np.array([excess, *lean])


def _p(statistic: Floats) -> Floats:
    rounded = np.round(statistic, 9)
    values, where = np.unique(rounded, return_inverse=True)
    tails = np.array([(rounded >= value).mean() for value in values])
    return np.asarray(tails[where])
