"""Results that print as tables in a terminal and as HTML in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 160
"""Room for a table where nobody says how wide the screen is."""


class Printed:
    """Something with tables to show."""

    def tables(self) -> Iterable[RenderableType]:
        """The tables and lines that people read, in their order."""
        raise NotImplementedError

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=WIDTH, no_color=True)
        with console.capture() as text:
            for table in self.tables():
                console.print(table, highlight=False, markup=False)
        return text.get().rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(file=io.StringIO(), width=WIDTH, record=True)
        for table in self.tables():
            console.print(table, highlight=False, markup=False)
        code = '<pre style="line-height: 1.3; overflow-x: auto">{code}</pre>'
        return console.export_html(inline_styles=True, code_format=code)
