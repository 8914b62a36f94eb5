"""Items -> pages: what leads to the grid of items, and one item under all conditions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.report.format import visible
from flipmeter.report.page.filters import NAMELESS, choice
from flipmeter.report.page.markup import Cell, Grid, RowGroup, breakable
from flipmeter.report.page.strips import NOT_ASKED, DrawnClasses
from flipmeter.report.pairs import SAME
from flipmeter.run.results.drawn_items import classes_of, gold_of
from flipmeter.run.results.item_grid import LANE, SHOWN, ItemGrid, Sought, neighbours

Key = tuple[str, str]
"""Dataset and id of an item."""
MOST_ROWS = 60
"""Raters, levels and seeds that the page of an item shows; those that flip come first."""


def item_address(run: str, key: Key, sought: Sought) -> str:
    """The address of an item; parameters that begin with _ lead back to its list."""
    told = {"dataset": key[0], "item": key[1]}
    back = {**sought.filters, "order": sought.order}
    return f"/run/{run}/item?" + urlencode(
        told | {f"_{name}": value for name, value in back.items() if value}
    )


def menus(grid: ItemGrid, sought: Sought) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The menus over the grid: name, title, and the values with what they are called."""
    found = []
    for name in ("rater", "dataset", "level"):
        every = choice(name, grid.conditions[name])
        if len(every.values) > 1 or sought[name]:
            found.append((name, every.title, [(value, value) for value in every.values]))
    contrasts = choice("contrast", [pair.name for pair in grid.pairs]).values
    found.append(("contrast", "Contrast", [(value, value) for value in contrasts]))
    found.append(("show", "Items", [(name, title) for name, title in SHOWN.items() if name]))
    if sought["by"]:
        slices = sorted(grid.columns.of(sought["by"])["slice"].unique())
        found.append(("slice", sought["by"], [(value, value) for value in slices]))
    return found


# --- one item ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemPage:
    """One item under all conditions that fit, and those before and after it in its list."""

    key: Key
    text: str
    gold: str
    facts: Sequence[tuple[str, str]]
    grid: Grid
    legend: Sequence[tuple[Markup, str]]
    n_flips: int
    n_pairs: int
    place: int
    n_items: int
    before: Key | tuple[()]
    after: Key | tuple[()]


def item_page(run: str, grid: ItemGrid, key: Key, sought: Sought) -> ItemPage | None:
    """Everything that one item was called, worst first; None if there is no such item."""
    keys = pl.DataFrame({"dataset": [key[0]], "item": [key[1]]})
    cells, pairs = grid.cells(keys, sought), grid.compared(keys, sought)
    if cells.is_empty():
        return None
    about = grid.texts(keys).get(key, {})
    classes = classes_of(grid, cells)[key[0]]
    found = grid.found(sought)
    place, before, after = neighbours(found, key)
    return ItemPage(
        key,
        str(about.get("text") or ""),
        gold_of(grid, key, about),
        list(_facts(grid, key, about)),
        _answers(run, grid, cells, pairs, classes, sought),
        classes.legend,
        int(pairs["is_flip"].sum()),
        len(pairs),
        place,
        len(found),
        (str(before[0]), str(before[1])) if before else (),
        (str(after[0]), str(after[1])) if after else (),
    )


def _facts(grid: ItemGrid, key: Key, about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields of an item and what it is filed under."""
    fields = json.loads(about.get("fields") or "{}")
    for name, value in fields.items():
        if name != "text":
            yield name, str(value)
    columns = grid.columns
    row = columns.keys.with_row_index("at").filter(dataset=key[0], item=key[1])["at"]
    for name, values in columns.by_name.items():
        if len(row) and name not in fields:
            yield name, str(values[int(row[0])])


def _answers(
    run: str,
    grid: ItemGrid,
    cells: pl.DataFrame,
    pairs: pl.DataFrame,
    classes: DrawnClasses,
    sought: Sought,
) -> Grid:
    """A row for every rater, level and seed: the class under every view, and what flips."""
    views = grid.views(sought)
    names = [one.name for one in grid.named(sought["contrast"])]
    own = ("rater", "level", "seed")
    answers = {
        (view, *lane): rank for view, *lane, rank in cells.select("view", *LANE, "rank").iter_rows()
    }
    repeats = sorted(cells["repeat"].unique())
    compared = {
        (*(row[name] for name in own), row["contrast"]): row for row in pairs.iter_rows(named=True)
    }
    lanes = cells.select(own).unique(maintain_order=True).rows()
    n_flips = {
        lane: sum(bool(compared[*lane, n]["is_flip"]) for n in names if (*lane, n) in compared)
        for lane in lanes
    }
    lanes.sort(key=lambda lane: -n_flips[lane])
    rows = []
    for lane in lanes[:MOST_ROWS]:
        rater, level, seed = lane
        shown = [
            _chips([answers.get((view, *lane, repeat), NOT_ASKED) for repeat in repeats], classes)
            for view in views
        ]
        flips = [_turn(run, compared.get((*lane, name)), classes, sought) for name in names]
        head = Markup("<strong>{}</strong><small>{} · seed {}</small>").format(
            breakable(rater), breakable(level or NAMELESS["level"]), seed
        )
        rows.append([Cell(head, str(rater)), *shown, *flips])
    notes = ["A flip links to its two prompts; so does a pair of answers that agree."]
    if len(lanes) > MOST_ROWS:
        notes.append(
            f"{len(lanes) - MOST_ROWS:,} of {len(lanes):,} rows, with fewer flips than these, are "
            "left out; narrow by model or level."
        )
    title = "Answers under every view, most flips first"
    return Grid(title, ["rater · level", *views, *names], [RowGroup(rows)], notes, "matrix answers")


def _chips(ranks: Sequence[int], classes: DrawnClasses) -> Cell:
    asked = [rank for rank in ranks if rank != NOT_ASKED]
    if not asked:
        return Cell(Markup('<span class="why">not asked</span>'), None, "num")
    chips = Markup("").join(classes.chip(rank) for rank in asked)
    names = " / ".join(dict.fromkeys(classes.name(rank) for rank in asked))
    return Cell(Markup("{}<small>{}</small>").format(chips, visible(names)), asked[0], "num")


def _turn(run: str, row: Mapping[str, Any] | None, classes: DrawnClasses, sought: Sought) -> Cell:
    """One contrast of one rater: the two classes if they differ, and the way to their prompts."""
    if row is None:
        return Cell("", None, "num")
    told = f"{classes.sign(row['rank'])} → {classes.sign(row['rank_b'])}"
    back = {f"_{name}": value for name, value in sought.filters.items()}
    key = {name: row[name] for name in (*SAME, "contrast")}
    address = f"/run/{run}/flip?" + urlencode({**key, **back, "_from": "item"})
    link = Markup('<a href="{}">{}</a>').format(address, told if row["is_flip"] else "same")
    return Cell(link, float(row["is_flip"]), "turned" if row["is_flip"] else "same")
