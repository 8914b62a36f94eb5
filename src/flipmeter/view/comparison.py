"""Two runs -> a page: both rates of every contrast in a picture, and the items that changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.base.files.parquet import collected
from flipmeter.measure.effects.compare import same_raters
from flipmeter.measure.panel.frame import distinct
from flipmeter.report.findings import class_name
from flipmeter.report.format import interval, visible
from flipmeter.report.page.compared import comparison_grid
from flipmeter.report.page.draw import Axis, axis_for, scale, span
from flipmeter.report.page.filters import NAMELESS, Menu
from flipmeter.report.page.markup import Cell, Grid, RowGroup, capped, count
from flipmeter.report.page.texts import excerpt
from flipmeter.run.record.folder import Run
from flipmeter.run.results.changed_items import FIRST, SECOND, changed_items, own_names
from flipmeter.run.results.gather import differences
from flipmeter.run.results.item_columns import item_texts
from flipmeter.types import JUDGED
from flipmeter.view.folders import ChosenRuns

WHOSE = ("rater", "dataset", "level", "contrast")
MOST_ITEMS = 200
"""Changed items that a page lists."""


def make_comparison(first: ChosenRuns, second: ChosenRuns, contrast: str = "") -> dict[str, Any]:
    """Subtract a run from another, item by item, and list the items that changed."""
    runs, names = (first.run, second.run), (first.name, second.name)
    changed = changed_items(*runs)
    shown = changed.filter(pl.col("contrast") == contrast) if contrast else changed
    warnings = [warning for run in runs for warning in run.warnings.items()]
    contrasts = changed["contrast"].unique(maintain_order=True)
    return {
        "pictures": _pictures(runs, names, changed),
        "grid": comparison_grid(differences(*runs)),
        "changed": _changed_grid(runs, names, shown),
        "n_changed": len(shown),
        "contrasts": Menu.of("contrast", contrasts, contrast),
        "warnings": list(dict.fromkeys(warnings)),
    }


def _pictures(runs: tuple[Run, Run], names: tuple[str, str], changed: pl.DataFrame) -> Grid:
    """Both rates of everything that both runs judged, the largest change first."""
    frames = same_raters(runs[0].parts.decisions, runs[1].parts.decisions)
    sides = [
        _renamed(run, own).filter(pl.col("status").is_in(JUDGED))
        for run, own in zip(runs, frames, strict=True)
    ]
    columns = (*WHOSE, "value", "low", "high", "word")
    both = sides[0].select(columns).join(sides[1].select(columns), on=WHOSE, suffix="_2")
    both = both.sort((pl.col("value_2") - pl.col("value")).abs(), descending=True, nulls_last=True)
    known = [one for name in ("high", "high_2") for one in both[name] if one is not None]
    axis = axis_for(known, low=0.0)
    n_changed = {
        (*whose, change): n
        for *whose, change, n in changed.with_columns(
            pl.col("contrast").str.split(":").list.first()
        )
        .group_by(*WHOSE, "change")
        .len()
        .iter_rows()
    }
    keys = [name for name in WHOSE[:3] if both[name].n_unique() > 1]
    rows, notes = capped(
        [_picture(row, keys, axis, names, n_changed) for row in both.iter_rows(named=True)],
        "flipmeter compare FIRST SECOND --csv",
    )
    how = (
        "Flip rates on readable pairs with 95 % intervals, each run on its own items: above the "
        "first run, below the second. Whether they differ is in the table of differences, on the "
        "items that both have. 'Only' counts link to the items that flip in one run only."
    )
    heads: list[str | Markup] = [
        "contrast",
        *keys,
        visible(names[0]),
        visible(names[1]),
        "only 1st",
        "only 2nd",
        scale(axis),
    ]
    return Grid(
        "Flip rates in both runs, largest change first",
        heads,
        [RowGroup(rows)],
        [*_alone(frames, names), how, *notes],
        "forest",
    )


def _alone(frames: Sequence[pl.LazyFrame], names: tuple[str, str]) -> list[str]:
    """The note on raters that only one of the runs has; none where both have the same."""
    raters = [[str(rater) for (rater,) in distinct(frame, "rater")] for frame in frames]
    both = [rater for rater in raters[0] if rater in raters[1]]
    parts = [
        f"{', '.join(only)} (only in {name})"
        for own, name in zip(raters, names, strict=True)
        if (only := [rater for rater in own if rater not in both])
    ]
    return [f"Compared: {', '.join(both)}. Not compared: {'; '.join(parts)}."] if parts else []


def _renamed(run: Run, renamed: pl.LazyFrame) -> pl.DataFrame:
    """The verdicts of a run with the names that its raters have in a comparison."""
    names = {own: name for name, own in own_names(run, renamed).items()}
    return run.verdicts.with_columns(pl.col("rater").replace(names))


def _picture(
    row: Mapping[str, Any],
    keys: Sequence[str],
    axis: Axis,
    names: tuple[str, str],
    n_changed: Mapping[tuple[Any, ...], int],
) -> list[Cell]:
    first = {name: row[name] for name in ("value", "low", "high")}
    second = {name: row[f"{name}_2"] for name in ("value", "low", "high")}
    spans = Markup("").join(
        span(axis, (one["value"], one["low"], one["high"]), None, word)
        for one, word in ((first, row["word"]), (second, row["word_2"]))
        if one["value"] is not None
    )
    query = urlencode({"first": names[0], "second": names[1], "contrast": row["contrast"]})
    whose = tuple(row[name] for name in WHOSE)
    counts = [n_changed.get((*whose, change), 0) for change in (FIRST, SECOND)]
    return [
        Cell(row["contrast"], row["contrast"], "code"),
        *(Cell(row[key] or NAMELESS.get(key, ""), row[key]) for key in keys),
        Cell(interval(first), first["value"], f"num word {row['word']}"),
        Cell(interval(second), second["value"], f"num word {row['word_2']}"),
        *(
            Cell(Markup('<a href="/compare?{}#changed">{}</a>').format(query, f"{n:,}"), n, "num")
            if n
            else count(0)
            for n in counts
        ),
        Cell(spans, None, "picture"),
    ]


def _changed_grid(runs: tuple[Run, Run], names: tuple[str, str], changed: pl.DataFrame) -> Grid:
    """The items that flip in one run only, each with a link to both runs."""
    some = changed.head(MOST_ITEMS)
    wanted = item_texts(runs[1]).filter(pl.col("item").is_in(some["item"].unique().to_list()))
    texts = {
        (dataset, item): text
        for dataset, item, text in wanted.select("dataset", "item", "text")
        .pipe(collected)
        .iter_rows()
    }
    rows = [_changed_row(runs, names, row, texts) for row in some.iter_rows(named=True)]
    notes = []
    if len(changed) > MOST_ITEMS:
        notes.append(f"{len(changed) - MOST_ITEMS:,} more are left out; choose a contrast.")
    heads = [
        "item",
        "contrast",
        "rater",
        "level",
        "seed",
        visible(names[0]),
        visible(names[1]),
        "change",
    ]
    return Grid("Items that flip in one run only", heads, [RowGroup(rows)], notes, "plain changed")


def _changed_row(
    runs: tuple[Run, Run],
    names: tuple[str, str],
    row: Mapping[str, Any],
    texts: Mapping[tuple[str, str], str],
) -> list[Cell]:
    key = {name: row[name] for name in ("dataset", "level", "seed", "item", "contrast")}
    sides = []
    for run, name, end, rater in zip(
        runs, names, ("", "_second"), ("first", "second"), strict=True
    ):
        answers = [
            class_name(run.scales, row["dataset"], row[f"{rank}{end}"])
            for rank in ("rank", "rank_b")
        ]
        told = " → ".join(answers) if answers[0] != answers[1] else f"{answers[0]}, both"
        query = urlencode({"rater": row[f"rater_{rater}"], **key})
        link = Markup('<a href="/run/{}/flip?{}">{}</a>').format(name, query, visible(told))
        sides.append(Cell(link, told))
    text = texts.get((row["dataset"], row["item"])) or f"item {row['item']}"
    return [
        Cell(Markup("<bdi>{}</bdi>").format(excerpt(text, 90)), text[:90], "wrapped"),
        Cell(row["contrast"], row["contrast"], "code"),
        Cell(excerpt(row["rater"], 60), row["rater"], "wrapped"),
        Cell(row["level"] or NAMELESS["level"], row["level"]),
        count(row["seed"]),
        *sides,
        Cell(row["change"], row["change"]),
    ]
