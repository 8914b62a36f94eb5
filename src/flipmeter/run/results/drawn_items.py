"""Run -> GridPage: items side by side under all conditions, drawn for the viewer and the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from markupsafe import Markup

from flipmeter.report.findings import Findings, GridPage, GridRow, class_name
from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.page.strips import MOST_LINES, NOT_ASKED, DrawnClasses, picture
from flipmeter.run.record.folder import Run
from flipmeter.run.results.item_columns import KEY
from flipmeter.run.results.item_grid import LANE, PAGE, ItemGrid, Sought

ROOM = 400_000
"""Number of bytes for the pictures of the grid in a report."""
MOST_COLUMNS = 12
"""Raters or levels side by side in a report."""


def grid_page(grid: ItemGrid, sought: Sought) -> GridPage:
    """Lay a page of items side by side under all conditions that fit."""
    found = grid.found(sought)
    start = (sought.page - 1) * PAGE
    keys = found.slice(start, PAGE)
    cells = grid.cells(keys, sought)
    layout = _Layout.of(cells)
    return GridPage(
        list(_rows(grid, keys, cells, layout, grid.views(sought))),
        [name or NAMELESS["level"] for name in layout.columns],
        grid.views(sought),
        layout.names,
        len(layout.lines) > MOST_LINES,
        {dataset: one.legend for dataset, one in classes_of(grid, cells).items()},
        len(found),
        start + 1,
        -(-len(found) // PAGE),
    )


def report_grid(found: Findings, run: Run) -> GridPage | None:
    """The items that disagree most with themselves, as many as a report has room for."""
    page = grid_page(ItemGrid(run), Sought({"show": "flipped"}))
    if not page.rows:
        return None
    severity = {
        str(name or NAMELESS["level"]): place
        for key in ("level", "rater")
        for place, name in enumerate(found.verdicts[key].unique(maintain_order=True))
    }
    worst = sorted(range(len(page.heads)), key=lambda at: severity.get(page.heads[at], at))
    kept = sorted(worst[:MOST_COLUMNS])
    rows = list(_fitting(page.rows, kept))
    n_items, n_columns = page.n_items - len(rows), len(page.heads) - len(kept)
    left = [
        f"{n_items:,} more items with less disagreement" * (n_items > 0),
        f"{n_columns:,} of {len(page.heads):,} columns with less severe verdicts" * (n_columns > 0),
    ]
    told = f"{' and '.join(filter(None, left))} are left out; `flipmeter view RUN` shows all."
    heads, notes = [page.heads[at] for at in kept], [told] if any(left) else []
    return replace(page, rows=rows, heads=heads, notes=notes)


def _fitting(rows: Sequence[GridRow], columns: Sequence[int]) -> Iterator[GridRow]:
    """Yield rows with some of their columns while there is room, one at least."""
    room = ROOM
    for nth, row in enumerate(rows):
        pictures = [row.pictures[at] for at in columns]
        room -= sum(map(len, pictures))
        if nth and room < 0:
            return
        yield replace(row, pictures=pictures)


def _rows(
    grid: ItemGrid, keys: pl.DataFrame, cells: pl.DataFrame, layout: _Layout, views: Sequence[str]
) -> Iterator[GridRow]:
    classes, texts = classes_of(grid, cells), grid.texts(keys)
    ranks: dict[tuple[str, str], dict[tuple[Any, ...], int]] = {}
    for dataset, item, *at, rank in cells.select(*KEY, "view", *LANE, "rank").iter_rows():
        ranks.setdefault((dataset, item), {})[tuple(at)] = rank
    for row in keys.iter_rows(named=True):
        key = row["dataset"], row["item"]
        about = texts.get(key, {})
        yield GridRow(
            key,
            str(about.get("text") or ""),
            gold_of(grid, key, about),
            row["n_flips"],
            row["n_pairs"],
            row["n_unread"],
            list(layout.pictures(ranks[key], views, classes[key[0]])),
        )


def classes_of(grid: ItemGrid, cells: pl.DataFrame) -> dict[str, DrawnClasses]:
    """The classes of every dataset that some answers are of."""
    known = grid.run.scales
    sizes = cells.group_by("dataset", maintain_order=True).agg(pl.col("n_classes").max())
    return {name: DrawnClasses(known.get(name), int(n or 1)) for name, n in sizes.iter_rows()}


@dataclass(frozen=True)
class _Layout:
    """Columns are raters and lines their levels, or the other way round where there is one rater.

    A line also has a seed and a repeat.
    """

    are_raters: bool
    columns: Sequence[str]
    lines: Sequence[tuple[str, int, int]]

    @classmethod
    def of(cls, cells: pl.DataFrame) -> _Layout:
        are_raters = cells["rater"].n_unique() > 1
        across, down = ("rater", "level") if are_raters else ("level", "rater")
        places = {name: at for at, name in enumerate(cells[down].unique(maintain_order=True))}
        lines = cells.select(down, "seed", "repeat").unique().rows()
        lines.sort(key=lambda line: (places[line[0]], *line[1:]))
        return cls(are_raters, cells[across].unique(maintain_order=True).to_list(), lines)

    @property
    def names(self) -> list[str]:
        """The names of the lines."""
        return [
            f"{name or NAMELESS['level']} · seed {seed}" + (f" · repeat {nth}" if nth else "")
            for name, seed, nth in self.lines
        ]

    def pictures(
        self, ranks: Mapping[tuple[Any, ...], int], views: Sequence[str], classes: DrawnClasses
    ) -> Iterator[Markup]:
        """Draw what one item was called, column by column."""
        for column in self.columns:
            lanes = [
                (column, name, *rest) if self.are_raters else (name, column, *rest)
                for name, *rest in self.lines
            ]
            drawn = [[ranks.get((view, *lane), NOT_ASKED) for view in views] for lane in lanes]
            yield picture(drawn, views, classes)


def gold_of(grid: ItemGrid, key: tuple[str, str], about: Mapping[str, Any]) -> str:
    """The name of an item's gold class, nothing where it has none."""
    gold = about.get("gold")
    return class_name(grid.run.scales, key[0], gold) if gold else ""
