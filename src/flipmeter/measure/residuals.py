"""Decisions -> residuals: what a level of a factor changes, level minus base, times 100."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import polars as pl

from flipmeter.measure.arrays import Floats, Ints
from flipmeter.measure.averages import (
    Cell,
    Mean,
    by_seed,
    fewest,
    interval,
    mean_cell,
    sd_of,
    spread_interval,
)
from flipmeter.measure.groups import joined
from flipmeter.measure.levels import Comparison, comparisons, paper_contrasts
from flipmeter.measure.resample import (
    RESAMPLES,
    SCORES,
    Side,
    Weights,
    as_is,
    merged,
    metrics,
    paired,
    read_sides,
    weights,
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
}
MERGED = "by merging"
N = TypeVar("N", float, Floats)


def residual(level: N, base: N) -> N:
    """Return level minus base, times 100: points."""
    return 100 * (level - base)


def residuals(
    decisions: pl.DataFrame, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Subtract the base from every level, and the first rater from every other, by metric.

    A row is about one dataset, or about their mean where `dataset` is empty. `paper`: seeds are
    averaged within a dataset, then mean and population SD are taken over datasets, each side on
    its own items. `recommended`: both sides on the items they share, with a bootstrap interval
    over items that holds datasets and seeds fixed, and sample SDs; `spread_low` and `spread_high`
    are the t interval over three datasets or more. What is undefined is null, and its note says
    why.
    """
    if mode not in SCORES:
        raise Problem(f"no mode named '{mode}'{suggestion(mode, list(SCORES))}")
    chosen = paper_contrasts(contrasts)
    keys, sides = read_sides(decisions, chosen, mode)
    found = comparisons(decisions, keys, sides)
    if not found:
        raise Problem(
            "there is one model at one level: nothing to subtract; add `vary:` or a model"
        )
    names = [*SCORES[mode], *(contrast.name for contrast in chosen)]
    return subtract(sides, names, found, mode)


