"""Columns of items -> kinds: items that are equal in every column, found without a copy of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flipmeter.measure.panel.checked import Ints

Column = npt.NDArray[Any]

MANY = 1000
"""Number of items to look at together from which on it is worth while to look for equal ones."""


@dataclass(frozen=True)
class Kinds:
    """The first item of every kind, and the kind of every item."""

    first: Ints
    of: Ints

    def __len__(self) -> int:
        return len(self.first)


def find_kinds(columns: Sequence[Column], n_together: int) -> Kinds | None:
    """The kinds of items that are looked at so many together.

    None if that are few, or there are not half as few kinds: looking at each item costs no more.
    """
    if n_together < MANY:
        return None
    weights = np.random.default_rng(0).integers(1 << 63, size=len(columns), dtype=np.uint64)
    codes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, weight in zip(columns, 2 * weights + 1, strict=True):
        # Numbers that are equal where those of the column are.
        bits = column.view(np.uint64) if column.itemsize == 8 else column.astype(np.uint64)
        codes += bits * weight
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    if 2 * len(first) > n_together:
        return None
    # Two kinds may have one code, although hardly ever.
    is_same = all((column[first][of] == column).all() for column in columns)
    return Kinds(first, of) if is_same else None
