"""Decisions -> residuals: what a level of a factor changes, level minus base, times 100."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import polars as pl

from flipmeter.measure.effects.baselines import (
    LevelComparison,
    comparisons,
    contrasts_shown,
    transfers,
)
from flipmeter.measure.effects.measured_items import (
    SCORES,
    MeasuredItems,
    Measurer,
    combined,
    in_common,
    merged,
    read_sides,
)
from flipmeter.measure.panel.checked import Floats
from flipmeter.measure.panel.frame import Decisions, any_decimal, any_nominal
from flipmeter.measure.panel.groups import joined
from flipmeter.measure.statistics.means import (
    Mean,
    MeanCell,
    by_seed,
    fewest,
    over_datasets,
    over_seeds,
    sd_of,
    spread_interval,
)
from flipmeter.registry import suggestion
from flipmeter.types import Contrast, Mode, Problem

SCHEMA = {
    "factor": pl.String,
    "level": pl.String,
    "rater": pl.String,
    "dataset": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "seed_sd": pl.Float64,
    "dataset_sd": pl.Float64,
    "spread_low": pl.Float64,
    "spread_high": pl.Float64,
    "n_datasets": pl.Int64,
    "n_seeds": pl.Int64,
    "n": pl.Int64,
    "failed": pl.Int64,
    "note": pl.String,
    "mode": pl.String,
    "against": pl.String,
}
MERGED = "by merging"
N = TypeVar("N", float, Floats)
Find = Callable[[Decisions, pl.DataFrame, Sequence[MeasuredItems]], list[LevelComparison]]


def residual(level: N, base: N) -> N:
    """Level minus base, times 100: points."""
    return 100 * (level - base)


def residuals(
    decisions: Decisions, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Subtract the base from every level, and the first rater from every other, by metric.

    A row is about one dataset, or about their mean where `dataset` is empty. `paper`: seeds are
    averaged within a dataset, then mean and population SD are taken over datasets, each side on
    its own items. `recommended`: both sides on the items they share, with an interval
    over clusters of items that holds datasets and seeds fixed, and sample SDs; `spread_low` and
    `spread_high` are the t interval over three datasets or more. What is undefined is null, and
    its note says why. `against` is the rater whose numbers are subtracted.
    """
    return _subtracted(decisions, contrasts, mode, comparisons)


def transfer(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    reference: str,
    *,
    mode: Mode = "recommended",
) -> pl.DataFrame:
    """Subtract the reference from every other rater under the same config, as `residuals` does.

    The factor of all rows is `transfer`, the level is the config, and `baseline` the base itself.
    """
    return _subtracted(decisions, contrasts, mode, partial(transfers, reference=reference))


def _subtracted(
    decisions: Decisions, contrasts: Sequence[Contrast], mode: Mode, find: Find
) -> pl.DataFrame:
    keys, sides, measurer = prepared(decisions, contrasts, mode)
    return subtract(sides, measurer, find(decisions, keys, sides))


