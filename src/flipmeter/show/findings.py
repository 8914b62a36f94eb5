"""The content of a report: the noun between a run and its pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl
from markupsafe import Markup

from flipmeter.choose.select import Choice, NextStep
from flipmeter.parquet import collected
from flipmeter.show.headline import Headline
from flipmeter.show.pairs import WHOSE, PairTables, Where
from flipmeter.show.sentences import Sentence, finding_lines
from flipmeter.types import Contrast, Remark, Scale

GAP = "\ue000"
"""Stands in a frame where the text of an item belongs: a character that no text should have."""


@dataclass(frozen=True)
class Side:
    """One of the two answers of a flip: its view, the class or fault, the replies as they came.

    `probabilities` are by class, None where none were asked for.
    """

    view: str
    answer: str
    replies: tuple[str, ...] = ()
    probabilities: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True)
class Flip:
    """An item on which a rater did not agree with itself; `frame` is the place of its prompts."""

    rater: str
    dataset: str
    level: str
    seed: int
    contrast: str
    item: str
    text: str
    gold: str
    sides: tuple[Side, Side]
    distance: float | None
    towards: str
    fault: str
    frame: int | None = None


@dataclass(frozen=True)
class Frame:
    """Two prompts without the text of the item, which is a GAP: many items share them.

    `labels` are what differences are marked by.
    """

    title: str
    views: tuple[str, str]
    texts: tuple[str, str]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Browser:
    """The flipped items that are shown out of `n_flips`, and what had to be left out."""

    flips: Sequence[Flip] = ()
    frames: Sequence[Frame] = ()
    n_flips: int = 0
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class GridRow:
    """An item of the grid: its text, how often it flips, and a picture for every column."""

    key: tuple[str, str]
    text: str
    gold: str
    n_flips: int
    n_pairs: int
    n_unread: int
    pictures: Sequence[Markup]


@dataclass(frozen=True)
class GridPage:
    """A page of the grid; a column is a rater, or a level where there is one rater.

    `lines` are what stands above each other in a cell (as one bar, where `are_bars`), views what
    stands side by side; `notes` say what was left out.
    """

    rows: Sequence[GridRow]
    heads: Sequence[str]
    views: Sequence[str]
    lines: Sequence[str]
    are_bars: bool
    legends: Mapping[str, Sequence[tuple[Markup, str]]]
    n_items: int
    first: int
    n_pages: int
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Findings:
    """Everything that the reports of a run are made of; no text in it is trusted.

    `verdicts` are worst first; `words` are those of a headline, one for each of what it counts;
    `preferred` says which places of options draw answers; `slices` are column, contrast and rates.
    """

    name: str
    mode: str
    margin: float
    contrasts: tuple[Contrast, ...]
    scan: pl.LazyFrame
    tally: pl.DataFrame
    n_items: int
    estimates: pl.DataFrame
    verdicts: pl.DataFrame
    pairs: PairTables
    phase0: pl.DataFrame
    residuals: pl.DataFrame | None
    sentences: Sequence[Sentence]
    words: pl.DataFrame
    scales: Mapping[str, Scale]
    warnings: Mapping[str, Sequence[Remark]]
    notes: Sequence[str]
    stopped: str
    study: str
    environment: Mapping[str, Any]
    costs: Mapping[str, float]
    browser: Browser = field(default_factory=Browser)
    grid: GridPage | None = None
    slices: Sequence[tuple[str, str, pl.DataFrame]] = ()
    aspects: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    preferred: Sequence[str] = ()
    choices: Sequence[Choice] = ()
    next_steps: Sequence[NextStep] = ()
    unrated: Sequence[str] = ()

    @cached_property
    def decisions(self) -> pl.DataFrame:
        """All decisions, read when a section asks for them; `tally` counts them by condition."""
        return self.scan.pipe(collected)

    @property
    def headline(self) -> Headline:
        """The number of stable raters, the worst contrast, and the recommendation."""
        told = (self.sentences, self.choices, self.unrated)
        return Headline.of(self.words, self.verdicts, self.contrasts, *told)

    @cached_property
    def _places(self) -> dict[tuple[object, ...], int]:
        named = self.verdicts.select(*WHOSE).iter_rows()
        return {where: place for place, where in enumerate(named)}

    def severity(self, where: Where) -> int:
        """The place of a contrast among all, worst first; views of an open one share its place."""
        *whose, contrast = where
        return self._places.get((*whose, contrast.partition(":")[0]), len(self._places))

    @property
    def has_phase0(self) -> bool:
        """Whether anything was moved that the paper's first table has a column for."""
        return any(contrast.name in ("P1", "P2", "P3") for contrast in self.contrasts)

    @property
    def beside(self) -> list[str]:
        """The findings on the verdicts at the base."""
        return finding_lines(self.verdicts.filter(level=""))

    def class_name(self, dataset: str, rank: int) -> str:
        return class_name(self.scales, dataset, rank)


def class_name(scales: Mapping[str, Scale], dataset: str, rank: int) -> str:
    """A class by its name, a score by its number; a class by its rank where the data are gone."""
    scale = scales.get(dataset)
    is_known = scale is not None and 0 < rank <= scale.n_ranks
    return scale.name(rank) if scale is not None and is_known else f"class {rank}"
