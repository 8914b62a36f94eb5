"""Items -> pages: what leads to the grid of items, and one item under all conditions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.errors import Problem
from flipmeter.show.format import visible
from flipmeter.show.item_grid import (
    ORDERS,
    PAGE,
    SHOWN,
    WHOSE,
    ItemGrid,
    Sought,
    classes_of,
    gold_of,
    grid_page,
    led_from,
    sliced,
)
from flipmeter.show.page.draw import DrawnClasses
from flipmeter.show.page.markup import NAMELESS, Menu, breakable, values_of
from flipmeter.show.page.places import slices_grid
from flipmeter.show.pairs import SAME
from flipmeter.show.table import Cell, Table, groups_of
from flipmeter.show.view.flip_pages import Flips, flips_of
from flipmeter.show.view.folders import ChosenRuns, NotHere

MOST_ROWS = 60
"""Raters, levels and seeds that the page of an item shows; those that flip come first."""


def items_page(chosen: ChosenRuns, query: Mapping[str, str]) -> dict[str, Any]:
    """The items of a run that an address asks for, side by side under all conditions."""
    grid, sought = flips_of(chosen), Sought.read(query)
    page = grid_page(grid, sought)
    rows = [
        (row, Markup('href="{}"').format(item_address(chosen.name, row.key, sought)))
        for row in page.rows
    ]
    return {"sought": sought, "menus": _menus(grid, sought), "page": page, "rows": rows}


def item_address(run: str, key: Sequence[str], sought: Sought) -> str:
    """The address of an item; parameters that begin with _ lead back to its list."""
    told = {"dataset": key[0], "item": key[1]}
    return f"/run/{run}/item?" + urlencode(told | sought.back())


def _menus(grid: ItemGrid, sought: Sought) -> list[Menu]:
    """The menus over the grid."""
    conditions = [
        Menu.of(name, values_of(name, grid.conditions[name]), sought[name]) for name in WHOSE
    ]
    contrasts = values_of("contrast", [pair.name for pair in grid.pairs])
    shown = [(name, title) for name, title in SHOWN.items() if name]
    found = [
        *(menu for menu in conditions if menu.is_shown),
        Menu.of("contrast", contrasts, sought["contrast"]),
        Menu("show", "Items", shown, sought["show"]),
    ]
    if sought["by"]:
        slices = sorted(grid.columns.of(sought["by"])["slice"].unique())
        options = [(value, value) for value in slices]
        found.append(Menu("slice", sought["by"], options, sought["slice"]))
    return [*found, Menu("order", "Order", list(ORDERS.items()), sought.order, "")]


# --- one item ---------------------------------------------------------------------------------


def item_page(chosen: ChosenRuns, query: Mapping[str, str]) -> dict[str, Any]:
    """One item under all conditions that fit, worst first, and those beside it in its list."""
    missing = [name for name in ("dataset", "item") if name not in query]
    if missing:
        raise Problem(f"the URL of an item needs {', '.join(missing)}")
    key = query["dataset"], query["item"]
    grid, sought = flips_of(chosen), Sought.read(led_from(query))
    keys = pl.DataFrame({"dataset": [key[0]], "item": [key[1]]})
    cells, pairs = grid.cells(keys, sought), grid.compared(keys, sought)
    if cells.is_empty():
        raise NotHere(f"no item '{key[1]}' of '{key[0]}' under these conditions")
    about = grid.texts(keys).get(key, {})
    classes = classes_of(grid, cells)[key[0]]
    found = grid.found(sought)
    at = found.with_row_index("at").filter(dataset=key[0], item=key[1])["at"]
    place = int(at[0]) if len(at) else -1
    before, after = (
        item_address(chosen.name, found.row(beside)[:2], sought)
        if place >= 0 and 0 <= beside < len(found)
        else ""
        for beside in (place - 1, place + 1)
    )
    return {
        "key": key,
        "text": str(about.get("text") or ""),
        "gold": gold_of(grid, key, about),
        "facts": list(_item_facts(grid, key, about)),
        "grid": _answers_table(chosen.name, grid, cells, pairs, classes, sought),
        "legend": classes.legend,
        "n_flips": int(pairs["is_flip"].sum()),
        "n_pairs": len(pairs),
        "place": place,
        "n_items": len(found),
        "before": before,
        "after": after,
        "back": sought.at(place // PAGE + 1 if place >= 0 else 1),
    }


def _item_facts(
    grid: ItemGrid, key: Sequence[str], about: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
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


def _answers_table(
    run: str,
    grid: ItemGrid,
    cells: pl.DataFrame,
    pairs: pl.DataFrame,
    classes: DrawnClasses,
    sought: Sought,
) -> Table:
    """A row for every rater, level and seed: the class under every view, and what flips."""
    own = ("rater", "level", "seed")
    views = grid.views(sought)
    names = [one.name for one in grid.named(sought["contrast"])]
    answers: dict[tuple[Any, ...], list[int]] = {}
    for *at, rank in cells.sort("repeat").select("view", *own, "rank").iter_rows():
        answers.setdefault(tuple(at), []).append(rank)
    compared = {
        (row["contrast"], *(row[name] for name in own)): row for row in pairs.iter_rows(named=True)
    }
    n_flips = Counter(pairs.filter("is_flip").select(own).rows())
    lanes = cells.select(own).unique(maintain_order=True).rows()
    lanes.sort(key=lambda lane: -n_flips[lane])
    rows = [
        [
            _lane_cell(*lane),
            *(_chips(answers.get((view, *lane), []), classes) for view in views),
            *(_flip_cell(run, compared.get((name, *lane)), classes, sought) for name in names),
        ]
        for lane in lanes[:MOST_ROWS]
    ]
    notes = ["A flip links to its two prompts; so does a pair of answers that agree."]
    if len(lanes) > MOST_ROWS:
        notes.append(
            f"{len(lanes) - MOST_ROWS:,} of {len(lanes):,} rows, with fewer flips than these, are "
            "left out; narrow by model or level."
        )
    title, heads = "Answers under every view, most flips first", ["rater · level", *views, *names]
    return Table(title, heads, groups_of(rows), notes, "matrix answers")


def _lane_cell(rater: str, level: str, seed: int) -> Cell:
    head = Markup("<strong>{}</strong><small>{} · seed {}</small>")
    named = breakable(rater), breakable(level or NAMELESS["level"])
    return Cell(head.format(*named, seed), rater)


def _chips(ranks: Sequence[int], classes: DrawnClasses) -> Cell:
    if not ranks:
        return Cell(Markup('<span class="why">not asked</span>'), None, "num")
    chips = Markup("").join(map(classes.chip, ranks))
    names = " / ".join(dict.fromkeys(map(classes.name, ranks)))
    return Cell(Markup("{}<small>{}</small>").format(chips, visible(names)), ranks[0], "num")


def _flip_cell(
    run: str, row: Mapping[str, Any] | None, classes: DrawnClasses, sought: Sought
) -> Cell:
    """One contrast of one rater: the two classes if they differ, and the way to their prompts."""
    if row is None:
        return Cell("", None, "num")
    told = f"{classes.sign(row['rank'])} → {classes.sign(row['rank_b'])}"
    key = {name: row[name] for name in (*SAME, "contrast")}
    address = f"/run/{run}/flip?" + urlencode(key | replace(sought, order="").back())
    link = Markup('<a href="{}">{}</a>').format(address, told if row["is_flip"] else "same")
    return Cell(link, float(row["is_flip"]), "turned" if row["is_flip"] else "same")


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
