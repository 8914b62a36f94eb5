"""The verb report: a run as one file to read or share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.options import (
    AsJson,
    RunsOrTable,
    ScaleOption,
    WithinOption,
    open_run,
    out_option,
    spare,
    verb,
)
from flipmeter.cli.output import finish, on_run
from flipmeter.files import inside
from flipmeter.show.whole import check_ending

app = verb()


@app.command()
def report(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    within: WithinOption = None,
    out: Annotated[
        Path | None,
        out_option(
            "The file: .html, .md, .tex, or all estimates as .csv, .parquet; default: "
            "RUN/report.html, or report.html for several runs."
        ),
    ] = None,
    greedy: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="A greedy run of the same raters: its verdicts, and P1, P2 and P3 of the first "
            "table, next to those of RUN.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained HTML page about a run; also Markdown, LaTeX, CSV, Parquet."""
    first, *others = folders
    beside = first / "report.html" if first.is_dir() else first.with_suffix(".html")
    path = out or inside(Path("report.html") if others else beside)
    check_ending(path)
    spare(path, *folders, greedy)
    other = None if greedy is None else open_run([greedy])
    done = open_run(folders, scale, within)
    done.report(path, greedy=other)
    finish({"report": str(path)}, f"report: {path}", as_json=as_json, steps=on_run(done))
