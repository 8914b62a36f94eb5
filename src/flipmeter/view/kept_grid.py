"""ItemGrid -> KeptGrid: what pages ask for again and again is counted once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from flipmeter.run.results.item_columns import ItemColumns
from flipmeter.run.results.item_grid import ItemGrid, Sought
from flipmeter.view.folders import ChosenRuns, Stamp

Filters = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class KeptGrid(ItemGrid):
    """The items of a run as long as its files stay as they are, which `stamp` tells.

    It is kept for long: the tables of its `run` should not be read whole.
    """

    stamp: Stamp = ()

    @classmethod
    def of(cls, chosen: ChosenRuns) -> KeptGrid:
        return cls(chosen.run, chosen.stamp)

    @property
    def columns(self) -> ItemColumns:
        return _columns(self)

    @property
    def conditions(self) -> pl.DataFrame:
        return _conditions(self)

    def found(self, sought: Sought) -> pl.DataFrame:
        return _found(self, tuple(sorted(sought.filters.items())), sought.order)

    def tally(self, whose: Mapping[str, str]) -> pl.DataFrame:
        return _tally(self, tuple(whose.items()))


@lru_cache(maxsize=16)
def _columns(grid: KeptGrid) -> ItemColumns:
    return ItemGrid(grid.run).columns


@lru_cache(maxsize=64)
def _conditions(grid: KeptGrid) -> pl.DataFrame:
    return ItemGrid(grid.run).conditions


@lru_cache(maxsize=8)
def _found(grid: KeptGrid, filters: Filters, order: str) -> pl.DataFrame:
    return ItemGrid.found(grid, Sought(dict(filters), order))


@lru_cache(maxsize=16)
def _tally(grid: KeptGrid, whose: Filters) -> pl.DataFrame:
    return ItemGrid.tally(grid, dict(whose))
