"""Cells that were asked -> cells to ask next, by a model in which factors add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flipmeter.design import Allowed, Cell, Levels, factorial
from flipmeter.design.coding import main_terms, model_matrix
from flipmeter.design.quality import encode
from flipmeter.measure.inference.significance import expected_within
from flipmeter.measure.panel.checked import Floats
from flipmeter.measure.statistics.means import SAME

MOST = 3
ADDS_UP = "effects are assumed to add up, without interactions; run the cell before you rely on it"


@dataclass(frozen=True)
class Proposal:
    """A cell not asked yet, with its expected score and flip rates."""

    cell: Mapping[str, Any] = field(hash=False)
    score: float
    flips: Mapping[str, float] = field(hash=False)
    note: str = ADDS_UP


def propose(
    levels: Levels,
    cells: Sequence[Cell],
    scores: Floats,
    flips: Mapping[str, Floats],
    *,
    limits: Mapping[str, float] | None = None,
    allowed: Allowed | None = None,
    most: int = MOST,
) -> list[Proposal]:
    """The cells expected to beat every measured one, the best first, flips below the limits.

    Every factor's levels add to the mean what they did in the cells that were asked (least squares
    on main effects). Where a factor cannot be told from others there is no proposal.
    """
    if not levels or not len(cells):
        return []
    whole = factorial(levels, allowed=allowed)
    sizes = [len(values) for values in levels.values()]
    terms = main_terms(sizes)
    asked, every = (model_matrix(encode(levels, some), sizes, terms) for some in (cells, whole))
    if np.linalg.matrix_rank(asked) < asked.shape[1]:
        return []
    expected = _expected(asked, every, scores)
    risks = {name: np.clip(_expected(asked, every, of), 0, 1) for name, of in flips.items()}
    within = [expected_within(risks[name], limit) for name, limit in (limits or {}).items()]
    known = {tuple(cell[name] for name in levels) for cell in cells}
    found = [
        Proposal(cell, float(expected[place]), {n: float(r[place]) for n, r in risks.items()})
        for place, cell in enumerate(whole)
        if tuple(cell[name] for name in levels) not in known
        and expected[place] > scores.max() + SAME
        and all(kept[place] for kept in within)
    ]
    return sorted(found, key=lambda one: -one.score)[:most]


def _expected(asked: Floats, every: Floats, values: Floats) -> Floats:
    known = ~np.isnan(values)
    if np.linalg.matrix_rank(asked[known]) < asked.shape[1]:
        return np.full(len(every), np.nan)
    return np.asarray(every @ np.linalg.lstsq(asked[known], values[known], rcond=None)[0])
