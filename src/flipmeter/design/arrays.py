"""Orthogonal arrays: every two levels of every two factors meet equally often.

Columns are added one by one, each balanced, and its entries swapped while it has rows in common
with the columns before it that it need not have (after Xu 2002, Technometrics 44).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from flipmeter.base.chance import shuffled
from flipmeter.design.coding import Codes, Floats

ARRAYS, COLUMNS = 12, 40
"""Tries of a whole array, and of each of its columns."""


def may_exist(sizes: Sequence[int], n_rows: int) -> bool:
    """Say whether the number of rows is right: a multiple of every two factors' combinations."""
    fits = all(n_rows % (one * other) == 0 for one, other in combinations(sizes, 2))
    return fits and n_rows > sum(size - 1 for size in sizes)


def orthogonal_array(sizes: Sequence[int], n_rows: int, seed: int) -> Codes | None:
    """Look for an array without a row twice; None if the tries end before one is found."""
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    for attempt in range(ARRAYS if may_exist(sizes, n_rows) else 0):
        found = _array([sizes[place] for place in order], n_rows, (seed, attempt))
        if found is not None and len(np.unique(found, axis=0)) == n_rows:
            return found[:, np.argsort(order)]
    return None


def begin_with_base(array: Codes, row: int) -> Codes:
    """Rename levels so that a row is all base levels, and sort; the array stays orthogonal."""
    base = array[row]
    renamed = np.where(array == base, 0, np.where(array == 0, base, array))
    return renamed[np.lexsort(renamed.T[::-1])]


def _array(sizes: Sequence[int], n_rows: int, key: tuple[int, ...]) -> Codes | None:
    array = np.zeros((n_rows, 0), dtype=np.int64)
    alike = np.zeros((n_rows, n_rows))
    for place, size in enumerate(sizes):
        column = _column(array, sizes[:place], alike, size, (*key, place))
        if column is None:
            return None
        array = np.column_stack([array, column])
        alike += size * (column[:, None] == column[None, :])
        np.fill_diagonal(alike, 0)
    return array


def _column(
    array: Codes, sizes: Sequence[int], alike: Floats, size: int, key: tuple[int, ...]
) -> Codes | None:
    """A balanced column that is orthogonal to all before it."""
    n_rows = len(array)
    for attempt in range(COLUMNS):
        order = shuffled(range(n_rows), "array", *key, attempt, name=str)
        column = np.arange(n_rows)[list(order)] % size
        _swap(column, alike, size)
        meet = [
            np.bincount(old * size + column, minlength=of * size)
            for old, of in zip(array.T, sizes, strict=True)
        ]
        if all((counts == counts[0]).all() for counts in meet):
            return column
    return None


def _swap(column: Codes, alike: Floats, size: int) -> None:
    """Swap two entries at a time while rows that are alike become fewer."""
    while True:
        near = alike @ np.eye(size)[column]  # how much each row has in common with each level's
        gain = near[:, column] - near[np.arange(len(column)), column][:, None]
        gain = gain + gain.T - 2 * alike
        gain[column[:, None] == column[None, :]] = 0
        one, other = np.unravel_index(int(np.argmin(gain)), gain.shape)
        if gain[one, other] >= 0:
            return
        column[[one, other]] = column[[other, one]]
