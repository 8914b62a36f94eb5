"""A case whose truth is known, studied many times -> rates with their Monte Carlo error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

Outcomes = Mapping[str, float]
"""Outcome of a study: 1 for yes and 0 for no, or a number whose mean is of interest."""

Study = Callable[[np.random.Generator], Outcomes]
Studies = Callable[[np.random.Generator, int], Mapping[str, list[float]]]
SEED = 20261117


@dataclass(frozen=True)
class Limit:
    """A rate that must hold: at most, or at least, up to Monte Carlo error."""

    most: float | None = None
    least: float | None = None

    def holds(self, rate: float, error: float) -> bool:
        above = self.most is not None and rate > self.most + 2 * error
        below = self.least is not None and rate < self.least - 2 * error
        return not above and not below

    def __str__(self) -> str:
        if self.most is not None:
            return f"at most {self.most:g}"
        return "" if self.least is None else f"at least {self.least:g}"


@dataclass(frozen=True)
class Cell:
    """One hard case: a study that plants, concludes and says what came out."""

    name: str
    study: Study
    limits: Mapping[str, Limit] = field(default_factory=dict)

    def studies(self, rng: np.random.Generator, n: int) -> Mapping[str, list[float]]:
        seen: dict[str, list[float]] = {}
        for _ in range(n):
            for name, value in self.study(rng).items():
                seen.setdefault(name, []).append(value)
        return seen


@dataclass(frozen=True)
class ManyCell:
    """A hard case whose studies are made all at once."""

    name: str
    studies: Studies
    limits: Mapping[str, Limit] = field(default_factory=dict)


@dataclass(frozen=True)
class Rate:
    """Share of studies with an outcome, and the limit of that share."""

    cell: str
    outcome: str
    rate: float
    error: float
    n: int
    limit: Limit

    @property
    def holds(self) -> bool:
        return self.limit.holds(self.rate, self.error)


RARE, COVERS, COVERS_SMALL = Limit(most=0.05), Limit(least=0.95), Limit(least=0.93)


def rates(cell: Cell | ManyCell, n: int) -> Iterator[Rate]:
    """Study a cell so many times; what never happens and has no limit is left out."""
    seen = cell.studies(np.random.default_rng([SEED, *cell.name.encode()]), n)
    for name, values in seen.items():
        limit = cell.limits.get(name, Limit())
        rate = float(np.mean(values))
        error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
        if rate or name in cell.limits:
            yield Rate(cell.name, name, rate, error, len(values), limit)
