"""Results to a file and to stdout: tables and lines for people, JSON or CSV for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer
from rich.console import RenderableType

from flipmeter.base.files.atomic import open_output, write_output
from flipmeter.base.files.parquet import collected, without_secrets
from flipmeter.base.printed import CONTROLS, without_controls
from flipmeter.cli.consoles import say
from flipmeter.types import Problem

if TYPE_CHECKING:
    from flipmeter.report.configurations import NextStep

AsCsv = Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")]


@dataclass(frozen=True)
class Output:
    """The output of results: a file, and stdout as JSON, CSV or tables."""

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
        write: Callable[[pl.DataFrame, Path], None] | None = None,
        steps: Sequence[NextStep] = (),
    ) -> None:
        """Write and print tables; `rows` is what a file gets where that is not the one table."""
        from flipmeter.report import safe_csv, write_table

        if rows is None:
            (rows,) = tables.values()
        if self.out is not None:
            (write or write_table)(rows, self.out)
        if self.as_json:
            content = {name: table.to_dicts() for name, table in tables.items()}
            print_json({**about, **content, **_next(steps)})
        elif self.as_csv:
            typer.echo(safe_csv(rows), nl=False)
        else:
            people()
            say_next(steps)


def finish(
    content: Mapping[str, Any],
    *lines: RenderableType,
    as_json: bool,
    steps: Sequence[NextStep] = (),
) -> None:
    """Print what a verb did: lines for people, or `content` as one JSON document."""
    if as_json:
        print_json({**content, **_next(steps)})
    else:
        for line in lines:
            if isinstance(line, str):
                typer.echo(without_controls(line))  # not folded: it may hold a path to copy
            else:
                say(line)
        say_next(steps)


def say_next(steps: Sequence[NextStep]) -> None:
    """Print the next commands, each in one line to copy."""
    for step in steps:
        if step.text:
            say(f"next: {step.text}")
        typer.echo(without_controls(f"  {step.command}" if step.text else f"next: {step.command}"))


def _next(steps: Sequence[NextStep]) -> dict[str, list[str]]:
    return {"next": [step.command for step in steps]} if steps else {}


def print_json(content: Any) -> None:
    """Print one JSON document; a number that is not finite becomes null, as JSON has no NaN."""
    text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, default=str)
    typer.echo(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _finite(content: Any) -> Any:
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextmanager
def _writable(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Problem(
            f"cannot write {out} ({error.strerror or error}); use another name"
        ) from error


def write_text(text: str, out: Path) -> None:
    """Write a text file."""
    with _writable(out):
        write_output(out, text)


def write_rows(table: pl.DataFrame, out: Path) -> None:
    """Write rows unchanged, in the format of the file's suffix."""
    writers: dict[str, Callable[..., Any]] = {
        ".csv": table.write_csv,
        ".jsonl": table.write_ndjson,
        ".parquet": table.write_parquet,
    }
    if out.suffix not in writers:
        raise Problem(f"cannot write {out}: the name must end in {', '.join(writers)}")
    table = collected(without_secrets(table.lazy()))
    with _writable(out), open_output(out) as file:
        writers[out.suffix](file)
