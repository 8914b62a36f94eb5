"""Run, column -> flip rates by slice of its items, as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from flipmeter.report.page.filters import NAMELESS, Menu
from flipmeter.report.page.slices import slices_grid
from flipmeter.run.results.item_grid import WHOSE, ItemGrid, Sought
from flipmeter.run.results.sliced import sliced
from flipmeter.view.flip_pages import Flips, flips_of
from flipmeter.view.folders import ChosenRuns

EVERY = "all"
"""The level that stands for all of them."""


def usual_contrast(flips: Flips) -> str:
    """The contrast with the most flips, by name; the first one where nothing flips."""
    counts = flips.counts("").with_columns(pl.col("contrast").str.split(":").list.first())
    totals = counts.group_by("contrast", maintain_order=True).agg(pl.col("n").sum())
    known = [contrast.name for contrast in flips.run.contrasts]
    n = dict(totals.iter_rows())
    return max(known, key=lambda name: n.get(name, 0)) if known else ""


def make_slices(chosen: ChosenRuns, filters: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Measure the slices of a run: at the base unless a level is named, for every rater."""
    grid, sought = flips_of(chosen), Sought(dict(filters))
    column = sought["by"] or next(iter(grid.columns.by_name), "")
    contrast = sought["contrast"] or usual_contrast(grid)
    named = [one for one in grid.run.contrasts if one.name == contrast]
    whose = {name: sought[name] for name in WHOSE} | {"level": sought["level"] or NAMELESS["level"]}
    whose |= {"level": ""} if whose["level"] == EVERY else {}
    drawn = slices_grid(
        sliced(grid, column, named, whose), column, contrast, f"/run/{chosen.name}/items"
    )
    html = drawn.html() if drawn.n_rows else ""
    about = named[0].about if named else "no such contrast in this run"
    return {"column": column, "contrast": contrast, "about": about, "html": html}


def slice_menus(grid: ItemGrid, page: dict[str, Any] | None, sought: Sought) -> list[Menu]:
    """The menus over the slices, with what is shown where nothing was chosen."""
    shown = page or {"column": sought["by"], "contrast": sought["contrast"]}
    contrasts = [(one.name, f"{one.name}: {one.about}") for one in grid.run.contrasts]
    columns = [(name, name) for name in grid.columns.by_name]
    there = {name: grid.conditions[name].unique(maintain_order=True).to_list() for name in WHOSE}
    levels = [*(name or NAMELESS["level"] for name in there["level"]), EVERY]
    whose = [Menu.of(name, there[name], sought[name]) for name in WHOSE[:2]]
    if len(there["level"]) > 1 or sought["level"]:
        chosen = sought["level"] or NAMELESS["level"]
        whose.append(Menu.of("level", levels, chosen, every=""))
    return [
        Menu("by", "Slice by", columns, shown["column"], ""),
        Menu("contrast", "Contrast", contrasts, shown["contrast"], ""),
        *(menu for menu in whose if menu.is_shown),
    ]
