"""Sheet -> terminal, Markdown, LaTeX, CSV and a grid of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from flipmeter.base.files.atomic import make_folder, write_output
from flipmeter.base.printed import WIDTH, Shown, plain_console
from flipmeter.paper.sheets.sheet import NOTHING, Sheet
from flipmeter.report.table import (
    LATEX_HEAD,
    Cell,
    Column,
    Group,
    Table,
    escape_markdown,
    latex,
    markdown,
    safe_csv,
)


def sheet_tables(sheet: Sheet) -> Iterator[RenderableType]:
    """The sheet for a terminal, with its notes."""
    table = sheet_table(sheet)
    yield replace(table, groups=[Group([row]) for row in table.rows])
    yield from (Text(note) for note in sheet.notes)


def sheet_table(sheet: Sheet) -> Table:
    """The sheet as a table; lines of a cell stand above each other."""
    columns: list[Column | str] = [*(Column(key, is_name=True) for key in sheet.keys), *sheet.heads]
    rows = [
        [
            *(Cell(name) for name in row.names),
            *(Cell("\n".join(cell.lines()) or NOTHING, cell.measured, "num") for cell in row.cells),
        ]
        for row in sheet.rows
    ]
    return Table(sheet.title, columns, [Group(rows)], sheet.notes)


def sheet_text(sheet: Sheet) -> str:
    """The sheet as plain text."""
    console = plain_console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        for thing in sheet_tables(sheet):
            console.print(Shown(thing))
    return captured.get()


def sheet_markdown(sheet: Sheet) -> str:
    """The sheet in Markdown, lines of a cell above each other."""
    return f"### {escape_markdown(sheet.title)}\n\n{markdown(sheet_table(sheet), '<br>')}"


def sheet_latex(sheet: Sheet) -> str:
    """The sheet in LaTeX with booktabs, a block for each first name."""
    title = f"% {' '.join(sheet.title.split())}"
    return f"{LATEX_HEAD}{title}\n{latex(sheet_table(sheet))}\n"


WRITERS: dict[str, Callable[[Sheet], str]] = {
    ".txt": sheet_text,
    ".md": sheet_markdown,
    ".tex": sheet_latex,
    ".csv": lambda sheet: safe_csv(sheet.frame()),
}


def write_sheets(sheets: Sequence[Sheet], folder: Path) -> list[Path]:
    """Write every sheet in every form."""
    make_folder(folder)
    paths = []
    for sheet in sheets:
        for ending, write in WRITERS.items():
            path = folder / f"{sheet.file_name}{ending}"
            write_output(path, write(sheet))
            paths.append(path)
    return paths
