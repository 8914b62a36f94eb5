"""Candidate cells -> a design: swap cells while the information grows (Fedorov's exchange).

Main effects are to be known as well as can be, interactions are worth knowing: the criterion joins
the D-criterion of the main effects to the Bayesian one of both (DuMouchel and Jones 1994), and to
the balance of the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flipmeter.base.chance import shuffled
from flipmeter.design.coding import Codes, Floats, columns, main_terms, model_matrix, pair_terms

PASSES = 50
WORK = 1_000
"""Rows of a design over all starts: many starts for a small design, few for a large one."""
STARTS = (3, 30)
GAIN = 1e-7
RIDGE = 1e-4
"""Prior precision of what is to be known, per run: lets a design begin that knows too little."""
PRIOR = 10.0
"""Prior precision of interactions, per run, where there are too few runs to know them all."""
MAINS = 30.0
"""Weight of the main effects relative to the criterion of all terms."""
BALANCE = 3.0
"""Weight, per run, of balanced levels."""
MISSING = 1e6
DECIMALS = 9
"""Gains are compared to so many decimals, so that the last bit of a machine decides nothing."""


@dataclass
class _Information:
    """The inverse information of some columns, and the variance of every candidate under it."""

    x: Floats
    prior: Floats
    inverse: Floats
    variance: Floats

    @classmethod
    def of(cls, x: Floats, prior: Floats, rows: Sequence[int]) -> _Information:
        chosen = x[list(rows)]
        inverse = np.asarray(np.linalg.inv(chosen.T @ chosen + np.diag(prior)), dtype=np.float64)
        return cls(x, prior, inverse, ((x @ inverse) * x).sum(axis=1))

    def gain(self, old: int) -> Floats:
        """The gain in log determinant from putting each candidate in the place of a row."""
        across = self.x @ (self.inverse @ self.x[old])
        raised = (1 + self.variance) * (1 - self.variance[old]) + across**2
        added: Floats = np.log(np.maximum(raised, np.finfo(float).tiny))
        return added

    def update(self, row: int, sign: float) -> None:
        """Add a row to the information (+1), or take it away (-1)."""
        half = self.inverse @ self.x[row]
        scale = sign / (1 + sign * self.variance[row])
        self.inverse -= scale * np.outer(half, half)
        self.variance -= scale * (self.x @ half) ** 2

    def merit(self, rows: Sequence[int]) -> float:
        chosen = self.x[list(rows)]
        return float(np.linalg.slogdet(chosen.T @ chosen + np.diag(self.prior))[1])


@dataclass
class _Search:
    """A design while it changes: its rows, what they tell of main effects, and of all terms."""

    codes: Codes
    rows: list[int]
    mains: _Information
    all: _Information

    def improve(self, place: int) -> bool:
        """Swap one row for the candidate that adds most, if any adds anything."""
        old = self.rows[place]
        gain = self.all.gain(old) + MAINS * self.mains.gain(old)
        gain -= BALANCE / len(self.rows) * self._imbalance(old)
        gain[self.rows] = -np.inf  # no cell twice
        new = int(np.argmax(np.round(gain, DECIMALS)))
        if gain[new] <= GAIN:
            return False
        for part in (self.mains, self.all):
            part.update(old, -1.0)
            part.update(new, +1.0)
        self.rows[place] = new
        return True

    def _imbalance(self, old: int) -> Floats:
        """The increase in the sum of squared level counts from each candidate.

        A level that is not shown at all counts as very many.
        """
        added = np.zeros(len(self.codes))
        for column in self.codes.T:
            shown = self._shown(column)
            change = 2.0 * (shown[column] - shown[column[old]] + 1)
            change += MISSING * ((shown[column[old]] == 1) - 1.0 * (shown[column] == 0))
            added += np.where(column == column[old], 0, change)
        return added

    def merit(self) -> float:
        shown = [self._shown(column) for column in self.codes.T]
        uneven = sum(float((counts**2 + MISSING * (counts == 0)).sum()) for counts in shown)
        known = self.all.merit(self.rows) + MAINS * self.mains.merit(self.rows)
        return round(known - BALANCE * uneven / len(self.rows), DECIMALS)

    def _shown(self, column: Codes) -> Codes:
        """The number of cells at each level of a factor."""
        return np.bincount(column[self.rows], minlength=int(column.max()) + 1)


def choose(codes: Codes, sizes: Sequence[int], n_runs: int, seed: int) -> list[int]:
    """The indices of the chosen cells; the first candidate is always one of them."""
    mains = model_matrix(codes, sizes, main_terms(sizes))
    pairs = [columns(codes, sizes, term) for term in pair_terms(sizes)]
    x = np.hstack([mains, *pairs])
    is_pair = np.arange(x.shape[1]) >= mains.shape[1]
    worth = RIDGE if n_runs >= x.shape[1] else PRIOR
    prior = n_runs * np.where(is_pair, worth, RIDGE)
    n_starts = int(np.clip(WORK // n_runs, *STARTS))
    starts = [_beginning(len(x), n_runs, seed, start) for start in range(n_starts)]
    found = [_climb(codes, mains, x, prior, rows) for rows in starts]
    return sorted(max(found, key=_Search.merit).rows)


def _beginning(n: int, n_runs: int, seed: int, start: int) -> list[int]:
    others = shuffled(range(1, n), "design", seed, start, name=str)
    return [0, *others[: n_runs - 1]]


def _climb(codes: Codes, mains: Floats, x: Floats, prior: Floats, rows: list[int]) -> _Search:
    def begin(rows: list[int]) -> _Search:
        own = _Information.of(mains, prior[: mains.shape[1]], rows)
        return _Search(codes, rows, own, _Information.of(x, prior, rows))

    search = begin(rows)
    for _ in range(PASSES):
        moved = [search.improve(place) for place in range(1, len(rows))]
        if not any(moved):
            break
        search = begin(search.rows)  # rounding errors of a pass end here
    return search
