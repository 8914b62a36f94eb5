"""The cells of a page's tables: what stands in them, what they are sorted by, how they look."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from flipmeter.report.estimate_tables import interval
from flipmeter.report.page.texts import visible
from flipmeter.report.table_files import STRONGEST, shade_of

Record = Mapping[str, Any]
MOST_ROWS = 400
TALL = 30
SHADES = 9


@dataclass(frozen=True)
class Cell:
    """A table cell: its content, sort key, style, and the items it links to."""

    text: str | Markup = ""
    sort: float | str | None = None
    kind: str = ""
    query: str = ""


@dataclass(frozen=True)
class RowGroup:
    rows: Sequence[Sequence[Cell]]
    title: str = ""


@dataclass(frozen=True)
class Grid:
    """A table: its heads, its rows in groups, how they were made, and what was left out.

    `kind` names how it looks; plain ones and the forest can be sorted.
    """

    title: str
    heads: Sequence[str | Markup]
    groups: Sequence[RowGroup]
    notes: Sequence[str] = ()
    kind: str = "plain"
    is_detail: bool = False

    @property
    def is_folded(self) -> bool:
        """Say whether the table is there to be opened: a detail, or one that goes on and on."""
        return self.is_detail or (self.n_rows > TALL and self.kind == "plain")

    @property
    def is_tall(self) -> bool:
        """Whether the table scrolls in a frame of its own: one that nearly fits never does."""
        return self.n_rows > TALL or (self.kind == "matrix" and self.n_rows > TALL // 2)

    @property
    def stacks(self) -> bool:
        """Whether cells stand under each other in a narrow window, each with its head."""
        return self.kind in ("matrix", "forest")

    @property
    def n_rows(self) -> int:
        return sum(len(group.rows) for group in self.groups)


def breakable(text: str) -> Markup:
    """A name that may be broken behind its signs, so that no word of it is."""
    parts = re.split(r"(?<=[,=?&·])", visible(text))
    return Markup("<wbr>").join(parts)


def number(value: float | None, form: str = ".3f") -> Cell:
    return Cell("", None, "num") if value is None else Cell(f"{value:{form}}", value, "num")


def count(value: int | None) -> Cell:
    return Cell("" if value is None else f"{value:,}", value, "num")


def rate(row: Record) -> Cell:
    """A share with its interval, or the reason why there is none."""
    return Cell(interval(row), row["value"], "num" if row["value"] is not None else "why")


def word(text: str) -> Cell:
    """A verdict."""
    return Cell(text, text, f"word {text}" if text else "")


def capped(rows: Sequence[Sequence[Cell]], more: str) -> tuple[Sequence[Sequence[Cell]], list[str]]:
    """As many rows as a page should have, and a note if that is not all; the worst come first."""
    if len(rows) <= MOST_ROWS:
        return rows, []
    return rows[:MOST_ROWS], [left_out(len(rows) - MOST_ROWS, "rows", more)]


def left_out(n: int, what: str, more: str) -> str:
    """A note on the rows that a page leaves out."""
    return f"{n:,} more {what}, less severe than these, are left out; all of them: {more}"


def shade(kind: str, value: float, largest: float) -> str:
    """The classes of a shade: its colour, and its strength from 1 to 9."""
    if not value:
        return ""
    return f"{kind} s{max(1, round(SHADES * shade_of(value, largest) / STRONGEST))}"


def heads(keys: Sequence[str]) -> list[str]:
    """The titles of key columns: a rater is shown by its model's name."""
    return ["model" if key == "rater" else key for key in keys]
