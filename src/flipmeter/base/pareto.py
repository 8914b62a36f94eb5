"""Numbers of which less is better -> the Pareto front."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MANY = 100
"""More candidates than this are compared with the front alone, table by table."""


def non_dominated(losses: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Mark the Pareto front: (..., candidates, axes), less is better on all axes.

    One beats another if it is nowhere worse and somewhere better; equals do not beat each other.
    """
    table = np.asarray(losses, dtype=np.float64)
    if table.shape[-2] > MANY:
        each = table.reshape(-1, *table.shape[-2:])
        return np.stack([_front(one) for one in each]).reshape(table.shape[:-1])
    beaten = np.zeros(table.shape[:-1], dtype=np.bool_)
    for place in range(table.shape[-2]):
        one = table[..., place, None, :]
        beaten |= (one <= table).all(axis=-1) & (one < table).any(axis=-1)
    return ~beaten


def _front(table: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Mark the front of one table: in sorted order, no row is beaten by a later one."""
    on_front: npt.NDArray[np.bool_] = np.asarray(
        np.isnan(table).any(axis=1)
    )  # a NaN neither beats nor is beaten
    known = ~on_front
    rows, same = np.unique(table[known], axis=0, return_inverse=True)
    is_best = np.zeros(len(rows), dtype=np.bool_)
    left = np.arange(len(rows))
    while left.size:
        best, left = left[0], left[1:]
        is_best[best] = True
        left = left[(rows[left] < rows[best]).any(axis=1)]
    on_front[known] = is_best[same.reshape(-1)]
    return on_front
