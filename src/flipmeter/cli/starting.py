"""The verbs before a study: init drafts one, data export gives a file to begin with."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import polars as pl
import typer

from flipmeter.cli.app import DataDir, app, spare, warn
from flipmeter.data import load
from flipmeter.study.draft import EMBEDDED, Ask, draft_study
from flipmeter.types import Problem

data = typer.Typer(help="Look after data: write a dataset as a file.", no_args_is_help=True)
app.add_typer(data, name="data")


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Labelled texts: .csv, .tsv, .jsonl, .parquet.")],
    text: Annotated[str | None, typer.Option(help="The column with the texts.")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the labels.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="The classes, lowest first: low,medium,high.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Who answers.")] = EMBEDDED,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The study file (FILE's name, .yaml).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the study file.")] = False,
) -> None:
    """Look at a file of labelled texts and write a study of it that runs as it is.

    What the file does not tell is asked on a terminal; elsewhere the error names the option.
    """
    path = out or Path(f"{file.stem}.yaml")
    spare(path, file)
    if path.exists() and not force:
        raise Problem(f"{path} is there already; name another with --out, or say --force")
    classes = None if scale is None else [part.strip() for part in scale.split(",")]
    draft = draft_study(
        file, path, text=text, label=label, scale=classes, model=model, ask=_asker()
    )
    try:
        path.write_text(draft.text, encoding="utf-8")
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror}); name another with --out") from error
    for note in draft.notes:
        warn(note)
    typer.echo(f"study: {path}  (read it: the comments say what to change)")
    typer.echo(f"next: flipmeter plan {quote(str(path))}")


def _asker() -> Ask | None:
    """Return what puts a question to the user, None where nobody would answer."""
    if not sys.stdin.isatty():
        return None
    return lambda question, proposed: str(typer.prompt(question, default=proposed, err=True))


@data.command("export")
def data_export(
    name: Annotated[str, typer.Argument(help="A dataset of the catalog: flipmeter list datasets.")],
    out: Annotated[Path, typer.Argument(help="The file to write (.csv, .jsonl, .parquet).")],
    text: Annotated[str, typer.Option(help="How to call the column with the texts.")] = "text",
    label: Annotated[str, typer.Option(help="How to call the column with the labels.")] = "label",
    data_dir: DataDir = None,
) -> None:
    """Write the test items of a dataset as a file like one of your own."""
    dataset = load(name, data_dir=data_dir)
    rows = [
        {"id": item.id, text: item.text, label: dataset.task.scale.name(item.gold)}
        for item in dataset.test
        if item.gold
    ]
    if len({"id", text, label}) < 3:
        raise Problem(f"the columns 'id', '{text}' and '{label}' need three different names")
    _write(pl.DataFrame(rows), out)
    typer.echo(f"{len(rows):,} items of {name}: {out}")


def _write(table: pl.DataFrame, out: Path) -> None:
    writers = {
        ".csv": lambda: table.write_csv(out),
        ".jsonl": lambda: table.write_ndjson(out),
        ".parquet": lambda: table.write_parquet(out),
    }
    if out.suffix not in writers:
        raise Problem(f"cannot write {out}: the name must end in {', '.join(writers)}")
    try:
        writers[out.suffix]()
    except OSError as error:
        raise Problem(f"cannot write {out} ({error.strerror or error}); name another") from error
