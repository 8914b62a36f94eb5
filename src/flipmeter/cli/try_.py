"""The verb try: a few items, and how each reply is read."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import INCOMPLETE, fail, say
from flipmeter.cli.options import (
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
from flipmeter.model import Ledger

app = verb()


@app.command()
def try_(
    study: StudyName,
    items: Annotated[int, typer.Option(help="How many items to ask.", min=1)] = 3,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Ask a few items under every view: each reply, the label as read, the class as meant."""
    chosen = study_of(study, changes, model, dataset, None, data_dir)
    with resumable(Ledger(), store):
        trial = chosen.try_out(items, store=store)
    if as_json:
        typer.echo(json.dumps([*trial.rows()], ensure_ascii=False, indent=1))
    else:
        say(*trial.tables())
    if trial.doubts:
        fail("replies make no sense as labels; see above", INCOMPLETE)
