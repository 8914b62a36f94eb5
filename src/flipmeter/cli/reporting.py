"""The verb report: a run as one file for people."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.app import (
    DEFAULT_STORE,
    DataDir,
    RunsOrTable,
    ScaleOption,
    StorePath,
    app,
    open_run,
    spare,
)
from flipmeter.model import open_stored
from flipmeter.report import check_ending, write_report
from flipmeter.run.results.gather import gather


@app.command()
def report(
    folders: RunsOrTable,
    scale: ScaleOption = None,
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
    beside = first / "report.html" if first.is_dir() else first.with_suffix(".html")
    path = out or (Path("report.html") if others else beside)
    check_ending(path)
    spare(path, *folders)
    run = open_run(folders, scale)
    with open_stored(store) if store.is_file() else nullcontext() as replies:
        write_report(gather(run, replies, data_dir), path)
    typer.echo(f"report: {path}")
