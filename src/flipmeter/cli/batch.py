"""The verbs of batch files: export what a study has to ask, import what came back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.consoles import warn
from flipmeter.cli.options import (
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    StorePath,
    StudyName,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.model import Store
from flipmeter.model.backends.batch import MOST_REQUESTS
from flipmeter.run.batch import export_batch, import_batch

app = verb()


@app.callback(no_args_is_help=True)
def batch() -> None:
    """Ask by batch files: half the price at vendors, or vllm run-batch on a cluster."""


@app.command("export")
def batch_export(
    study: StudyName,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder for the batch.")],
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    most: Annotated[
        int, typer.Option(help="Requests in one file, at most.", min=1, max=MOST_REQUESTS)
    ] = MOST_REQUESTS,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Write every request of a study that is not stored yet, once, in OpenAI's batch format."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    with Store(store) as replies:
        done = export_batch(chosen, out, replies, most_requests=most)
    for note in done.notes:
        warn(note)
    if not done.files:
        typer.echo(f"nothing is left to ask; next: flipmeter run {quote(study)}")
        return
    for file in done.files:
        size = f"{file.n_requests:,} requests, {file.n_bytes / 1e6:.1f} MB"
        typer.echo(f"{out / file.name}: {size} for {file.identity}, {file.url}")
    typer.echo(
        f"round {done.round}; put the results into {out}, then: flipmeter batch import "
        f"{quote(str(out))}"
    )


@app.command("import")
def batch_import(
    results: Annotated[
        list[Path], typer.Argument(help="The batch's folder, or its output and error files.")
    ],
    folder: Annotated[
        Path | None, typer.Option("--batch", help="The batch's folder, if the files lie elsewhere.")
    ] = None,
    store: StorePath = STORE,
) -> None:
    """Store the replies of a batch, as many as there are; import the rest when it comes."""
    with Store(store) as replies:
        done = import_batch(results, replies, folder)
    typer.echo(f"{done.n_new:,} new replies, {done.n_known:,} were stored before")
    for said, n in Counter(done.errors).most_common(3):
        warn(f"{n:,} failed: {said}")
    if done.n_left:
        typer.echo(f"{done.n_left:,} requests of the batch have no reply: flipmeter run asks them")
    typer.echo(
        "next: flipmeter batch export again (a pipeline may ask in rounds), or flipmeter run"
    )
