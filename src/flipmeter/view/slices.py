"""Run, column -> flip rates by slice of its items, as a page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.page.markup import Grid
from flipmeter.report.page.slices import slices_grid
from flipmeter.run.results.item_grid import WHOSE, ItemGrid, Sought
from flipmeter.run.results.sliced import sliced
from flipmeter.view.flip_pages import Flips
from flipmeter.view.folders import ChosenRuns
from flipmeter.view.kept_grid import KeptGrid

EVERY = "all"
"""The level that stands for all of them."""


@dataclass(frozen=True)
class SlicesPage:
    """The slices of a run by one column, under one contrast."""

    column: str
    contrast: str
    about: str
    grid: Grid


def usual_contrast(flips: Flips) -> str:
    """The contrast with the most flips, by name; the first one where nothing flips."""
    counts = flips.counts.with_columns(pl.col("contrast").str.split(":").list.first())
    totals = counts.group_by("contrast", maintain_order=True).agg(pl.col("n").sum())
    known = [contrast.name for contrast in flips.run.contrasts]
    n = dict(totals.iter_rows())
    return max(known, key=lambda name: n.get(name, 0)) if known else ""


def make_slices(chosen: ChosenRuns, filters: Mapping[str, str]) -> SlicesPage:
    """Measure the slices of a run: at the base unless a level is named, for every rater."""
    grid = KeptGrid.of(chosen)
    columns = grid.columns
    column = filters.get("by") or next(iter(columns.by_name), "")
    contrast = filters.get("contrast") or usual_contrast(Flips(chosen.run, chosen.stamp))
    named = [one for one in grid.run.contrasts if one.name == contrast]
    level = filters.get("level", NAMELESS["level"])
    wanted = {name: filters[name] for name in WHOSE if filters.get(name) and name != "level"}
    wanted |= {} if level == EVERY else {"level": level}
    found = sliced(grid, column, named, wanted)
    about = named[0].about if named else "no such contrast in this run"
    drawn = slices_grid(found, column, contrast, f"/run/{chosen.name}/items")
    return SlicesPage(column, contrast, about, drawn)


def slice_menus(
    grid: ItemGrid, page: SlicesPage | None, sought: Sought
) -> list[tuple[str, str, list[tuple[str, str]], str, str]]:
    """The menus over the slices: name, title, values, what is chosen, and what stands for all."""
    by = page.column if page else sought["by"]
    contrast = page.contrast if page else sought["contrast"]
    contrasts = [(one.name, f"{one.name}: {one.about}") for one in grid.run.contrasts]
    found = [
        ("by", "Slice by", [(name, name) for name in grid.columns.by_name], by, ""),
        ("contrast", "Contrast", contrasts, contrast, ""),
    ]
    levels = grid.conditions["level"].unique(maintain_order=True).to_list()
    for name, title in (("rater", "Model"), ("dataset", "Dataset")):
        values = grid.conditions[name].unique(maintain_order=True).to_list()
        if len(values) > 1 or sought[name]:
            found.append((name, title, [(value, value) for value in values], sought[name], "all"))
    if len(levels) > 1 or sought["level"]:
        called = [(name or NAMELESS["level"], name or NAMELESS["level"]) for name in levels]
        chosen = sought["level"] or NAMELESS["level"]
        found.append(("level", "Level", [*called, (EVERY, EVERY)], chosen, ""))
    return found
