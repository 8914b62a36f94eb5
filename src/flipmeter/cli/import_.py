"""The verb import: logs of other tools as a run folder or a table of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE, Run
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.bridge.logs import import_log, open_log
from flipmeter.bridge.other_tools import Named, is_of_other_tool, predictions_of
from flipmeter.cli.asking import print_run
from flipmeter.cli.consoles import INCOMPLETE, fail, say, warn
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    StorePath,
    classes_of,
    out_option,
    run_folder,
    spare,
    verb,
)
from flipmeter.cli.output import finish, on_file, on_run, say_next, write_rows
from flipmeter.data.labels import NOMINAL, parse_span, read_span
from flipmeter.errors import Problem
from flipmeter.run.prediction_rows import SWAPPED

app = verb()


@app.command("import")
def import_(
    log: Annotated[
        list[Path],
        typer.Argument(
            help="An Inspect log (.eval), promptfoo output (.json), lm-eval samples (.jsonl)."
        ),
    ],
    out: Annotated[
        Path | None,
        out_option("The run folder (default: runs/NAME) or table (default: LOG.csv)."),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="SCALE", help="What to find in replies: low,medium,high, or 0..10."),
    ] = None,
    item: Annotated[
        str | None,
        typer.Option("--item-var", metavar="NAME", help="promptfoo: the variable with item names."),
    ] = None,
    condition: Annotated[
        str | None,
        typer.Option(
            "--condition-var",
            metavar="NAME",
            help="promptfoo: the variable that differs between conditions; default: the prompt.",
        ),
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(
            "--gold-var", metavar="NAME", help="promptfoo: the variable with gold classes."
        ),
    ] = None,
    filter: Annotated[
        str | None,
        typer.Option("--filter", metavar="NAME", help="lm-eval: use the answers of this filter."),
    ] = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    partial: Annotated[
        bool, typer.Option("--partial", help="Count replies that the log lacks as errors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import the log of another tool; no model is asked.

    A flipmeter task in Inspect becomes a run folder. Outputs of promptfoo and samples of lm-eval
    become a table of predictions for measure and report.
    """
    others = [path for path in log if is_of_other_tool(path)]
    if others:
        if len(others) < len(log):
            raise Problem("cannot mix Inspect logs with others; import them one by one")
        _write_table(others, out, scale, Named(item, condition, gold, filter), as_json=as_json)
    elif len(log) > 1:
        raise Problem("cannot join several Inspect logs; import them one by one")
    else:
        _write_run(log[0], out, data_dir, store, partial, as_json=as_json)


def _write_table(
    logs: list[Path], out: Path | None, scale: str | None, named: Named, *, as_json: bool
) -> None:
    """Write the answers in logs as a table of predictions."""
    path = out or Path(f"{logs[0].stem}.csv")
    spare(path, *logs)
    span = read_span(parse_span(scale)) if scale else None
    classes = [name for name in classes_of(scale) if name != NOMINAL]
    table = predictions_of(logs, named, classes if span is None else span)
    write_rows(table, path)
    n_faults = table.filter(table["fault"] != "").height
    conditions = table["condition"].unique(maintain_order=True).to_list()
    if {one.casefold() for one in conditions} & {*SWAPPED}:
        warn(
            "under 'swapped' a label must name the answer, not its place: where the first answer "
            "shown is always A, exchange A and B in the rows of 'swapped' before you measure"
        )
    finish(
        {
            "table": str(path),
            "answers": table.height,
            "without_label": n_faults,
            "conditions": conditions,
        },
        f"{table.height:,} answers, {n_faults:,} without a label; conditions: "
        f"{', '.join(conditions)}",
        f"table: {path}",
        as_json=as_json,
        steps=[on_file("measure", path, *(("--scale", scale) if scale else ()))],
    )


def _write_run(
    log: Path,
    out: Path | None,
    data_dir: Path | None,
    store: Path,
    partial: bool,
    *,
    as_json: bool,
) -> None:
    """Make a run folder of the log of a flipmeter task in Inspect."""
    opened, ledger = open_log(log), Ledger()
    folder = run_folder(out, opened.study.name)
    with Store(store) as replies:
        done = import_log(
            opened, folder, replies, data_dir=data_dir, is_partial=partial, ledger=ledger
        )
    run = Run.of(done)
    if as_json:
        print_run(run, folder, on_run(run))
    else:
        say(*run.tables(), f"\nrun folder: {folder}")
        say_next(on_run(run))
    if ledger.failed:
        fail(
            f"{log} lacks {ledger.failed:,} of {ledger.wanted:,} replies; they count as errors",
            INCOMPLETE,
        )
