"""Results that print as tables in a terminal and as HTML in a notebook."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

WIDTH = 160
"""Width of a table where the width of the screen is unknown."""


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


class Shown:
    """Something to print without the control characters that names, texts and replies may hold."""

    def __init__(self, thing: RenderableType) -> None:
        self.thing = thing

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.table import Table
        from rich.text import Text

        from flipmeter.base.fitted import GLUE, fitted, glued

        thing = self.thing
        if isinstance(thing, str):
            thing = glued(Text(thing))
        elif isinstance(thing, Table):
            thing = fitted(thing, console, options)
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
