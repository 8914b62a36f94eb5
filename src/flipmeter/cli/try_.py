"""The verb try: the replies to a few items, and how each is read."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import fail
from flipmeter.cli.exits import INCOMPLETE
from flipmeter.cli.next_commands import with_study
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Models,
    StorePath,
    StudyName,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.cli.output import finish
from flipmeter.model import Ledger

app = verb()


@app.command()
def try_(
    study: StudyName,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="Rate at most this many items.", min=1)
    ] = 3,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Ask a few items under every view and print each reply, its label and its class."""
    chosen = study_of(study, changes, model, dataset, None, data_dir)
    with resumable(Ledger(), store):
        trial = chosen.try_out(limit, store=store)
    doubts = [[*whose, why] for whose, why in trial.doubts.items()]
    finish(
        {"study": chosen.name, "replies": [*trial.rows()], "doubts": doubts},
        *([] if as_json else trial.tables()),
        as_json=as_json,
        steps=[] if trial.doubts else [with_study("plan", study)],
    )
    if trial.doubts:
        fail("some replies cannot be read as labels; see above", INCOMPLETE)
