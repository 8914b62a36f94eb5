"""The verb report: a run as one file for people."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import DEFAULT_STORE, DataDir, RunFolders, StorePath, app
from flipmeter.findings import gather
from flipmeter.joining import joined
from flipmeter.model import open_stored
from flipmeter.report import check_ending, write_report
from flipmeter.runs import Run


@app.command()
def report(
    folders: RunFolders,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file: .html (RUN/report.html; of several runs report.html), .md, .tex; "
            "all estimates as .csv, .parquet.",
        ),
    ] = None,
    data_dir: DataDir = None,
    store: StorePath = DEFAULT_STORE,
) -> None:
    """Write a run as one self-contained HTML page; also Markdown, LaTeX, CSV, Parquet.

    Prompts are rebuilt from the study; what its data no longer give is read from the reply store.
    """
    first, *others = folders
    path = out or (Path() if others else first) / "report.html"
    check_ending(path)
    run = joined([Run(folder) for folder in folders])
    with open_stored(store) if store.is_file() else nullcontext() as replies:
        write_report(gather(run, replies, data_dir), path)
    typer.echo(f"report: {path}")
