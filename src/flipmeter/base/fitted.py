"""Tables that fit their terminal: narrower columns, then no lines, then stacked rows.

Nothing is cut off: a name may go on in the next line, a number and its interval stay whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Column, Table
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
    """The table itself where it fits; else with narrower columns, or with its rows stacked."""
    natural = Measurement.get(console, options.update(max_width=10_000), table).maximum
    if natural <= options.max_width or not table.columns:
        return table
    columns = [_texts(column, console, table.show_footer) for column in table.columns]
    cells = [one for one in columns if one is not None]
    if len(cells) < len(columns):
        return table
    wide = [max(text.cell_len for one in texts for text in one.split()) for texts in cells]
    narrow = [min(w, max(map(_unit, texts))) for w, texts in zip(wide, cells, strict=True)]
    room = options.max_width - (natural - sum(wide))
    bare = options.max_width - (len(wide) - 1)
    if sum(narrow) <= room:
        return _narrowed(table, cells, _shared(wide, narrow, room))
    if sum(narrow) <= bare:
        return _narrowed(table, cells, _shared(wide, narrow, bare), is_bare=True)
    return Group(*_stacked(table, cells, console, options.max_width))


def _texts(column: Column, console: Console, has_footer: bool) -> list[Text] | None:
    """The header, cells and footer of a column as texts; None if one of them is something else."""
    found = []
    for cell in (column.header, *column.cells, *([column.footer] if has_footer else [])):
        if not isinstance(cell, str | Text):
            return None
        text = console.render_str(cell) if isinstance(cell, str) else cell.copy()
        found.append(glued(text))
    return found


def glued(text: Text) -> Text:
    """The text with its numbers held together."""
    for gap in INSIDE.finditer(text.plain):
        plain = text.plain
        text.plain = plain[: gap.start()] + GLUE + plain[gap.end() :]
    return text


def _unit(text: Text) -> int:
    """The width of the longest part of a text that stays in one line."""
    words = re.split(r"[ \n]", text.plain)
    return max(len(word) if NUMBER.fullmatch(word) else min(len(word), LONGEST) for word in words)


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


def _narrowed(
    table: Table, cells: Sequence[Sequence[Text]], widths: Sequence[int], *, is_bare: bool = False
) -> Table:
    new = Table(
        title=table.title,
        caption=table.caption,
        box=None if is_bare else table.box,
        padding=(0, 1, 0, 0) if is_bare else table.padding,
        pad_edge=False if is_bare else table.pad_edge,
        show_header=table.show_header,
        show_footer=table.show_footer,
        show_edge=table.show_edge,
        show_lines=table.show_lines,
        header_style=table.header_style,
        title_justify=table.title_justify,
        caption_justify=table.caption_justify,
    )
    for column, texts, width in zip(table.columns, cells, widths, strict=True):
        new.add_column(
            texts[0],
            texts[-1] if table.show_footer else "",
            width=width,
            overflow="fold",
            justify=column.justify,
            style=column.style,
        )
    for row, *texts in zip(table.rows, *(one[1:] for one in cells), strict=False):
        new.add_row(*texts, style=row.style, end_section=row.end_section)
    return new


def _stacked(
    table: Table, cells: Sequence[Sequence[Text]], console: Console, width: int
) -> Iterator[RenderableType]:
    """Each row as lines: its first cell, then the others under it with their headings."""
    if table.title:
        yield Text.assemble((str(table.title), "italic"))
    heads = [texts[0] for texts in cells]
    for row in zip(*(one[1:] for one in cells), strict=True):
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
        yield table.caption if isinstance(table.caption, Text) else Text(str(table.caption))
