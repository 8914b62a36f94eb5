"""Run, column -> flip rates by slice of its items, for the viewer and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from flipmeter.base.files.parquet import collected
from flipmeter.measure.inference.slices import slice_rates
from flipmeter.report.findings import Findings
from flipmeter.report.page.filters import NAMELESS
from flipmeter.run.record.folder import Run
from flipmeter.run.results.item_grid import ItemGrid
from flipmeter.types import Contrast

MOST_DECISIONS = 100_000
"""Slices of more decisions take too long for a report; the viewer measures them."""


def sliced(
    grid: ItemGrid, column: str, contrasts: Sequence[Contrast], whose: Mapping[str, str]
) -> pl.DataFrame:
    """Flip rates of every slice of a column under some conditions, as `slice_rates` has them."""
    views = [view for one in contrasts for view in one.views]
    rows = (
        grid.narrowed(whose)
        .filter(pl.col("view").is_in(views), pl.col("repeat") == 0)
        .drop("probabilities", strict=False)
        .pipe(collected, "streaming")
    )
    return slice_rates(rows, grid.columns.of(column), contrasts)


def report_slices(found: Findings, run: Run) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Yield column, contrast and rates at the base, for the contrast with the worst verdict."""
    judged = found.verdicts.filter(pl.col("value").is_not_null(), level="")
    if judged.is_empty() or int(found.tally["n"].sum()) > MOST_DECISIONS:
        return
    worst = str(judged["contrast"][0])
    grid = ItemGrid(run)
    named = [one for one in run.contrasts if one.name == worst]
    for column in grid.columns.by_name:
        yield column, worst, sliced(grid, column, named, {"level": NAMELESS["level"]})