def subtract(
    sides: Sequence[MeasuredItems], measurer: Measurer, found: Sequence[LevelComparison]
) -> pl.DataFrame:
    """Make the rows of every comparison."""
    maker = ResidualRows(sides, measurer)
    rows = [row for one in found for row in maker.rows(one)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


def prepared(
    decisions: Decisions, contrasts: Sequence[Contrast], mode: Mode
) -> tuple[pl.DataFrame, list[MeasuredItems], Measurer]:
    """The keys of all groups, the groups, and the function that measures them in a mode."""
    if mode not in SCORES:
        raise Problem(f"no mode named '{mode}'{suggestion(mode, list(SCORES))}")
    chosen = contrasts_shown(contrasts, mode)
    keys, sides = read_sides(decisions, chosen, mode)
    names = [contrast.name for contrast in chosen]
    return keys, sides, Measurer(mode, names, any_nominal(decisions), any_decimal(decisions))


@dataclass(frozen=True)
class ResidualRows:
    """Makes the rows of a comparison; the bases of many comparisons are measured once."""

    sides: Sequence[MeasuredItems]
    measurer: Measurer

    @property
    def mode(self) -> Mode:
        return self.measurer.mode

    @property
    def names(self) -> list[str]:
        return self.measurer.names

    def rows(self, one: LevelComparison) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a level; behind those of a cardinality, its coarsening control."""
        note = f"left out, already at this level: {', '.join(one.left_out)}" if one.left_out else ""
        yield from self.table(one, one.level, self.cells(one, self._cell), note)
        if one.factor == "cardinality":
            about = "control: the base's own answers, merged; no call is made"
            control, first = self.cells(one, self._control), len(self.measurer.scores)
            yield from self.table(one, f"{one.level} {MERGED}", control, about, first=first)

    def cells(
        self, one: LevelComparison, make: Callable[[LevelComparison, str, int, int], MeanCell]
    ) -> dict[str, dict[str, MeanCell]]:
        """The cell of every dataset and seed."""
        return {
            dataset: {f"seed {s}": make(one, dataset, level, base) for s, level, base in pairs}
            for dataset, pairs in one.pairs.items()
        }

    # --- one dataset and seed -----------------------------------------------------------------

    def _cell(self, one: LevelComparison, dataset: str, level: int, base: int) -> MeanCell:
        return self._subtract(one, dataset, self.sides[level], self.sides[base], base)

    def _control(self, one: LevelComparison, dataset: str, level: int, base: int) -> MeanCell:
        full, there = self.sides[level], self.sides[base]
        coarse = merged(there, full)
        if coarse is None:
            return self._empty("merging the base's classes does not give the level's")
        if self.mode == "recommended":
            coarse, there = (side.only(full.items) for side in (coarse, there))
        return self._subtract(one, dataset, coarse, there, base)

    def _subtract(
        self,
        one: LevelComparison,
        dataset: str,
        level: MeasuredItems,
        base: MeasuredItems,
        key: int,
    ) -> MeanCell:
        here, there = in_common(level, base)
        has_common = self.mode == "recommended" and len(here.items) > 0
        note = ""
        if has_common:
            full = max(len(level.items), len(base.items))
            note = f"on the {len(here.items)} items in common" if len(here.items) < full else ""
            level, base = here, there
        elif self.mode == "recommended":
            note = f"no interval: no item in common with {one.other}"
        at_level, at_base = self.measurer.measure(level), self.measurer.remember(base, key)
        value, influences = residual(at_level.value, at_base.value), None
        if has_common:
            value, influences = combined([at_level, at_base], [100.0, -100.0])
        is_short = ~(level.read & (base.read if has_common else True))
        n, failed = level.usable.sum(axis=1), (level.usable & is_short).sum(axis=1)
        sides = {"": (level, at_level.value), f"{one.other}: ": (base, at_base.value)}
        notes, by_metric = self.measurer.notes(sides, note), self.measurer.by_metric
        return MeanCell(value, by_metric(n), by_metric(failed), notes, influences)

    def _empty(self, note: str) -> MeanCell:
        size = len(self.names)
        nothing, none = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
        return MeanCell(nothing, none, none, [note] * size)

    # --- all of them --------------------------------------------------------------------------

    def table(
        self,
        one: LevelComparison,
        level: str,
        cells: Mapping[str, Mapping[str, MeanCell]],
        note: str,
        first: int = 0,
    ) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the mean over datasets, then those of each dataset."""
        if not cells:
            told = note or f"no dataset and seed in common with {one.other}"
            cells, note = {"": {"": self._empty(told)}}, ""
        means = {dataset: over_seeds(of) for dataset, of in cells.items()}
        over_all = over_datasets({dataset: mean.cell for dataset, mean in means.items()})
        ddof = 0 if self.mode == "paper" else 1
        seed_sd, dataset_sd = sd_of(by_seed(cells), ddof), over_all.sd(ddof)
        n_seeds = fewest([mean.count for mean in means.values()])
        names = (one.factor, level, one.rater)
        for metric in range(first, len(self.names)):
            sds, n = (seed_sd[metric], dataset_sd[metric]), int(n_seeds[metric])
            yield (*self._row((*names, ""), metric, over_all, sds, n, note), one.against)
        for dataset, mean in means.items() if "" not in means else ():
            own = mean.sd(ddof)
            for metric in range(first, len(self.names)):
                sds, n = (own[metric], np.nan), int(mean.count[metric])
                yield (*self._row((*names, dataset), metric, mean, sds, n, note), one.against)

    def _row(
        self,
        names: tuple[str, str, str, str],
        metric: int,
        mean: Mean,
        sds: tuple[float, float],
        n_seeds: int,
        note: str,
    ) -> tuple[object, ...]:
        cell, value = mean.cell, float(mean.cell.value[metric])
        ends = float(cell.low[metric]), float(cell.high[metric])
        count = int(mean.count[metric])
        n_datasets = count if names[-1] == "" else min(count, 1)
        spread = spread_interval(value, sds[1], n_datasets if self.mode == "recommended" else 0)
        return (
            *(*names, self.names[metric], value, *ends, *sds, *spread),
            *(n_datasets, n_seeds, int(cell.n[metric]), int(cell.failed[metric])),
            *(joined(note, cell.notes[metric]), self.mode),
        )
