"""The verb import: logs of other tools as a run folder or a table of predictions."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.bridge.logs import import_log, open_log
from flipmeter.bridge.other_tools import Named, is_of_other_tool, predictions_of
from flipmeter.cli.consoles import INCOMPLETE, fail, say
from flipmeter.cli.options import DataDir, StorePath, spare, verb
from flipmeter.cli.output import write_rows
from flipmeter.model import Ledger, Store
from flipmeter.run.results.summary import summary
from flipmeter.types import Problem

app = verb()


@app.command("import")
def import_(
    log: Annotated[
        list[Path],
        typer.Argument(help="A log of Inspect (.eval); of promptfoo (.json), of lm-eval (.jsonl)."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run folder (runs/NAME); the table (LOG.csv)."),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Classes to look for in the replies of a table: a,b,c.")
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="promptfoo: the variable that names the item.")
    ] = None,
    condition: Annotated[
        str | None, typer.Option(help="promptfoo: the variable that is moved (else the prompt).")
    ] = None,
    gold: Annotated[
        str | None, typer.Option(help="promptfoo: the variable with the true class.")
    ] = None,
    filter: Annotated[
        str | None, typer.Option("--filter", help="lm-eval: which filter's answers.")
    ] = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    partial: Annotated[
        bool, typer.Option("--partial", help="Count what the log does not hold as errors.")
    ] = False,
) -> None:
    """Read the log of another tool; nobody is asked.

    A flipmeter task in Inspect becomes a run folder. Outputs of promptfoo and samples of lm-eval
    become a table of predictions, which measure and report read.
    """
    others = [path for path in log if is_of_other_tool(path)]
    if others:
        if len(others) < len(log):
            raise Problem("logs of Inspect and of other tools together; import them one by one")
        _write_table(others, out, scale, Named(item, condition, gold, filter))
    elif len(log) > 1:
        raise Problem("several logs of Inspect; import them one by one")
    else:
        _write_run(log[0], out, data_dir, store, partial)


def _write_table(logs: list[Path], out: Path | None, scale: str | None, named: Named) -> None:
    """Write the answers in some logs as a table of predictions."""
    path = out or Path(f"{logs[0].stem}.csv")
    spare(path, *logs)
    classes = [part.strip() for part in scale.split(",")] if scale else []
    table = predictions_of(logs, named, classes)
    write_rows(table, path)
    n_faults = table.filter(table["fault"] != "").height
    many = f"{table.height:,} answers, {n_faults:,} without a label"
    say(f"{many}; conditions: {', '.join(table['condition'].unique(maintain_order=True))}")
    said = f" --scale {quote(scale)}" if scale else ""
    say(f"table: {path}\nnext: flipmeter measure {quote(str(path))}{said}")


def _write_run(
    log: Path, out: Path | None, data_dir: Path | None, store: Path, partial: bool
) -> None:
    """Make a run folder of the log of a flipmeter task in Inspect."""
    opened, ledger = open_log(log), Ledger()
    folder = out or Path("runs") / opened.study.name
    with Store(store) as replies:
        done = import_log(
            opened, folder, replies, data_dir=data_dir, is_partial=partial, ledger=ledger
        )
    say(*summary(done))
    say(f"\nrun folder: {folder}")
    if ledger.failed:
        fail(
            f"{ledger.failed:,} of {ledger.wanted:,} replies are not in {log}; the tables count "
            "them as errors",
            INCOMPLETE,
        )
