"""Residuals as files: Markdown, LaTeX, CSV and Parquet, by the file's ending."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from flipmeter.base.files.atomic import open_output, write_output
from flipmeter.base.printed import CONTROLS, without_controls
from flipmeter.report.latex import (
    LATEX_HEAD,
    Block,
    escape_latex,
    latex_name,
    latex_stack,
    latex_tables,
)
from flipmeter.report.residuals import (
    BETTER_UP,
    METRICS,
    Record,
    ResidualLine,
    ResidualTable,
    cell_text,
    lay_out,
    metric_title,
    points,
)
from flipmeter.types import Problem

FAINTEST, STRONGEST = 8, 80
"""The paper's shades: from 8 % for no difference to 80 % for the largest of the table."""


def write_table(
    table: pl.DataFrame,
    path: Path,
    texts: Mapping[str, Callable[[pl.DataFrame], str]] | None = None,
) -> None:
    """Write all rows of a table to a .csv or .parquet file, or as a text by the name's ending."""
    writers = {".csv": safe_csv, **(texts or {})}
    if path.suffix not in (*writers, ".parquet"):
        raise Problem(f"cannot write {path}: the name must end in {', '.join(writers)} or .parquet")
    try:
        if path.suffix == ".parquet":
            with open_output(path) as file:
                table.write_parquet(file)
        else:
            write_output(path, writers[path.suffix](table))
    except OSError as error:
        raise Problem(
            f"cannot write {path} ({error.strerror or error}); use another path"
        ) from error


def safe_csv(table: pl.DataFrame) -> str:
    """A table as CSV that neither a spreadsheet nor a terminal obeys.

    A text that would be run as a formula gets a quote, a control character becomes U+FFFD. Lists
    are written in one cell, with semicolons.
    """
    lists = [name for name, kind in table.schema.items() if isinstance(kind, pl.List)]
    table = table.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join("; "))
    plain = pl.col(pl.String).str.replace_all("\r\n", "\n", literal=True)
    table = table.with_columns(plain.str.replace_all(CONTROLS.pattern, "\ufffd"))
    text = pl.col(pl.String)
    is_formula = text.str.contains(r"^\s*[=+\-@\t\r\n]")
    return table.with_columns(
        pl.when(is_formula).then(pl.lit("'") + text).otherwise(text).name.keep()
    ).write_csv()


# --- Markdown ---------------------------------------------------------------------------------


def residuals_markdown(residuals: pl.DataFrame) -> str:
    """The table in Markdown, with its notes as a list."""
    layout = lay_out(residuals)
    titles = [escape_markdown(metric_title(metric)) for metric in layout.metrics]
    rows = [[*layout.columns, "dataset", *titles], ["---"] * (3 + len(titles))]
    factor = level = ""
    for line in layout.lines:
        if line.kind == "factor":
            factor = line.title
            continue
        level = line.title if line.kind == "level" else level
        names = (factor, level, "" if line.kind == "level" else line.title)
        rows.append([escape_markdown(text) for text in (*names, *line.texts())])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n" + "".join(f"- {escape_markdown(note)}\n" for note in layout.notes)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; the first is its head."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *([escape_markdown(text) for text in row] for row in body)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_markdown(text: str) -> str:
    """A text escaped for Markdown, on one line, without mentions."""
    line = without_controls(" ".join(text.split()))
    escaped = re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", line)
    return escaped.replace("@", "&#64;")


# --- LaTeX ------------------------------------------------------------------------------------


def residuals_latex(residuals: pl.DataFrame) -> str:
    """The table in LaTeX: booktabs, shaded by sign and size as in the paper."""
    layout = lay_out(residuals)
    first, second = layout.columns
    n_scores = sum(metric in METRICS for metric in layout.metrics)
    n_flips = len(layout.metrics) - n_scores
    groups = [(n_scores, "Performance residuals"), (n_flips, "Position-sensitivity residuals")]
    spans = "".join(f" & \\multicolumn{{{n}}}{{c}}{{{title}}}" for n, title in groups if n)
    titles = "".join(f" & {_latex_title(metric)}" for metric in layout.metrics)
    head = [f" &{spans} \\\\", f"{first.capitalize()} & {second.capitalize()}{titles} \\\\"]
    columns = f"ll{'c' * len(layout.metrics)}"
    notes = [f"% {' '.join(note.split())}" for note in layout.notes]
    return "\n".join([LATEX_HEAD + latex_tables(columns, head, _latex_blocks(layout)), *notes, ""])


def _latex_title(metric: str) -> str:
    arrow = r"$\uparrow$" if metric in BETTER_UP else r"$\downarrow$"
    return escape_latex(METRICS.get(metric, metric)) + arrow


def _latex_blocks(layout: ResidualTable) -> Iterator[Block]:
    """Yield a block for each level, with its spreads and its datasets."""
    largest = max((_size(row) for line in layout.lines for row in line.cells), default=0.0)
    factor, rows = "", list[list[str]]()
    for line in layout.lines:
        if line.kind in ("factor", "level") and rows:
            yield Block(rows, factor)
            rows = []
        if line.kind == "factor":
            factor = latex_name(line.title)
            continue
        cells = [_latex_cell(row, largest) for row in line.cells]
        rows.append([_latex_level(line), *(line.texts() if line.kind == "spread" else cells)])
    if rows:
        yield Block(rows, factor)


def _latex_level(line: ResidualLine) -> str:
    title = latex_name(line.title)
    return title if line.kind == "level" else f"\\quad\\textit{{{title}}}"


def _size(row: Record | None) -> float:
    return abs(row["value"]) if row is not None and row["value"] is not None else 0.0


def _latex_cell(row: Record | None, largest: float) -> str:
    if row is None:
        return ""
    if row["value"] is None:
        return r"\cellcolor{gray!20}" + escape_latex(cell_text(row))
    value, _, rest = cell_text(row).partition(" ")
    colour = "residualPositive" if row["value"] > 0 else "residualNegative"
    spread = rest.replace("±", r"\pm ")
    parts = [f"${value}$", *([f"{{\\scriptsize ${spread}$}}"] if spread else [])]
    shown = " ".join(parts) if row["mode"] == "paper" else latex_stack(parts)
    is_zero = points(row["value"]) == points(0.0)
    return shown if is_zero else f"\\cellcolor{{{colour}!{shade_of(row['value'], largest)}}}{shown}"


def shade_of(value: float, largest: float) -> int:
    """The strength of a cell's colour in percent, as the paper's tables have it."""
    part = abs(value) / largest if largest else 0.0
    return round(FAINTEST + (STRONGEST - FAINTEST) * part)
