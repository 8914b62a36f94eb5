"""Untrusted texts, cells, columns and filters of a page, safe to show."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from markupsafe import Markup

from flipmeter.show.findings import GAP, Findings
from flipmeter.show.format import Record, interval, p_value, visible
from flipmeter.show.table import STRONGEST, Cell, Column, Group, Table, shade_of

Kind = Literal["same", "differs", "gap"]
WORDS = re.compile(r"\s+|\w+|[^\w\s]")
LONGEST = 4_000
"""Number of characters of one text on a page."""
LONGEST_FRAME = 30_000
COMPARED = 400
"""Lines with more words than this are compared whole: matching words takes the square of them."""


@dataclass(frozen=True)
class Piece:
    """A part of a prompt: the same in both, different, or the gap for the text of an item."""

    kind: Kind
    text: str = ""


def clipped(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text too long for a page, and the number of missing characters."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} characters left out"


def hollowed(text: str, longest: int = LONGEST_FRAME) -> str:
    """Both ends of a prompt too long for a page: the query is at one of them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def excerpt(text: str, longest: int = 160) -> str:
    """A text on one line, cut at some length."""
    line = " ".join(visible(text[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def compare(first: str, second: str, labels: Sequence[str] = ()) -> tuple[list[Piece], list[Piece]]:
    """Mark what differs between two prompts: whole lines first, then words of lines that answer
    each other. A label counts as one word."""
    words = _words_and(labels)
    a, b = (hollowed(text).splitlines(keepends=True) for text in (first, second))
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i, j, k, m in _match_lines(a, b):
        if tag == "equal":
            left += _split_at_gaps("same", "".join(a[i:j]))
            right += _split_at_gaps("same", "".join(b[k:m]))
        elif j - i == m - k:
            for mine, theirs in zip(a[i:j], b[k:m], strict=True):
                left += _compare_words(mine, theirs, words)
                right += _compare_words(theirs, mine, words)
        else:
            left += _split_at_gaps("differs", "".join(a[i:j]))
            right += _split_at_gaps("differs", "".join(b[k:m]))
    return _merge_neighbours(left), _merge_neighbours(right)


def _match_lines(a: Sequence[str], b: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """The lines that answer each other: each in its place, unless less differs if some moved.

    Otherwise "Label: 2" of one demonstration would be matched with that of the next, and mark the
    text between them, which both prompts have.
    """
    found = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    if len(a) == len(b):
        moved = sum(len("".join(a[i:j])) for tag, i, j, *_ in found if tag != "equal")
        if sum(len(x) for x, y in zip(a, b, strict=True) if x != y) <= moved:
            return [
                ("equal" if a[n] == b[n] else "replace", n, n + 1, n, n + 1) for n in range(len(a))
            ]
    return found


def _words_and(labels: Sequence[str]) -> re.Pattern[str]:
    """The tokens of a line: "very negative" is one label, not two words."""
    longest = sorted({label for label in labels if label.strip()}, key=len, reverse=True)
    if not longest:
        return WORDS
    either = "|".join(re.escape(label) for label in longest)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)|{WORDS.pattern}", re.IGNORECASE)


def _compare_words(mine: str, theirs: str, words: re.Pattern[str]) -> Iterator[Piece]:
    own, other = words.findall(mine), words.findall(theirs)
    if max(len(own), len(other)) > COMPARED:
        yield from _split_at_gaps("differs", mine)
        return
    matcher = difflib.SequenceMatcher(None, own, other, autojunk=False)
    for tag, start, end, _, _ in matcher.get_opcodes():
        text = "".join(own[start:end])
        yield from _split_at_gaps("same" if tag == "equal" or not text.strip() else "differs", text)


def _split_at_gaps(kind: Kind, text: str) -> Iterator[Piece]:
    """Split a text at its gaps."""
    for place, part in enumerate(text.split(GAP)):
        if place:
            yield Piece("gap")
        if part:
            yield Piece(kind, part)


def _merge_neighbours(pieces: Sequence[Piece]) -> list[Piece]:
    """Put neighbours of one kind together."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.kind == found[-1].kind != "gap":
            found[-1] = Piece(piece.kind, found[-1].text + piece.text)
        else:
            found.append(piece)
    return found


TITLES = {
    "rater": "Model",
    "dataset": "Dataset",
    "level": "Level",
    "contrast": "Contrast",
    "towards": "Direction",
    "distance": "Distance",
    "fault": "Fault",
}
NAMELESS = {"level": "base", "fault": "none"}
"""The label of an empty value."""


def whole(contrast: str) -> str:
    """The contrast that a pair of views is of: P7 for "P7:rotated-1"."""
    return contrast.partition(":")[0]


def is_of(name: str, contrast: str) -> bool:
    """Whether a pair of views is what a filter by contrast names, or part of it."""
    return contrast in (name, whole(name))


@dataclass(frozen=True)
class Menu:
    """A choice over a list: its name in addresses, and the values with what they are called."""

    name: str
    title: str
    options: Sequence[tuple[str, str]]
    chosen: str = ""
    every: str = "all"

    @classmethod
    def of(cls, name: str, values: Iterable[str], chosen: str = "", **more: str) -> Menu:
        """A menu of a filter, whose values are their own names."""
        return cls(name, TITLES[name], [(one, one) for one in values], chosen, **more)

    @property
    def is_shown(self) -> bool:
        """Whether a choice would hide something, or has."""
        return len(self.options) > 1 or bool(self.chosen)


def choices(found: Findings) -> list[Menu]:
    """The filters over the flips of a page that would hide something."""
    flips = found.browser.flips
    named = ((name, values_of(name, (getattr(flip, name) for flip in flips))) for name in TITLES)
    menus = [Menu.of(name, map(visible, every)) for name, every in named]
    return [menu for menu in menus if menu.is_shown]


def values_of(attribute: str, every: Iterable[object]) -> list[str]:
    """The values to filter by, each once; an empty one that has no name is left out."""
    called = (str(value or NAMELESS.get(attribute, "")) for value in every)
    distinct = [value for value in dict.fromkeys(called) if value]
    if attribute == "contrast":
        # Pairs of views of one contrast ("P7:rotated-1") can be asked for together.
        distinct = list(dict.fromkeys(part for name in distinct for part in (whole(name), name)))
    if attribute == "distance":
        distinct.sort(key=float)
    return distinct


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
        Column("model" if key == "rater" else key, partial(_key_cell, key, nameless))
        for key in keys
    ]


def _key_cell(key: str, nameless: Mapping[str, str], row: Record) -> Cell:
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
