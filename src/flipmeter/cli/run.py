"""The verb run: ask what is missing, then measure."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import ask
from flipmeter.cli.options import (
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
        str | None, typer.Option(help="Stop as soon as a claim is settled: 'P1<0.10'.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Let Ray actors answer: ray, ray://HOST:PORT or ray:HOST:PORT."),
    ] = None,
    anyway: Annotated[
        bool, typer.Option(help="Ask raters whose first replies cannot be read all the same.")
    ] = False,
    out: Out = None,
    store: StorePath = STORE,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Ask what is missing, then measure. Stop and start as you like: nothing is asked twice."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    if until is not None:
        chosen = chosen.model_copy(update={"until": until})
    ask(chosen, out or Path("runs") / chosen.name, store, on=on, anyway=anyway)
