"""Where a table goes: into a file, and to stdout for people or for a machine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from flipmeter.base.files.atomic import open_output, write_output
from flipmeter.report import safe_csv, write_table
from flipmeter.types import Problem

AsCsv = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")]


@dataclass(frozen=True)
class Output:
    """What the user asked for: a file, JSON or CSV; with neither JSON nor CSV, a page to read."""

    out: Path | None = None
    as_json: bool = False
    as_csv: bool = False

    def show(
        self,
        about: Mapping[str, Any],
        tables: Mapping[str, pl.DataFrame],
        people: Callable[[], None],
        *,
        rows: pl.DataFrame | None = None,
        write: Callable[[pl.DataFrame, Path], None] = write_table,
    ) -> None:
        """Write and print tables; `rows` is what a file gets where that is not the one table."""
        if rows is None:
            (rows,) = tables.values()
        if self.out is not None:
            write(rows, self.out)
        if self.as_json:
            content = {name: table.to_dicts() for name, table in tables.items()}
            print_json({**about, **content})
        elif self.as_csv:
            typer.echo(safe_csv(rows), nl=False)
        else:
            people()


def print_json(content: Any) -> None:
    """Print one JSON document; a number that is not finite becomes null, as JSON has no NaN."""
    typer.echo(json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, default=str))


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def write_text(text: str, out: Path) -> None:
    """Write a text file."""
    try:
        write_output(out, text)
    except OSError as error:
        raise Problem(f"cannot write {out} ({error.strerror or error}); name another") from error


def write_rows(table: pl.DataFrame, out: Path) -> None:
    """Write rows that are read again, as they are, by the ending of the name."""
    writers: dict[str, Callable[..., Any]] = {
        ".csv": table.write_csv,
        ".jsonl": table.write_ndjson,
        ".parquet": table.write_parquet,
    }
    if out.suffix not in writers:
        raise Problem(f"cannot write {out}: the name must end in {', '.join(writers)}")
    try:
        with open_output(out) as file:
            writers[out.suffix](file)
    except OSError as error:
        raise Problem(f"cannot write {out} ({error.strerror or error}); name another") from error
