"""Streams that cannot fail, and results that print as tables or as HTML in a notebook.

Nothing of a table is cut off: a name may go on in the next line, while a number and its interval
stay whole.
"""

from __future__ import annotations

import io
import os
import re
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from flipmeter.redaction import Redacted

if TYPE_CHECKING:
    from rich.segment import Segment

WIDTH = 160
"""Width of a table where the width of the screen is unknown."""

PATIENCE = 1.0
"""Seconds for which a message waits for a reader that stands still; then it is dropped."""
PIECE = 4096
"""Bytes that a pipe takes at once when it takes any."""

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters, with which a name in a table could rewrite the screen."""


def without_controls(text: str) -> str:
    return CONTROLS.sub("", text)


def about_time(seconds: float) -> str:
    """A duration in the largest unit of which it has at least two."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{max(seconds, 1):.0f} s"


def plain_console(**options: Any) -> Console:
    """A console that prints names, texts and replies as they are: `[red]` is not a colour."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **options)


class Unfailing(io.FileIO):
    """A file that goes silent permanently at its first failure, so that output never ends work.

    If the reader stalls for longer than `patience`, output is dropped until it reads again.
    """

    def __init__(self, descriptor: int, patience: float | None) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        self._patience = self._wait = patience

    def write(self, content: Any, /) -> int:
        rest = memoryview(content).cast("B")
        n_bytes = len(rest)
        while rest and self.failure is None:
            try:
                if not select.select([], [self], [], self._wait)[1]:
                    self._wait = 0.0
                    break
                rest = rest[super().write(rest[:PIECE]) or 0 :]
                self._wait = self._patience
            except OSError as error:
                self.failure = error
        return n_bytes


def unfailing(stream: TextIO | None, patience: float | None = None) -> TextIO:
    """A stream to the same file that cannot fail; one without a file of its own is left alone."""
    if stream is None:
        return _open_null_stream()
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream.buffer, Unfailing):
        return stream
    try:
        file = Unfailing(stream.fileno(), patience)
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        file,  # without a buffer of bytes, as Python has it with -u: a signal may write meanwhile
        stream.encoding,
        "backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def guard_streams() -> None:
    """Make the streams of this process unfailing, and keep secrets out of them.

    The descriptors of closed ones are occupied.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Gets this number, the lowest free one; a store with it would contain the messages.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or _open_null_stream()
    sys.stdout = _guard_stream(sys.stdout)
    sys.stderr = _guard_stream(sys.stderr, PATIENCE)


def _guard_stream(stream: Any, patience: float | None = None) -> TextIO:
    if isinstance(stream, Redacted):
        return cast(TextIO, stream)
    return cast(TextIO, Redacted(unfailing(stream, patience)))


def _open_null_stream() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_RDWR), "r+", encoding="utf-8")


def unwritten() -> OSError | None:
    """The failure of stdout, None if all was written or its reader closed the pipe."""
    sys.stdout.flush()
    failure: OSError | None = getattr(getattr(sys.stdout, "raw", None), "failure", None)
    return None if isinstance(failure, ConnectionError) else failure


class Shown:
    """Something to print without the control characters that names, texts and replies may hold."""

    def __init__(self, thing: RenderableType) -> None:
        self.thing = thing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.text import Text

        thing = self.thing
        if isinstance(thing, str):
            thing = glued(Text(thing))
        for segment in console.render(thing, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=without_controls(segment.text.replace(GLUE, " ")))


class Printed:
    """Something with tables to show."""

    def tables(self) -> Iterable[RenderableType]:
        """The tables and lines that people read, in their order."""
        raise NotImplementedError

    def __str__(self) -> str:
        console = plain_console(file=io.StringIO(), width=WIDTH, no_color=True)
        with console.capture() as text:
            for table in self.tables():
                console.print(Shown(table))
        return text.get().rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        console = plain_console(file=io.StringIO(), width=WIDTH, record=True)
        for table in self.tables():
            console.print(Shown(table))
        code = '<pre style="line-height: 1.3; overflow-x: auto">{code}</pre>'
        return console.export_html(inline_styles=True, code_format=code)


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
    narrow = [
        min(w, max(map(_longest_unbroken_width, texts)))
        for w, texts in zip(wide, cells, strict=True)
    ]
    room = options.max_width - (natural - sum(wide))
    bare = options.max_width - (len(wide) - 1)
    if sum(narrow) > bare:
        return Group(*_stack_rows(table, cells, console, options.max_width))
    if sum(narrow) > room:
        table.box, table.padding, table.pad_edge, room = None, (0, 1, 0, 0), False, bare
    for column, width in zip(table.columns, _fit_widths(wide, narrow, room), strict=True):
        column.width, column.overflow, column.no_wrap = width, "fold", False
    return table


def glued(text: Text) -> Text:
    """The text with its numbers held together."""
    for gap in INSIDE.finditer(text.plain):
        plain = text.plain
        text.plain = plain[: gap.start()] + GLUE + plain[gap.end() :]
    return text


def _longest_unbroken_width(text: Text) -> int:
    """The width of the longest part of a text that stays in one line."""
    words = re.split(r"[ \n]", text.plain)
    return max(len(word) if NUMBER.fullmatch(word) else min(len(word), LONGEST) for word in words)


def _fit_widths(wide: Sequence[int], narrow: Sequence[int], room: int) -> list[int]:
    """Widths that fit: the widest column gives way first, none beyond its least."""
    widths = list(wide)
    while sum(widths) > room:
        widest = max(
            (place for place in range(len(widths)) if widths[place] > narrow[place]),
            key=lambda place: widths[place],
        )
        widths[widest] -= 1
    return widths


def _stack_rows(
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
