"""Tables that fit their terminal: narrower columns, then no lines, then stacked rows.

Nothing is cut off: a name may go on in the next line, a number and its interval stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

GLUE = "\ue000"
"""Stands for a space at which no line may end; any that Unicode has is a gap to rich."""
INSIDE = re.compile(
    r"(?<=[\d%]) (?=%)|(?<=[\d%],) (?=[-−+\d])|(?<=[<=>±]) (?=[-\d])|(?<=\d) (?=[±<=>])"
)
"""The spaces inside a number: "21.0 %", "[16.2, 26.9]", "p < 0.001", "3 ± 1"."""
NUMBER = re.compile(r"[-−+\d.,%\[\]()<=>±/:\ue000]+")
LONGEST = 20
"""Characters of a word that stand in one line; a longer one may go on in the next."""


def fitted(table: Table, console: Console, options: ConsoleOptions) -> RenderableType:
    """A table of texts where it fits; else with narrower columns, or with its rows stacked."""
    natural = Measurement.get(console, options.update(max_width=10_000), table).maximum
    if natural <= options.max_width or not table.columns:
        return table
    cells = [
        [glued(cast(Text, cell)) for cell in (one.header, *one.cells, one.footer)]
        for one in table.columns
    ]
    wide = [max(text.cell_len for one in texts for text in one.split()) for texts in cells]
    narrow = [min(w, max(map(_unit, texts))) for w, texts in zip(wide, cells, strict=True)]
    room = options.max_width - (natural - sum(wide))
    bare = options.max_width - (len(wide) - 1)
    if sum(narrow) > bare:
        return Group(*_stacked(table, cells, console, options.max_width))
    if sum(narrow) > room:
        table.box, table.padding, table.pad_edge, room = None, (0, 1, 0, 0), False, bare
    for column, width in zip(table.columns, _shared(wide, narrow, room), strict=True):
        column.width, column.overflow, column.no_wrap = width, "fold", False
    return table


def glued(text: Text) -> Text:
    """The text with its numbers held together."""
    for gap in INSIDE.finditer(text.plain):
        plain = text.plain
        text.plain = plain[: gap.start()] + GLUE + plain[gap.end() :]
    return text


def _unit(text: Text) -> int:
    """The width of the longest part of a text that stays in one line."""
    return max(map(_kept, re.split(r"[ \n]", text.plain)), default=1)


def _kept(word: str) -> int:
    return len(word) if NUMBER.fullmatch(word) else min(len(word), LONGEST)


def _shared(wide: Sequence[int], narrow: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest column gives way first, none beyond its least."""
    widths = list(wide)
    while sum(widths) > room:
        widest = max(
            (place for place in range(len(widths)) if widths[place] > narrow[place]),
            key=lambda place: widths[place],
        )
        widths[widest] -= 1
    return widths


def _stacked(
    table: Table, cells: Sequence[Sequence[Text]], console: Console, width: int
) -> Iterator[RenderableType]:
    """Each row as lines: its first cell, then the others under it with their headings."""
    if table.title:
        yield Text(str(table.title), style="italic")
    heads = [texts[0] for texts in cells]
    for row in zip(*(one[1 : len(one) - (not table.show_footer)] for one in cells), strict=True):
        first, *others = zip(heads, row, strict=True)
        yield first[1]
        told = [
            Text.assemble(head, ": " if head.plain.strip() else "", text)
            for head, text in others
            if text.plain.strip()
        ]
        for line in Text("; ").join(told).wrap(console, width - 2, overflow="fold"):
            line.rstrip()
            yield Text.assemble("  ", line)
    if table.caption:
        yield table.caption
