"""Sheet -> terminal, Markdown, LaTeX, CSV and a grid of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from flipmeter.base.files.atomic import make_folder, write_output
from flipmeter.base.printed import WIDTH, Shown, plain_console
from flipmeter.paper.sheets.sheet import NOTHING, Sheet, SheetCell
from flipmeter.report.latex import (
    LATEX_HEAD,
    Block,
    escape_latex,
    latex_name,
    latex_stack,
    latex_tables,
)
from flipmeter.report.page.markup import Cell, Grid, RowGroup
from flipmeter.report.table_files import escape_markdown, safe_csv


def sheet_table(sheet: Sheet) -> Iterator[RenderableType]:
    """The sheet for a terminal, with its notes."""
    table = Table(*sheet.keys, *sheet.heads, title=sheet.title, title_justify="left")
    for row in sheet.rows:
        cells = ("\n".join(cell.lines()) or NOTHING for cell in row.cells)
        table.add_row(*map(Text, row.names), *map(Text, cells))
        table.add_section()
    yield table
    yield from (Text(note) for note in sheet.notes)


def sheet_text(sheet: Sheet) -> str:
    """The sheet as plain text."""
    console = plain_console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        for thing in sheet_table(sheet):
            console.print(Shown(thing))
    return captured.get()


def sheet_markdown(sheet: Sheet) -> str:
    """The sheet in Markdown, lines of a cell above each other."""
    rows = [[*sheet.keys, *sheet.heads], ["---"] * (len(sheet.keys) + len(sheet.heads))]
    for row in sheet.rows:
        cells = ("<br>".join(map(escape_markdown, cell.lines())) or NOTHING for cell in row.cells)
        rows.append([*map(escape_markdown, row.names), *cells])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "".join(f"- {escape_markdown(note)}\n" for note in sheet.notes)
    return f"### {escape_markdown(sheet.title)}\n\n{table}\n\n{notes}"


def sheet_latex(sheet: Sheet) -> str:
    """The sheet in LaTeX with booktabs, a block for each first name."""
    first, *others = sheet.keys
    heads = " & ".join(escape_latex(text) for text in (first, *others, *sheet.heads))
    columns = "l" * len(sheet.keys) + "c" * len(sheet.heads)
    blocks = (
        Block(
            [[*map(latex_name, row.names[1:]), *map(_latex_cell, row.cells)]],
            latex_name(row.names[0]),
        )
        for row in sheet.rows
    )
    notes = [f"% {' '.join(note.split())}" for note in (sheet.title, *sheet.notes)]
    return "\n".join([LATEX_HEAD, *notes, latex_tables(columns, [f"{heads} \\\\"], blocks), ""])


def _latex_cell(cell: SheetCell) -> str:
    lines = [escape_latex(line) for line in cell.lines()]
    return latex_stack(lines) if lines else escape_latex(NOTHING)


def sheet_grid(sheet: Sheet) -> Grid:
    """The sheet for a page."""
    rows = []
    for row in sheet.rows:
        cells = (
            (Markup("<br>").join(cell.lines()) or NOTHING, cell.measured) for cell in row.cells
        )
        rows.append([*map(Cell, row.names), *(Cell(text, sort, "num") for text, sort in cells)])
    return Grid(sheet.title, [*sheet.keys, *sheet.heads], [RowGroup(rows)], sheet.notes)


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
