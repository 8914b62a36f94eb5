"""The verb measure: estimates, verdicts and aspects of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
import typer

from flipmeter.api import Run
from flipmeter.cli.consoles import say
from flipmeter.cli.options import (
    AsJson,
    RunsOrTable,
    ScaleOption,
    TableOut,
    WithinOption,
    open_run,
    spare,
    verb,
)
from flipmeter.cli.output import AsCsv, Output, heading, on_run, warning_lines
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.show.estimate_tables import aspect_notes, aspect_table
from flipmeter.show.gather import DETAILS, aspects_of
from flipmeter.stats.aspects import ASPECTS

app = verb()


@app.command()
def measure(
    folders: RunsOrTable,
    scale: ScaleOption = None,
    within: WithinOption = None,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="ASPECT",
            help="What to print: verdicts, scores, tokens or aspects (flipmeter list aspects), "
            "separated by commas; or all.",
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A CSV of costs for --show worst: gold by predicted class."
        ),
    ] = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Print verdicts and estimates of a run or a table of predictions; --show adds detail."""
    spare(out, *folders, costs)
    done = open_run(folders, scale, within)
    output = Output(out, as_json=as_json, as_csv=csv)
    if show is None:
        tables = {"estimates": done.estimates, "verdicts": done.verdicts}
        output.show(
            heading(done),
            tables,
            lambda: say(*done.tables()),
            rows=done.estimates,
            steps=on_run(done),
        )
    else:
        _show_details(done, _measure_tables(done, show, costs), output)


def _measure_tables(done: Run, names: str, costs: Path | None) -> dict[str, pl.DataFrame]:
    """The named details and aspects (comma-separated); `all` is every one."""
    known = [*DETAILS, *ASPECTS]
    wanted = known if names == "all" else [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise Problem(f"nothing to show named '{name}'{suggestion(name, known)}")
    aspects = [name for name in wanted if name not in DETAILS]
    try:
        # One comma-separated row per gold class, one column per prediction.
        matrix = None if costs is None else np.loadtxt(costs, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise Problem(f"cannot read costs from {costs}: {error}") from error
    found = aspects_of(done.source, aspects, matrix) if aspects else {}
    details = {name: DETAILS[name].rows(done.source) for name in wanted if name in DETAILS}
    return {name: (details | found)[name] for name in wanted}


def _show_details(done: Run, tables: dict[str, pl.DataFrame], output: Output) -> None:
    def people() -> None:
        for name, table in tables.items():
            if name in DETAILS:
                say("", *DETAILS[name].tables(done.source))
            elif table.is_empty():
                say("", f"{name}: needs {ASPECTS[name].needs}")
            else:
                say("", aspect_table(table, ASPECTS[name].about), *aspect_notes(table))
        say(*warning_lines(done))

    named = [table.select(pl.lit(name).alias("aspect"), pl.all()) for name, table in tables.items()]
    output.show(heading(done), tables, people, rows=pl.concat(named, how="diagonal"))