def subtract(
    sides: Sequence[Side],
    names: Sequence[str],
    found: Sequence[Comparison],
    mode: Mode = "recommended",
) -> pl.DataFrame:
    """Make the rows of every comparison; `names` are the scores of the mode, then the contrasts."""
    maker = _Maker(sides, mode, names)
    rows = [row for one in found for row in maker.rows(one)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


@dataclass(frozen=True)
class _Maker:
    """Makes the rows of a comparison; the bases of many comparisons are computed once."""

    sides: Sequence[Side]
    mode: Mode
    names: Sequence[str]
    known: dict[tuple[object, ...], Floats] = field(default_factory=dict)
    drawn: dict[tuple[str, int], Weights] = field(default_factory=dict)

    @property
    def scores(self) -> tuple[str, ...]:
        return SCORES[self.mode]

    def rows(self, one: Comparison) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a level; behind those of a cardinality, its coarsening control."""
        note = f"left out, already so: {', '.join(one.left_out)}" if one.left_out else ""
        plain = {
            dataset: {f"seed {s}": self._cell(dataset, level, base) for s, level, base in pairs}
            for dataset, pairs in one.pairs.items()
        }
        yield from self._table((one.factor, one.level, one.rater), plain, note)
        if one.factor == "cardinality":
            control = {
                dataset: {f"seed {s}": self._control(dataset, level, base) for s, level, base in of}
                for dataset, of in one.pairs.items()
            }
            names = (one.factor, f"{one.level} {MERGED}", one.rater)
            about = "control: the base's own answers, merged; no call is made"
            yield from self._table(names, control, about, first=len(self.scores))

    # --- one dataset and seed -----------------------------------------------------------------

    def _cell(self, dataset: str, level: int, base: int) -> Cell:
        return self._subtract(dataset, self.sides[level], self.sides[base], base)

    def _control(self, dataset: str, level: int, base: int) -> Cell:
        full, there = self.sides[level], self.sides[base]
        coarse = merged(there, full)
        if coarse is None:
            return self._empty("the level's classes cannot be had by merging the base's")
        if self.mode == "recommended":
            coarse, there = (side.only(full.items) for side in (coarse, there))
        return self._subtract(dataset, coarse, there, base)

    def _subtract(self, dataset: str, level: Side, base: Side, key: int) -> Cell:
        here, there = paired(level, base)
        has_common = self.mode == "recommended" and len(here.items) > 0
        note = ""
        if has_common:
            full = max(len(level.items), len(base.items))
            note = f"on the {len(here.items)} items in common" if len(here.items) < full else ""
            level, base = here, there
        elif self.mode == "recommended":
            note = "no interval: level and base have no item in common"
        at_level = metrics(level, self._weights(dataset, len(level.items), has_common), self.scores)
        at_base = self._at_base(dataset, base, key, has_common)
        points = residual(at_level, at_base)
        drawn = points[:, 1:] if has_common else np.full((len(points), self._n_drawn), np.nan)
        is_short = ~(level.read & (base.read if has_common else True))
        n, failed = level.usable.sum(axis=1), (level.usable & is_short).sum(axis=1)
        notes = self._notes(level, base, at_level[:, 0], at_base[:, 0], note)
        return Cell(points[:, 0], drawn, self._by_metric(n), self._by_metric(failed), notes)

    @property
    def _n_drawn(self) -> int:
        return RESAMPLES if self.mode == "recommended" else 0

    def _weights(self, dataset: str, n_items: int, is_drawn: bool) -> Weights:
        if not is_drawn:
            return as_is(n_items)
        if (dataset, n_items) not in self.drawn:
            self.drawn[dataset, n_items] = weights(n_items, dataset)
        return self.drawn[dataset, n_items]

    def _at_base(self, dataset: str, base: Side, key: int, is_drawn: bool) -> Floats:
        which = (key, is_drawn, base.items.tobytes(), base.usable.tobytes())
        if which not in self.known:
            weighted = self._weights(dataset, len(base.items), is_drawn)
            self.known[which] = metrics(base, weighted, self.scores)
        return self.known[which]

    def _by_metric(self, rows: Ints) -> Ints:
        """Repeat the row of the scores for each score."""
        return np.concatenate([np.repeat(rows[:1], len(self.scores)), rows[1:]])

    def _notes(
        self, level: Side, base: Side, at_level: Floats, at_base: Floats, note: str
    ) -> list[str]:
        rows = self._by_metric(np.arange(len(level.notes))).tolist()
        told = []
        for metric, row in enumerate(rows):
            sides = {"": (level, at_level[metric]), "base: ": (base, at_base[metric])}
            own = [(name, _why(side, row, value)) for name, (side, value) in sides.items()]
            whys = [name + why for name, why in own if why]
            if not whys and not level.usable[row].any():
                whys = ["not applicable: level and base share no item"]
            told.append(joined(*whys, note))
        return told

    def _empty(self, note: str) -> Cell:
        size = len(self.names)
        nothing, none = np.full(size, np.nan), np.zeros(size, dtype=np.int64)
        drawn = np.full((size, self._n_drawn), np.nan)
        return Cell(nothing, drawn, none, none, [note] * size)

    # --- all of them --------------------------------------------------------------------------

    def _table(
        self,
        names: tuple[str, str, str],
        cells: Mapping[str, Mapping[str, Cell]],
        note: str,
        first: int = 0,
    ) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the mean over datasets, then those of each dataset."""
        if not cells:
            told = note or "no dataset and seed in common with the base"
            cells, note = {"": {"": self._empty(told)}}, ""
        means = {dataset: mean_cell(of) for dataset, of in cells.items()}
        over_all = mean_cell({dataset: mean.cell for dataset, mean in means.items()})
        ddof = 0 if self.mode == "paper" else 1
        seed_sd, dataset_sd = sd_of(by_seed(cells), ddof), over_all.sd(ddof)
        n_seeds = fewest([mean.count for mean in means.values()])
        for metric in range(first, len(self.names)):
            sds = seed_sd[metric], dataset_sd[metric]
            yield self._row((*names, ""), metric, over_all, sds, int(n_seeds[metric]), note)
        for dataset, mean in means.items() if "" not in means else ():
            own = mean.sd(ddof)
            for metric in range(first, len(self.names)):
                sds, n = (own[metric], np.nan), int(mean.count[metric])
                yield self._row((*names, dataset), metric, mean, sds, n, note)

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
        low, high, about = interval(cell.drawn[metric], value)
        count = int(mean.count[metric])
        n_datasets = count if names[-1] == "" else min(count, 1)
        spread = spread_interval(value, sds[1], n_datasets if self.mode == "recommended" else 0)
        return (
            *(*names, self.names[metric], value, low, high, *sds, *spread),
            *(n_datasets, n_seeds, int(cell.n[metric]), int(cell.failed[metric])),
            *(joined(note, cell.notes[metric], about), self.mode),
        )


def _why(side: Side, row: int, value: float) -> str:
    """Say why a side has no number, or what it says of the number it has."""
    if side.notes[row] or not np.isnan(value) or not side.usable[row].any():
        return side.notes[row]
    is_read = (side.usable[row] & side.read[row]).any()
    return "undefined: gold or answers are constant" if is_read else "undefined: nothing was read"
