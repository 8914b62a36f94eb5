"""The columns and cells of a page's tables: what stands in them, and what they are sorted by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from flipmeter.report.format import Record, interval, p_value, visible
from flipmeter.report.page.filters import NAMELESS
from flipmeter.report.table import STRONGEST, Cell, Column, Group, Table, shade_of

MOST_ROWS = 400
SHADES = 9
BASE: Mapping[str, str] = NAMELESS


def page_table(
    title: str,
    columns: Sequence[Column | str],
    rows: Sequence[Record],
    notes: Iterable[str] = (),
    more: str = "",
    **about: Any,
) -> Table:
    """A table of as many rows as a page should have, the worst first, and a note if not all."""
    notes = [*notes, *left_out(len(rows) - MOST_ROWS, "rows", more)]
    return Table.of(title, columns, rows[:MOST_ROWS], notes=notes, **about)


def groups_under(
    columns: Sequence[Column], groups: Iterable[tuple[str, Iterable[Record]]]
) -> list[Group]:
    """Rows under the title of their group."""
    return [
        Group([[column.cell(row) for column in columns] for row in rows], title)
        for title, rows in groups
    ]


def left_out(n: int, what: str, more: str) -> list[str]:
    """A note on the rows that a page leaves out, if there are any."""
    told = f"{n:,} more {what}, less severe than these, are left out; all of them: {more}"
    return [told] if n > 0 else []


# --- columns ----------------------------------------------------------------------------------


def texts(name: str, title: str | Markup = "", kind: str = "") -> Column:
    return Column(title or name, lambda row: Cell(str(row[name]), row[name], kind))


def keyed(keys: Iterable[str], nameless: Mapping[str, str] = BASE) -> list[Column]:
    """Columns of keys: a rater is shown by its model's name, no level as the base."""
    return [
        Column("model" if key == "rater" else key, partial(_key, key, nameless)) for key in keys
    ]


def _key(key: str, nameless: Mapping[str, str], row: Record) -> Cell:
    return Cell(str(row[key]) or nameless.get(key, ""), row[key])


def counts(name: str, title: str = "") -> Column:
    return Column(title or name, lambda row: count(row[name]))


def numbers(name: str, title: str, form: str = ".3f") -> Column:
    return Column(title, lambda row: number(row[name], form))


def p_values(name: str, title: str) -> Column:
    return Column(title, lambda row: Cell(p_value(row[name]), row[name], "num"))


# --- cells ------------------------------------------------------------------------------------


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


def beside(text: str, small: str, sort: float | None, kind: str = "num") -> Cell:
    """A number, and smaller what it must be read with."""
    return Cell(Markup('{} <small class="ends">{}</small>').format(text, small), sort, kind)


def shade(kind: str, value: float, largest: float) -> str:
    """The classes of a shade: its colour, and its strength from 1 to 9."""
    if not value:
        return ""
    return f"{kind} s{max(1, round(SHADES * shade_of(value, largest) / STRONGEST))}"
