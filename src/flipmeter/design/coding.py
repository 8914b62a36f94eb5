"""Cells as numbers: orthonormal contrasts of factors and of their interactions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
"""Cells x factors: the place of each cell's level among the levels of the factor."""
Term = tuple[int, ...]
"""The places of one factor (a main effect) or of two (their interaction)."""

SMALL = 1e-8
"""Largest relative residual of a column that others explain."""


@lru_cache(maxsize=64)
def contrasts(n_levels: int) -> Floats:
    """Helmert contrasts (levels x levels - 1) that have variance 1 in balanced data."""
    steps = np.arange(1, n_levels)
    table = np.triu(np.ones((n_levels, n_levels - 1)))
    table[steps, steps - 1] = -steps
    scaled: Floats = table * np.sqrt(n_levels / (steps * (steps + 1)))
    scaled.flags.writeable = False
    return scaled


def columns(codes: Codes, sizes: Sequence[int], term: Term) -> Floats:
    """The columns of a term: the products of its factors' contrasts."""
    found = np.ones((len(codes), 1))
    for factor in term:
        own = contrasts(sizes[factor])[codes[:, factor]]
        found = (found[:, :, None] * own[:, None, :]).reshape(len(codes), -1)
    return found


def model_matrix(codes: Codes, sizes: Sequence[int], terms: Sequence[Term]) -> Floats:
    """A column of ones and the columns of all terms."""
    return np.hstack([np.ones((len(codes), 1)), *(columns(codes, sizes, term) for term in terms)])


def main_terms(sizes: Sequence[int]) -> list[Term]:
    """A term for every factor that varies."""
    return [(factor,) for factor, size in enumerate(sizes) if size > 1]


def pair_terms(sizes: Sequence[int]) -> list[Term]:
    """A term for every two factors that vary."""
    varied = [factor for (factor,) in main_terms(sizes)]
    return list(combinations(varied, 2))


def n_columns(sizes: Sequence[int], term: Term) -> int:
    """The degrees of freedom that a term has if all of it can be estimated."""
    return int(np.prod([sizes[factor] - 1 for factor in term]))


def rank(matrix: Floats) -> int:
    """The number of independent columns."""
    return int(np.linalg.matrix_rank(matrix)) if matrix.size else 0


def beyond(known: Floats, added: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The part of added columns that known ones do not span: a basis, and the columns kept.

    `known` must have orthonormal columns. A column is kept if neither they nor the columns kept
    before explain it; for each there is one column of the basis.
    """
    basis, kept = known, np.zeros(added.shape[1], dtype=np.bool_)
    for place, column in enumerate(added.T):
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # once more: the first pass leaves rounding behind
        length = float(np.linalg.norm(rest))
        if length > SMALL * max(float(np.linalg.norm(column)), SMALL):
            basis = np.column_stack([basis, rest / length])
            kept[place] = True
    return basis[:, known.shape[1] :], kept
