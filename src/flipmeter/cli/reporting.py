"""The verb report: a run as one file for people."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import (
    DEFAULT_STORE,
    DataDir,
    RunOrTable,
    ScaleOption,
    StorePath,
    app,
    open_run,
)
from flipmeter.findings import gather
from flipmeter.model import open_stored
from flipmeter.report import check_ending, write_report


@app.command()
def report(
    folder: RunOrTable,
    scale: ScaleOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file: .html (RUN/report.html), .md, .tex; all estimates as .csv, .parquet.",
        ),
    ] = None,
    data_dir: DataDir = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Write a run as one self-contained HTML page; also Markdown, LaTeX, CSV, Parquet.

    Prompts are rebuilt from the study; what its data no longer give is read from the reply store.
    """
    run = open_run(folder, scale)
    path = out or (folder / "report.html" if folder.is_dir() else folder.with_suffix(".html"))
    check_ending(path)
    with open_stored(store) if store.is_file() else nullcontext() as replies:
        write_report(gather(run, replies, data_dir), path)
    typer.echo(f"report: {path}")
