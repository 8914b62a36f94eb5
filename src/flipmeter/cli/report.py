"""The verb report: a run as one file for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.options import RunsOrTable, ScaleOption, open_run, spare, verb
from flipmeter.report import check_ending

app = verb()


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
) -> None:
    """Write a run as one self-contained HTML page; also Markdown, LaTeX, CSV, Parquet."""
    first, *others = folders
    beside = first / "report.html" if first.is_dir() else first.with_suffix(".html")
    path = out or (Path("report.html") if others else beside)
    check_ending(path)
    spare(path, *folders)
    open_run(folders, scale).report(path)
    typer.echo(f"report: {path}")
