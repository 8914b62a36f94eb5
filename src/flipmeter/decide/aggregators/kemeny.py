"""Several rankings of the same few things -> the one that contradicts them least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flipmeter.decide.spaces import whole
from flipmeter.types import Problem

MOST_THINGS = 14
"""The search is exact, over all subsets: each thing more doubles it."""


@dataclass(frozen=True)
class Ranking:
    """An order of things, first to last, and on how many pairs of things it is contradicted."""

    order: tuple[int, ...]
    distance: int
    tie_decided: bool = False


def central_ranking(rankings: npt.ArrayLike) -> Ranking:
    """The ranking with the least total Kendall distance (Kemeny), of things 0 to n-1.

    Among equals it is the one whose first thing has the lowest number, and so on.
    """
    table = _rankings(rankings)
    n_things = table.shape[1]
    place = np.argsort(table, axis=1)
    # contradicted[i, j]: how many rankings have j before i, and lose that pair if i comes first.
    contradicted = (place[:, :, None] > place[:, None, :]).sum(axis=0)
    cost = _costs(contradicted)
    order: list[int] = []
    placed, tied = 0, False
    while len(order) < n_things:
        best = [
            thing for thing, total in _steps(placed, cost, contradicted) if total == cost[placed]
        ]
        tied |= len(best) > 1
        order.append(best[0])
        placed |= 1 << best[0]
    return Ranking(tuple(order), cost[0], tied)


def _costs(contradicted: npt.NDArray[np.int64]) -> list[int]:
    """For each set of things already placed what placing the others costs at least."""
    full = (1 << len(contradicted)) - 1
    cost = [0] * (full + 1)
    for placed in reversed(range(full)):
        cost[placed] = min(total for _, total in _steps(placed, cost, contradicted))
    return cost


def _steps(
    placed: int, cost: Sequence[int], contradicted: npt.NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Each thing that can come next, with the least cost of that and all that follows."""
    left = [thing for thing in range(len(contradicted)) if not placed >> thing & 1]
    lost = contradicted[np.ix_(left, left)].sum(axis=1).tolist()
    return [
        (thing, pairs + cost[placed | 1 << thing]) for thing, pairs in zip(left, lost, strict=True)
    ]


def _rankings(rankings: npt.ArrayLike) -> npt.NDArray[np.int64]:
    table = whole(rankings, "rankings")
    if table.ndim != 2 or not table.size:
        raise Problem(f"rankings must be rankings x things; got an array of shape {table.shape}")
    if (np.sort(table, axis=1) != np.arange(table.shape[1])).any():
        raise Problem(f"each ranking must list the things 0 to {table.shape[1] - 1} once")
    if table.shape[1] > MOST_THINGS:
        raise Problem(f"rankings of {table.shape[1]} things; at most {MOST_THINGS} can be searched")
    return table
