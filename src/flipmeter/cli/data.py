"""The verbs of data: export a dataset of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from flipmeter.cli.next_commands import on_file
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    verb,
    written,
)
from flipmeter.cli.output import finish, write_rows
from flipmeter.data import load
from flipmeter.types import Problem

app = verb()


@app.callback(no_args_is_help=True)
def data() -> None:
    """Export datasets of the catalog."""


@app.command("export")
def data_export(
    name: Annotated[str, typer.Argument(help="A dataset of the catalog: flipmeter list datasets.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            callback=written,
            help="The file: .csv, .jsonl or .parquet.",
        ),
    ],
    text: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column with the texts.")
    ] = "text",
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column with the labels.")
    ] = "label",
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write the test items of a dataset to a file, as if it were your own data."""
    dataset = load(name, data_dir=data_dir)
    rows = [
        {"id": item.id, text: item.text, label: dataset.task.scale.name(item.gold)}
        for item in dataset.test
        if item.gold
    ]
    if len({"id", text, label}) < 3:
        raise Problem(f"the columns 'id', '{text}' and '{label}' need three different names")
    write_rows(pl.DataFrame(rows), out)
    finish(
        {"dataset": name, "items": len(rows), "out": str(out)},
        f"{len(rows):,} items of {name}: {out}",
        as_json=as_json,
        steps=[on_file("init", out)],
    )
