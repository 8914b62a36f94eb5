"""The verbs of data: export gives a file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from flipmeter.cli.options import DataDir, verb
from flipmeter.cli.output import write_rows
from flipmeter.data import load
from flipmeter.types import Problem

app = verb()


@app.callback(no_args_is_help=True)
def data() -> None:
    """Look after data: write a dataset as a file."""


@app.command("export")
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
    write_rows(pl.DataFrame(rows), out)
    typer.echo(f"{len(rows):,} items of {name}: {out}")
