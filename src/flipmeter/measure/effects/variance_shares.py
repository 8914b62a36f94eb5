"""Outcomes in cells -> the share of their variance that each term explains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flipmeter.design.coding import beyond
from flipmeter.measure.effects.gee import Outcomes
from flipmeter.measure.panel.checked import Floats

ROUNDING = 1e-12


@dataclass(frozen=True)
class Share:
    """A part of the variance between cells, and the part that chance alone would make so large."""

    value: float
    by_chance: float


@dataclass(frozen=True)
class Variance:
    """The weighted sum of squares between cells, datasets apart, and its parts.

    Columns are those of the cells. What differs between datasets beyond their means is a part of
    its own: a cell that helps on one and harms on another.
    """

    outcomes: Outcomes

    @cached_property
    def _root(self) -> Floats:
        return np.sqrt(self.outcomes.totals[1])

    def basis(self, known: Floats, added: Floats) -> Floats:
        """The part of added columns beyond datasets and known columns, orthonormal."""
        n_datasets = self.outcomes.n_strata
        rows = self._root[:, None] * self.outcomes.rows(np.hstack([known, added]))
        size = n_datasets + known.shape[1]
        before, _ = beyond(np.zeros((len(rows), 0)), rows[:, :size])
        return beyond(before, rows[:, size:])[0]

    def share(self, known: Floats, added: Floats) -> Share:
        """The share explained by added columns beyond known ones: type II for a term."""
        return self._part(self.basis(known, added))

    def rest(self, known: Floats) -> Share:
        """The share between cells left unexplained by known columns."""
        return self.share(known, np.eye(self.outcomes.hits.shape[1]))

    @cached_property
    def between_datasets(self) -> Share:
        """The share due to cells differing from one dataset to another."""
        cells = self._part(self.basis(self._nothing, np.eye(self.outcomes.hits.shape[1])))
        whole = self._noise_of_all / self.total if self.total else np.nan
        return Share(1 - cells.value, whole - cells.by_chance)

    @property
    def _nothing(self) -> Floats:
        return np.zeros((self.outcomes.hits.shape[1], 0))

    @cached_property
    def total(self) -> float:
        """The sum of squares between cells within datasets; 0 where all cells are alike."""
        apart = float(((self._weighted - self._project(self._weighted)) ** 2).sum())
        return apart if apart > ROUNDING * float((self._weighted**2).sum()) else 0.0

    @cached_property
    def _weighted(self) -> Floats:
        return self._root * self.outcomes.means

    @cached_property
    def _datasets(self) -> Floats:
        return beyond(np.zeros((len(self._root), 0)), self._root[:, None] * self._dummies)[0]

    @property
    def _dummies(self) -> Floats:
        return self.outcomes.rows(self._nothing)

    def _project(self, values: Floats) -> Floats:
        projected: Floats = self._datasets @ (self._datasets.T @ values)
        return projected

    def _part(self, basis: Floats) -> Share:
        explained = float(((basis.T @ self._weighted) ** 2).sum())
        if not self.total:
            return Share(np.nan, np.nan)
        return Share(explained / self.total, self._noise(basis) / self.total)

    @cached_property
    def _deviations(self) -> Floats:
        """The influence of each item on the mean of its dataset in each cell, with these weights.

        Items x cells; an item moves no other dataset.
        """
        outcomes, shape = self.outcomes, (self.outcomes.n_strata, -1)
        expected = outcomes.means.reshape(shape)[outcomes.stratum]
        root = np.where(self._root > 0, self._root, 1).reshape(shape)[outcomes.stratum]
        return outcomes.within((outcomes.hits - outcomes.trials * expected) / root)

    def _noise(self, basis: Floats) -> float:
        """The expected sum of squares along a basis from the sampling of items."""
        by_dataset = basis.reshape(self.outcomes.n_strata, self.outcomes.hits.shape[1], -1)
        return sum(
            float(((self._deviations[self.outcomes.stratum == place] @ own) ** 2).sum())
            for place, own in enumerate(by_dataset)
        )

    @cached_property
    def _noise_of_all(self) -> float:
        whole = float((self._deviations**2).sum())
        return whole - self._noise(self._datasets)
