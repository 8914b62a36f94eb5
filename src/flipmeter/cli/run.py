"""The verb run: send what is not stored, then measure."""

from __future__ import annotations

from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import ask
from flipmeter.cli.next_commands import on_run
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    Out,
    StorePath,
    StudyName,
    TrustCode,
    TrustHosts,
    run_folder,
    study_of,
    verb,
)

app = verb()


@app.command()
def run(
    study: StudyName,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="CLAIM", help="Stop as soon as a claim is settled: 'P1<0.10'."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="RAY", help="Ask on a Ray cluster: ray, ray://HOST:PORT or ray:HOST:PORT."
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Go on with raters whose first replies cannot be read."),
    ] = False,
    out: Out = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Send the requests that are not stored yet, then measure; stop and resume at any time."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    if until is not None:
        chosen = chosen.model_copy(update={"until": until})
    ask(
        chosen,
        run_folder(out, chosen.name),
        store,
        on=on,
        anyway=anyway,
        as_json=as_json,
        steps=lambda done: on_run(done, study),
    )
