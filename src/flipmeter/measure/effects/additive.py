"""Decisions -> forecasts: what the levels of a config add up to, beside what they do together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flipmeter.measure.effects.baselines import Joint, joints
from flipmeter.measure.effects.measured_items import (
    Measured,
    MeasuredItems,
    Measurer,
    combined,
    in_common,
)
from flipmeter.measure.effects.residuals import N, prepared, residual
from flipmeter.measure.inference.differences import Influences, stacked
from flipmeter.measure.panel.checked import Floats
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.statistics.means import Mean, MeanCell, fewest, over_datasets, over_seeds
from flipmeter.types import Contrast, Mode, Problem

NUMBERS = ("baseline", "forecast", "measured", "interaction")
SCHEMA = {
    "config": pl.String,
    "rater": pl.String,
    "dataset": pl.String,
    "metric": pl.String,
    **{f"{name}{end}": pl.Float64 for name in NUMBERS for end in ("", "_low", "_high")},
    "n_datasets": pl.Int64,
    "n_seeds": pl.Int64,
    "n": pl.Int64,
    "failed": pl.Int64,
    "levels": pl.String,
    "note": pl.String,
    "mode": pl.String,
}


def additive(baseline: N, residuals: Sequence[N]) -> N:
    """The baseline plus the change of each level alone, in points."""
    return baseline + sum(residuals) / 100


def forecasts(
    decisions: Decisions,
    contrasts: Sequence[Contrast],
    configs: Mapping[str, Mapping[str, object]],
    *,
    mode: Mode = "recommended",
) -> pl.DataFrame:
    """Add up the single effects of each config's levels, and compare the sum with the config.

    `configs` says what a config changes of the base; its own level is "config=NAME". The
    interaction is measured minus forecast. A row is about one dataset, or about their mean where
    `dataset` is empty. `recommended`: all groups on the items they share, and intervals
    over clusters of items; `paper`: each group on its own items. Where one of the numbers is
    undefined none is given, and the note says why.
    """
    keys, sides, measurer = prepared(decisions, contrasts, mode)
    found = joints(decisions, keys, sides, configs)
    if all(joint.missing for joint in found):
        lacking = list(dict.fromkeys(level for joint in found for level in joint.missing))
        raise Problem(
            f"no config can be forecast: {', '.join(lacking)} was not varied alone; "
            "add it to the study's `vary:`"
        )
    maker = _ForecastRows(sides, measurer)
    rows = [row for joint in found for row in maker.rows(joint)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


@dataclass(frozen=True)
class _ForecastRows:
    """Makes the rows of a config: a cell has all metrics of each of the four numbers, in turn."""

    sides: Sequence[MeasuredItems]
    measurer: Measurer

    def rows(self, joint: Joint) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the mean over datasets, then those of each dataset."""
        cells = {
            dataset: {f"seed {seed}": self._cell(joint, dataset, of) for seed, of in seeds.items()}
            for dataset, seeds in joint.groups.items()
        }
        if not cells:
            yield from self._empty(joint)
            return
        means = {dataset: over_seeds(of) for dataset, of in cells.items()}
        over_all = over_datasets({dataset: mean.cell for dataset, mean in means.items()})
        n_seeds = fewest([mean.count for mean in means.values()])
        for dataset, mean in {"": over_all, **means}.items():
            for place, metric in enumerate(self.measurer.names):
                count = int(mean.count[place])
                counts = (count, int(n_seeds[place])) if dataset == "" else (min(count, 1), count)
                yield self._row(joint, (dataset, metric), mean, place, counts)

    def _cell(self, joint: Joint, dataset: str, groups: Sequence[int]) -> MeanCell:
        """The four numbers of a dataset and seed, none where one of them is undefined."""
        sides, is_shared, note = self._sides(groups)
        found = [
            self.measurer.remember(side, group) for side, group in zip(sides, groups, strict=True)
        ]
        names = ("", "base: ", *(f"{level}: " for level in joint.levels))
        whose = zip(sides, (one.value for one in found), strict=True)
        notes = self.measurer.notes(dict(zip(names, whose, strict=True)), note)
        is_read = np.logical_and.reduce([side.read for side in (sides if is_shared else sides[:1])])
        usable = sides[0].usable
        counts = [usable.sum(axis=1), (usable & ~is_read).sum(axis=1)]
        n, failed = (np.tile(self.measurer.by_metric(count), len(NUMBERS)) for count in counts)
        influences = _influences(found) if is_shared else None
        return MeanCell(_four(found).ravel(), n, failed, notes * len(NUMBERS), influences)

    def _sides(self, groups: Sequence[int]) -> tuple[list[MeasuredItems], bool, str]:
        """The sides measured, whether they have the same items, and a note."""
        own = [self.sides[group] for group in groups]
        if self.measurer.mode == "paper":
            return own, False, ""
        shared = in_common(*own)
        n_items, most = len(shared[0].items), max(len(side.items) for side in own)
        if n_items == 0:
            return own, False, "no interval: no item in common"
        return shared, True, f"on the {n_items} items in common" if n_items < most else ""

    def _row(
        self,
        joint: Joint,
        names: tuple[str, str],
        mean: Mean,
        place: int,
        counts: tuple[int, int],
    ) -> tuple[object, ...]:
        cell, numbers = mean.cell, []
        for number in range(len(NUMBERS)):
            at = number * len(self.measurer.names) + place
            numbers += [float(of[at]) for of in (cell.value, cell.low, cell.high)]
        return (
            *(joint.config, joint.rater, *names, *numbers, *counts),
            *(int(cell.n[place]), int(cell.failed[place]), ", ".join(joint.levels)),
            *(cell.notes[place], self.measurer.mode),
        )

    def _empty(self, joint: Joint) -> Iterator[tuple[object, ...]]:
        missing = ", ".join(joint.missing)
        note = f"not asked alone: {missing}" if missing else "no dataset and seed in common"
        nothing = [None] * (3 * len(NUMBERS))
        for metric in self.measurer.names:
            counts, levels = (0, 0, 0, 0), ", ".join(joint.levels)
            names = (joint.config, joint.rater, "", metric)
            yield (*names, *nothing, *counts, levels, note, self.measurer.mode)


def _four(found: Sequence[Measured]) -> Floats:
    """All metrics of each of the four numbers; undefined where one of them is."""
    config, base, *alone = (one.value for one in found)
    forecast = additive(base, [residual(level, base) for level in alone])
    numbers = np.stack([base, forecast, config, config - forecast])
    return np.where(np.isnan(numbers).any(axis=0), np.nan, numbers)


def _influences(found: Sequence[Measured]) -> Influences:
    """Contributions of clusters to the four numbers: sums over config, base and single levels."""
    n_alone = len(found) - 2
    factors = (
        [0.0, 1.0, *[0.0] * n_alone],
        [0.0, 1.0 - n_alone, *[1.0] * n_alone],
        [1.0, 0.0, *[0.0] * n_alone],
        [1.0, n_alone - 1.0, *[-1.0] * n_alone],
    )
    return stacked([combined(found, by)[1] for by in factors])
