"""The verb import: the log of another tool as a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.bridge.logs import import_log, open_log
from flipmeter.cli.consoles import INCOMPLETE, fail, say
from flipmeter.cli.options import DataDir, Out, StorePath, verb
from flipmeter.model import Ledger, Store
from flipmeter.run.results.summary import summary

app = verb()


@app.command("import")
def import_(
    log: Annotated[Path, typer.Argument(help="A log of Inspect: logs/NAME.eval.")],
    out: Out = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    partial: Annotated[
        bool, typer.Option("--partial", help="Count what the log does not hold as errors.")
    ] = False,
) -> None:
    """Make a run folder of the log of a flipmeter task in Inspect; nobody is asked."""
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
