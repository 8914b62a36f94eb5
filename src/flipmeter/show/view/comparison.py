"""Two runs -> a page: both rates of every contrast in a picture, and the items that changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import polars as pl
from markupsafe import Markup

from flipmeter.parquet import collected
from flipmeter.run.folder import Run
from flipmeter.show.findings import class_name
from flipmeter.show.flipped_items import FIRST, SECOND, changed_items, own_names
from flipmeter.show.format import Record, interval, visible
from flipmeter.show.gather import differences
from flipmeter.show.item_grid import item_texts
from flipmeter.show.page.draw import Axis, axis_for, scale, span
from flipmeter.show.page.markup import Menu, count, counts, excerpt, keyed, page_table, texts
from flipmeter.show.page.origin import comparison_grid
from flipmeter.show.table import Cell, Column, Table
from flipmeter.show.view.folders import ChosenRuns
from flipmeter.stats.frame import distinct
from flipmeter.stats.residuals import same_raters
from flipmeter.types import JUDGED

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
        "pictures": _rate_pictures(runs, names, changed).html(),
        "grid": comparison_grid(differences(*runs)).html(),
        "changed": _changed_table(runs, names, shown).html(),
        "n_changed": len(shown),
        "contrasts": Menu.of("contrast", contrasts, contrast),
        "warnings": list(dict.fromkeys(warnings)),
    }


def _rate_pictures(runs: tuple[Run, Run], names: tuple[str, str], changed: pl.DataFrame) -> Table:
    """Both rates of everything that both runs judged, the largest change first."""
    frames = same_raters(runs[0].parts.decisions, runs[1].parts.decisions)
    sides = [
        _rename_verdict_raters(run, own).filter(pl.col("status").is_in(JUDGED))
        for run, own in zip(runs, frames, strict=True)
    ]
    shown = (*WHOSE, "value", "low", "high", "word")
    both = sides[0].select(shown).join(sides[1].select(shown), on=WHOSE, suffix="_2")
    both = both.sort((pl.col("value_2") - pl.col("value")).abs(), descending=True, nulls_last=True)
    known = [one for name in ("high", "high_2") for one in both[name] if one is not None]
    axis = axis_for(known, low=0.0)
    whole = pl.col("contrast").str.split(":").list.first()
    counted = changed.with_columns(whole).group_by(*WHOSE, "change").len().iter_rows()
    n_changed = {(*whose, change): n for *whose, change, n in counted}

    def only(change: str, row: Record) -> Cell:
        n = n_changed.get((*(row[name] for name in WHOSE), change), 0)
        query = urlencode({"first": names[0], "second": names[1], "contrast": row["contrast"]})
        link = Markup('<a href="/compare?{}#changed">{}</a>').format(query, f"{n:,}")
        return Cell(link, n, "num") if n else count(0)

    columns = [
        texts("contrast", kind="code"),
        *keyed(name for name in WHOSE[:3] if both[name].n_unique() > 1),
        Column(visible(names[0]), lambda row: _side_rate_cell(_side_values(row, ""))),
        Column(visible(names[1]), lambda row: _side_rate_cell(_side_values(row, "_2"))),
        Column("only 1st", partial(only, FIRST)),
        Column("only 2nd", partial(only, SECOND)),
        Column(scale(axis), partial(_spans_cell, axis)),
    ]
    how = (
        "Flip rates on readable pairs with 95 % intervals, each run on its own items: above the "
        "first run, below the second. Whether they differ is in the table of differences, on the "
        "items that both have. 'Only' counts link to the items that flip in one run only."
    )
    title, more = "Flip rates in both runs, largest change first", "flipmeter compare FIRST SECOND"
    notes = [*_unmatched_raters_note(frames, names), how]
    return page_table(title, columns, both.to_dicts(), notes, f"{more} --csv", kind="forest")


def _side_values(row: Record, end: str) -> dict[str, Any]:
    return {name: row[f"{name}{end}"] for name in ("value", "low", "high", "word")}


def _side_rate_cell(side: Record) -> Cell:
    return Cell(interval(side), side["value"], f"num word {side['word']}")


def _spans_cell(axis: Axis, row: Record) -> Cell:
    spans = [
        span(axis, (one["value"], one["low"], one["high"]), None, one["word"])
        for one in (_side_values(row, ""), _side_values(row, "_2"))
        if one["value"] is not None
    ]
    return Cell(Markup("").join(spans), None, "picture")


def _unmatched_raters_note(frames: Sequence[pl.LazyFrame], names: tuple[str, str]) -> list[str]:
    """The note on raters that only one of the runs has; none where both have the same."""
    raters = [[str(rater) for (rater,) in distinct(frame, "rater")] for frame in frames]
    both = [rater for rater in raters[0] if rater in raters[1]]
    parts = [
        f"{', '.join(only)} (only in {name})"
        for own, name in zip(raters, names, strict=True)
        if (only := [rater for rater in own if rater not in both])
    ]
    return [f"Compared: {', '.join(both)}. Not compared: {'; '.join(parts)}."] if parts else []


def _rename_verdict_raters(run: Run, renamed: pl.LazyFrame) -> pl.DataFrame:
    """The verdicts of a run with the names that its raters have in a comparison."""
    names = {own: name for name, own in own_names(run, renamed).items()}
    return run.verdicts.with_columns(pl.col("rater").replace(names))


def _changed_table(runs: tuple[Run, Run], names: tuple[str, str], changed: pl.DataFrame) -> Table:
    """The items that flip in one run only, each with a link to both runs."""
    some = changed.head(MOST_ITEMS)
    wanted = item_texts(runs[1]).filter(pl.col("item").is_in(some["item"].unique().to_list()))
    shown = wanted.select("dataset", "item", "text").pipe(collected).iter_rows()
    text_of = {(dataset, item): text for dataset, item, text in shown}

    def text(row: Record) -> Cell:
        told = text_of.get((row["dataset"], row["item"])) or f"item {row['item']}"
        return Cell(Markup("<bdi>{}</bdi>").format(excerpt(told, 90)), told[:90], "wrapped")

    columns = [
        Column("item", text),
        texts("contrast", kind="code"),
        Column("rater", lambda row: Cell(excerpt(row["rater"], 60), row["rater"], "wrapped")),
        *keyed(["level"]),
        counts("seed"),
        Column(visible(names[0]), partial(_answers_cell, runs[0], names[0], ("", "first"))),
        Column(visible(names[1]), partial(_answers_cell, runs[1], names[1], ("_second", "second"))),
        texts("change"),
    ]
    n_more = len(changed) - MOST_ITEMS
    notes = [f"{n_more:,} more are left out; choose a contrast."] if n_more > 0 else []
    title, kind = "Items that flip in one run only", "plain changed"
    return Table.of(title, columns, some.to_dicts(), notes=notes, kind=kind)


def _answers_cell(run: Run, name: str, ends: tuple[str, str], row: Record) -> Cell:
    """Both answers in one of the runs, and the way to their prompts."""
    end, rater = ends
    first, second = (
        class_name(run.scales, row["dataset"], row[f"{rank}{end}"]) for rank in ("rank", "rank_b")
    )
    told = f"{first} → {second}" if first != second else f"{first}, both"
    key = {name: row[name] for name in ("dataset", "level", "seed", "item", "contrast")}
    query = urlencode({"rater": row[f"rater_{rater}"], **key})
    return Cell(Markup('<a href="/run/{}/flip?{}">{}</a>').format(name, query, visible(told)), told)
