"""A design -> what it can tell: efficiency, balance, and which terms stand in for which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flipmeter.design.cells import Cell, Levels
from flipmeter.design.coding import (
    Codes,
    Floats,
    Term,
    main_terms,
    model_matrix,
    n_columns,
    pair_terms,
    rank,
)
from flipmeter.types import Problem

Standing = Literal["clear", "shared", "aliased"]
"""The status of a term in a design.

`clear`: with all main effects and two-way interactions in one model. `shared`: with all main
effects and no other interaction, so that it may stand in for one. `aliased`: not even so.
"""


@dataclass(frozen=True)
class Quality:
    """The quality of a design. Terms are "label_format" and "label_format:shots".

    `efficiency` is the D-efficiency of the main effects relative to an orthogonal design of the
    same size: 1 if there is one and this is it, 0 if some main effect cannot be estimated.
    """

    n_runs: int
    n_cells: int
    efficiency: float
    balance: Mapping[str, tuple[int, ...]]
    standing: Mapping[str, Standing]

    def terms(self, standing: Standing) -> list[str]:
        """The terms with this status."""
        return [term for term, stands in self.standing.items() if stands == standing]

    def __str__(self) -> str:
        pairs = [stands for term, stands in self.standing.items() if ":" in term]
        known = Counter(pairs)
        told = ", ".join(f"{known[name]} {name}" for name in ("clear", "shared", "aliased"))
        return (
            f"{self.n_runs} of {self.n_cells} cells; D-efficiency {self.efficiency:.3f}; "
            f"{len(pairs)} two-way interactions: {told}"
        )


def assess(levels: Levels, cells: Sequence[Cell]) -> Quality:
    """Judge a set of cells by what the main effects and two-way interactions can be told from."""
    names, sizes = list(levels), [len(values) for values in levels.values()]
    codes = encode(levels, cells)
    balance = {
        name: tuple(np.bincount(codes[:, place], minlength=sizes[place]).tolist())
        for place, name in enumerate(names)
    }
    found = standings(codes, sizes)
    return Quality(
        n_runs=len(cells),
        n_cells=int(np.prod(sizes)),
        efficiency=efficiency(model_matrix(codes, sizes, main_terms(sizes))),
        balance=balance,
        standing={term_name(names, term): stands for term, stands in found.items()},
    )


def encode(levels: Levels, cells: Sequence[Cell]) -> Codes:
    """The index of every level of every cell."""
    codes = np.zeros((len(cells), len(levels)), dtype=np.int64)
    for place, (factor, values) in enumerate(levels.items()):
        known = list(values)
        for row, cell in enumerate(cells):
            if cell[factor] not in known:
                raise Problem(f"cell {dict(cell)} has {factor}={cell[factor]!r}, not among {known}")
            codes[row, place] = known.index(cell[factor])
    return codes


def efficiency(matrix: Floats) -> float:
    """The D-efficiency: 1 for orthogonal columns of variance 1, 0 for dependent ones."""
    n, p = matrix.shape
    if rank(matrix) < p:
        return 0.0
    _, log_det = np.linalg.slogdet(matrix.T @ matrix / n)
    return float(np.exp(log_det / p))


def standings(codes: Codes, sizes: Sequence[int]) -> dict[Term, Standing]:
    """Say of every main effect and two-way interaction how well the cells know it."""
    mains, pairs = main_terms(sizes), pair_terms(sizes)
    return {term: _standing(codes, sizes, term, mains, pairs) for term in (*mains, *pairs)}


def _standing(
    codes: Codes, sizes: Sequence[int], term: Term, mains: Sequence[Term], pairs: Sequence[Term]
) -> Standing:
    wanted = n_columns(sizes, term)
    if _gain(codes, sizes, term, mains) < wanted:
        return "aliased"
    return "clear" if _gain(codes, sizes, term, (*mains, *pairs)) == wanted else "shared"


def _gain(codes: Codes, sizes: Sequence[int], term: Term, beside: Sequence[Term]) -> int:
    """The number of a term's columns that the other terms do not explain."""
    others = [other for other in beside if other != term]
    without = rank(model_matrix(codes, sizes, others))
    return rank(model_matrix(codes, sizes, [*others, term])) - without


def term_name(names: Sequence[str], term: Term) -> str:
    """Write a term: "label_format", or "label_format:shots" for an interaction."""
    return ":".join(names[factor] for factor in term)
