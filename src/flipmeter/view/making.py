"""Run folders -> what takes long to make: the sections of a report, a comparison, one flip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
from markupsafe import Markup

from flipmeter.model import Store, open_stored
from flipmeter.report.findings import Flip, class_name
from flipmeter.report.page import environment, page_content
from flipmeter.report.page.compared import comparison_grid
from flipmeter.report.page.markup import Cell, Grid, Group, count
from flipmeter.report.page.texts import Piece, compare
from flipmeter.run.perform import CALLS, Run
from flipmeter.run.results.flipped_items import Opener, Row
from flipmeter.run.results.gather import differences, gather_numbers
from flipmeter.shown import Shown
from flipmeter.types import Contrast
from flipmeter.view.flip_pages import Flips, Wanted
from flipmeter.view.folders import Chosen


@dataclass(frozen=True)
class Sources:
    """Where texts and replies come from: the reply store, and the folder of the catalog's data."""

    store: Path
    data_dir: Path | None = None

    @contextmanager
    def replies(self) -> Iterator[Store | None]:
        with open_stored(self.store) if self.store.is_file() else nullcontext() as store:
            yield store


@dataclass(frozen=True)
class Report:
    """The sections of a report, ready to stand in a page."""

    title: str
    facts: str
    sections: Sequence[tuple[str, str]]
    html: Markup


def make_report(chosen: Chosen, sources: Sources) -> Report:
    """Measure a run and write all sections of its report; flips are looked at in pages."""
    run = chosen.run
    with sources.replies() as store:
        content = page_content(gather_numbers(run, Shown(run, store, sources.data_dir)))
    flips = Flips(chosen.run, chosen.stamp)  # kept, and what the report read is not
    everything = Wanted()
    html = (
        environment("flipmeter.view")
        .get_template("sections.html")
        .render(
            items="drill.html",
            run=chosen.name,
            filters=flips.filters(everything),
            n_flips=flips.n(everything),
            **content,
        )
    )
    return Report(content["name"], content["facts"], content["sections"], Markup(html))


@dataclass(frozen=True)
class Comparison:
    """Two runs, one subtracted from the other, and what a reader must know of both."""

    grid: Grid
    warnings: Sequence[tuple[str, str]]


def make_comparison(first: Chosen, second: Chosen) -> Comparison:
    """Subtract a run from another, item by item."""
    runs = first.run, second.run
    table = differences(*runs)
    warnings = [warning for run in runs for warning in run.warnings.items()]
    return Comparison(comparison_grid(table), list(dict.fromkeys(warnings)))


@dataclass(eq=False)
class Library:
    """Looks up texts and prompts of one run; the data are read once, by one at a time."""

    flips: Flips
    sources: Sources
    is_read: bool = False
    _shown: Shown = field(init=False)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._shown = Shown(self.run, None, self.sources.data_dir)

    @property
    def run(self) -> Run:
        return self.flips.run

    def read(self) -> None:
        """Read the data of the study, for texts and the names of classes."""
        with self._lock:
            self._shown.grid  # noqa: B018 - kept once it is read
        self.is_read = True

    def page(self, rows: Sequence[Row]) -> list[Flip]:
        """Return flips with their texts, without replies; with numbers until the data are read."""
        if not self.is_read:
            opener = Opener(self.flips.contrasts, self._shown, {})
            return [opener.flip(row, "") for row in rows]
        with self._lock:
            opener = Opener(self.flips.contrasts, self._shown, self._shown.scales)
            return [opener.flip(row, self._text(row, opener.contrast(row))) for row in rows]

    def _text(self, row: Row, contrast: Contrast) -> str:
        where = (row["rater"], row["dataset"], row["level"], row["seed"], contrast.views[0])
        item = self._shown.item(where, row["item"])
        return item.text if item is not None else ""

    def open(self, key: Mapping[str, Any]) -> Opened | None:
        """Return one flip with all there is to see, None if there is no such flip."""
        row = self.flips.row(key)
        if row is None:
            return None
        rows = pl.DataFrame([row])
        calls = self.run.scan(CALLS)
        with self._lock, self.sources.replies() as store:
            self._shown.store = store
            opener = Opener.of(rows, self.flips.contrasts, self._shown, self.flips.decisions, calls)
            text, a, b = opener.texts(row)
            self._shown.store = None
            is_known = a is not None and b is not None
            return Opened(
                opener.flip(row, text),
                opener.contrast(row).about,
                _sides(opener.contrast(row).views, a or "", b or "") if is_known else [],
                "" if is_known else f"The two prompts are not shown: {opener.trouble}.",
                self._views(key),
            )

    def _views(self, key: Mapping[str, Any]) -> Grid:
        rows = [
            [Cell(view, view, "code"), count(repeat), Cell(self._answer(key, rank, fault), rank)]
            for view, repeat, rank, fault in self.flips.views(key).iter_rows()
        ]
        title = "What the item was called under every view"
        return Grid(title, ["view", "repeat", "answer"], [Group(rows)])

    def _answer(self, key: Mapping[str, Any], rank: int, fault: str) -> str:
        if not rank:
            return f"no class ({fault})"
        return class_name(self._shown.scales, key["dataset"], rank)


@dataclass(frozen=True)
class Opened:
    """A flip with its two prompts, what differs between them marked, or why they are not there."""

    flip: Flip
    about: str
    prompts: Sequence[tuple[str, Sequence[Piece]]]
    trouble: str
    views: Grid


def _sides(views: Sequence[str], first: str, second: str) -> list[tuple[str, Sequence[Piece]]]:
    return list(zip(views, compare(first, second), strict=True))
