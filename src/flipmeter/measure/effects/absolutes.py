"""Decisions -> metrics of every rater at every level: what residuals and transfers subtract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from flipmeter.measure.effects.baselines import LevelComparison, own_levels
from flipmeter.measure.effects.measured_items import combined
from flipmeter.measure.effects.residuals import SCHEMA, ResidualRows, prepared
from flipmeter.measure.panel.frame import Decisions
from flipmeter.measure.statistics.means import MeanCell
from flipmeter.types import Contrast, Mode


def absolutes(
    decisions: Decisions, contrasts: Sequence[Contrast], *, mode: Mode = "recommended"
) -> pl.DataFrame:
    """Every metric of every rater at the base and at each level, with the columns of `residuals`.

    Values are shares and distances, not points, and nothing is subtracted. `paper`: seeds are
    averaged within a dataset, then mean and population SD are taken over datasets. `recommended`
    adds an interval over clusters of items, and takes sample SDs.
    """
    keys, sides, measurer = prepared(decisions, contrasts, mode)
    maker = _AbsoluteRows(sides, measurer)
    rows = [row for one in own_levels(decisions, keys, sides) for row in maker.rows(one)]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return table.with_columns(pl.col(pl.Float64).fill_nan(None))


class _AbsoluteRows(ResidualRows):
    """Makes the rows of a level by itself."""

    def rows(self, one: LevelComparison) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a level."""
        yield from self.table(one, one.level, self.cells(one, self._own), "")

    def _own(self, one: LevelComparison, dataset: str, level: int, base: int) -> MeanCell:
        side = self.sides[level]
        found = self.measurer.remember(side, level)
        usable = side.usable
        counts = (usable.sum(axis=1), (usable & ~side.read).sum(axis=1))
        n, failed = (self.measurer.by_metric(count) for count in counts)
        notes = self.measurer.notes({"": (side, found.value)}, "")
        influences = combined([found], [1.0])[1] if self.mode == "recommended" else None
        return MeanCell(found.value, n, failed, notes, influences)
