"""Run, column -> flip rates by slice of its items, as a page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.measure.inference.slices import slice_rates
from flipmeter.report.estimate_tables import interval, p_value
from flipmeter.report.page.draw import axis_for, scale, span
from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.page.markup import Cell, Grid, RowGroup, capped, count
from flipmeter.report.page.texts import visible
from flipmeter.view.flip_pages import Flips
from flipmeter.view.folders import ChosenRuns
from flipmeter.view.item_pages import WHOSE, ItemGrid, Sought

MARKS = {"higher": "flips", "lower": "stable"}
"""The style of a slice that differs from the rest."""
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
    grid = ItemGrid(chosen.run, chosen.stamp)
    columns = grid.columns
    column = filters.get("by") or next(iter(columns.by_name), "")
    slices = columns.of(column)
    contrast = filters.get("contrast") or usual_contrast(Flips(chosen.run, chosen.stamp))
    named = [one for one in grid.run.contrasts if one.name == contrast]
    views = [view for one in named for view in one.views]
    level = filters.get("level", NAMELESS["level"])
    wanted = {name: filters[name] for name in WHOSE if filters.get(name) and name != "level"}
    wanted |= {} if level == EVERY else {"level": level}
    rows = (
        grid.narrowed(wanted)
        .filter(pl.col("view").is_in(views), pl.col("repeat") == 0)
        .drop("probabilities", strict=False)
        .collect(engine="streaming")
    )
    found = slice_rates(rows, slices, named)
    about = named[0].about if named else "no such contrast in this run"
    return SlicesPage(column, contrast, about, _grid(chosen.name, found, column, contrast))


def _grid(run: str, found: pl.DataFrame, column: str, contrast: str) -> Grid:
    keys = [name for name in ("dataset", "level") if found[name].n_unique() > 1]
    known = found.filter(pl.col("n_clusters") > 0)
    axis = axis_for(known["high"].to_list(), low=0.0)
    groups = []
    for (rater,), rows in known.group_by("rater", maintain_order=True):
        ordered = rows.sort(*keys, "value", descending=[False] * len(keys) + [True])
        shown, notes = capped(
            [_row(run, row, keys, axis, column) for row in ordered.iter_rows(named=True)],
            "narrow by model or level",
        )
        groups.append((RowGroup(shown, str(rater)), notes))
    heads: list[str | Markup] = [visible(column), *keys, "flips [95 %]", scale(axis)]
    how = (
        "Flip rates on readable pairs, seeds pooled, with the intervals of the verdicts. Each "
        "slice is compared with all others of its rater, dataset and level by exchanging items "
        f"between them, two-sided; p by Holm over all {len(known):,} rows. A full dot is higher "
        "than the rest, a ring lower."
    )
    return Grid(
        f"{contrast} by {column}",
        [*heads, "the rest", "items", "not read", "p, Holm", "against the rest"],
        [group for group, _ in groups],
        [how, *(note for _, notes in groups for note in notes)],
        "forest slices",
    )


def _row(run: str, row: Mapping[str, Any], keys: list[str], axis: Any, column: str) -> list[Cell]:
    told = {name: row[name] for name in ("rater", "dataset", "level", "contrast")}
    told["level"] = told["level"] or NAMELESS["level"]
    query = urlencode({**told, "by": column, "slice": row["slice"], "show": "flipped"})
    link = Markup('<a href="{}">{}</a>').format(f"/run/{run}/items?{query}", visible(row["slice"]))
    bounds = (row["value"], row["low"], row["high"])
    rest = "" if row["rest"] is None else f"{100 * row['rest']:.1f} %"
    return [
        Cell(link, row["slice"]),
        *(Cell(row[key] or NAMELESS.get(key, ""), row[key]) for key in keys),
        Cell(interval(row), row["value"], "num"),
        Cell(span(axis, bounds, None, MARKS.get(row["word"], "inconclusive")), None, "picture"),
        Cell(rest, row["rest"], "num"),
        count(row["n_clusters"]),
        count(row["n_unreadable"] or None),
        Cell("" if row["p_holm"] is None else p_value(row["p_holm"]), row["p_holm"], "num"),
        Cell(row["word"] or "not tested", row["word"], "why" if row["word"] not in MARKS else ""),
    ]


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
