"""Run folders -> what takes long to make: the sections of a report, one flip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from flipmeter.report.findings import Flip, class_name
from flipmeter.report.page import CHART, environment, page_content
from flipmeter.report.page.markup import Cell, Grid, RowGroup, count
from flipmeter.report.page.texts import Piece, compare
from flipmeter.run.record.folder import Run
from flipmeter.run.results.flipped_items import NO_PROMPTS, Opener, cut_out
from flipmeter.ship.choices import findings
from flipmeter.view.flip_pages import Flips, Wanted
from flipmeter.view.folders import ChosenRuns


@dataclass(frozen=True)
class Report:
    """The sections of a report, ready to stand in a page."""

    title: str
    facts: str
    sections: Sequence[tuple[str, str]]
    html: Markup
    scripts: Sequence[str] = ()


def make_report(chosen: ChosenRuns) -> Report:
    """Measure a run and write all sections of its report; flips are looked at in pages."""
    content = page_content(findings(chosen.run, with_items=False))
    flips = Flips(chosen.run, chosen.stamp)  # kept, and what the report read is not
    everything = Wanted()
    html = (
        environment("flipmeter.view")
        .get_template("sections.html")
        .render(
            items="drill.html",
            flips_at=f"/run/{chosen.name}/flips",
            run=chosen.name,
            filters=flips.filters(everything),
            n_flips=flips.n(everything),
            **content,
        )
    )
    scripts = CHART if content["configurations"] else ()
    return Report(content["name"], content["facts"], content["sections"], Markup(html), scripts)


@dataclass(frozen=True)
class Library:
    """Looks up texts, prompts and replies of one run, of a page or of one flip at a time."""

    flips: Flips

    @property
    def run(self) -> Run:
        return self.flips.run

    def page(self, rows: pl.DataFrame) -> list[Flip]:
        """The flips of some rows with their texts, without replies."""
        opener = Opener.of_texts(rows, self.run)
        return [opener.flip(row, opener.texts(row)[0]) for row in rows.iter_rows(named=True)]

    def open(self, key: Mapping[str, Any]) -> Opened | None:
        """A pair of answers with all there is to see, None if there is no such pair."""
        row = self.flips.row(key)
        if row is None:
            return None
        opener = Opener.of(pl.DataFrame([row]), self.run)
        text, a, b = opener.texts(row)
        contrast, prompts = (
            opener.contrast(row),
            (a, b) if a is not None and b is not None else None,
        )
        marked = compare(*cut_out(*prompts, text), opener.labels(row["dataset"])) if prompts else ()
        return Opened(
            opener.flip(row, text),
            bool(row["is_flip"]),
            contrast.about,
            list(zip(contrast.views, marked, strict=True)) if prompts else [],
            prompts,
            "" if prompts else f"The two prompts are not shown: {NO_PROMPTS}.",
            self._views(key),
        )

    def _views(self, key: Mapping[str, Any]) -> Grid:
        rows = [
            [Cell(view, view, "code"), count(repeat), Cell(self._answer(key, rank, fault), rank)]
            for view, repeat, rank, fault in self.flips.views(key).iter_rows()
        ]
        title = "Answers under every view"
        return Grid(title, ["view", "repeat", "answer"], [RowGroup(rows)])

    def _answer(self, key: Mapping[str, Any], rank: int, fault: str) -> str:
        if not rank:
            return f"no class ({fault})"
        return class_name(self.run.scales, key["dataset"], rank)


@dataclass(frozen=True)
class Opened:
    """Two answers with their prompts, what differs between them marked, or why they are not there.

    In the prompts a gap stands for the text of the item; `sent` are the prompts as they were sent.
    """

    flip: Flip
    is_flip: bool
    about: str
    prompts: Sequence[tuple[str, Sequence[Piece]]]
    sent: tuple[str, str] | None
    trouble: str
    views: Grid
