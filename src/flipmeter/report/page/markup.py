"""The cells of a page's tables: what stands in them, what they are sorted by, how they look."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from flipmeter.report.format import Record, interval, visible
from flipmeter.report.table import STRONGEST, Cell, shade_of, word
from flipmeter.report.table import Group as RowGroup
from flipmeter.report.table import Table as Grid

__all__ = ["Cell", "Grid", "Record", "RowGroup", "word"]

MOST_ROWS = 400
SHADES = 9


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
