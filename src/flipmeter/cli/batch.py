"""The verbs of batches: export the requests of a study, and import the replies."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.ask.batch import MOST_REQUESTS
from flipmeter.ask.store import Store
from flipmeter.cli.consoles import warn
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    StorePath,
    StudyName,
    TrustCode,
    TrustHosts,
    out_option,
    study_of,
    verb,
)
from flipmeter.cli.output import finish, on_file, with_study
from flipmeter.run.batch import export_batch, import_batch

app = verb()


@app.callback(no_args_is_help=True)
def batch() -> None:
    """Use batch files: half the price at vendors, or vllm run-batch on a cluster."""


@app.command("export")
def batch_export(
    study: StudyName,
    out: Annotated[
        Path,
        out_option("A new folder for the batch."),
    ],
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    store: StorePath = STORE,
    max_requests: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Write at most this many requests to a file.",
            min=1,
            max=MOST_REQUESTS,
        ),
    ] = MOST_REQUESTS,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Write the requests of a study that are not stored yet, in each vendor's format."""
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    with Store(store) as replies:
        done = export_batch(chosen, out, replies, most_requests=max_requests)
    for note in done.notes:
        warn(note)
    lines = [
        f"{out / file.name}: {file.n_requests:,} requests, {file.n_bytes / 1e6:.1f} MB for "
        f"{file.identity}, {file.url}"
        for file in done.files
    ]
    last = f"round {done.round}; submit these with the vendor's client, put the results into {out}"
    finish(
        {"out": str(out), "round": done.round, "files": [asdict(one) for one in done.files]},
        *(lines or ["all replies are stored"]),
        *([last] if lines else []),
        as_json=as_json,
        steps=[on_file("batch import", out) if lines else with_study("run", study, "--limit")],
    )


@app.command("import")
def batch_import(
    results: Annotated[
        list[Path], typer.Argument(help="The batch folder, or its output and error files.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--batch", metavar="FOLDER", help="The batch folder of files from elsewhere."),
    ] = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
) -> None:
    """Store the replies of a batch; a partial batch can be imported again later."""
    with Store(store) as replies:
        done = import_batch(results, replies, folder)
    for said, n in Counter(done.errors).most_common(3):
        warn(f"{n:,} failed: {said}")
    left = [f"{done.n_left:,} requests of the batch have no reply yet"] if done.n_left else []
    finish(
        asdict(done),
        f"{done.n_new:,} new replies, {done.n_known:,} already stored",
        *left,
        "export again if the pipeline asks in rounds; flipmeter run sends what is missing",
        as_json=as_json,
    )
