"""The verbs of batches: export the requests of a study, submit them, and bring the replies home."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flipmeter.api import STORE
from flipmeter.base.run_sync import wait_for
from flipmeter.cli.consoles import warn
from flipmeter.cli.exits import INCOMPLETE
from flipmeter.cli.next_commands import on_file, with_study
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
    study_of,
    verb,
    written,
)
from flipmeter.cli.output import finish
from flipmeter.model import Store
from flipmeter.model.batch.files import MOST_REQUESTS
from flipmeter.run.batch import Imported, export_batch, import_batch

if TYPE_CHECKING:
    from flipmeter.model.batch.jobs import FileJob
    from flipmeter.report.configurations import NextStep

BatchFolder = Annotated[
    Path, typer.Argument(callback=written, help="The folder of an exported batch.")
]
app = verb()


@app.callback(no_args_is_help=True)
def batch() -> None:
    """Use batch files: half the price at vendors, or vllm run-batch on a cluster."""


@app.command("export")
def batch_export(
    study: StudyName,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="PATH", callback=written, help="A new folder for the batch."
        ),
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
    by_hand = f"upload it yourself and put the result files into {out}"
    last = f"round {done.round}; submit it, or {by_hand}"
    finish(
        {"out": str(out), "round": done.round, "files": [asdict(one) for one in done.files]},
        *(lines or ["all replies are stored"]),
        *([last] if lines else []),
        as_json=as_json,
        steps=_after_export(out, [file.form for file in done.files])
        if lines
        else [with_study("run", study, "--limit")],
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
    finish(asdict(done), *_import_lines(done), as_json=as_json)


def _import_lines(done: Imported) -> list[str]:
    for said, n in Counter(done.errors).most_common(3):
        warn(f"{n:,} failed: {said}")
    lines = [f"{done.n_new:,} new replies, {done.n_known:,} already stored"]
    if done.n_left:
        lines.append(f"{done.n_left:,} requests of the batch have no reply yet")
    lines.append("export again if the pipeline asks in rounds; flipmeter run sends what is missing")
    return lines


def _after_export(out: Path, forms: Sequence[str]) -> list[NextStep]:
    from flipmeter.model.batch.jobs import VENDORS

    is_submitted = all(form in VENDORS for form in forms)
    return [on_file("batch submit" if is_submitted else "batch import", out)]


@app.command("submit")
def batch_submit(
    folder: BatchFolder,
    adopt: Annotated[
        str,
        typer.Option(
            "--adopt",
            metavar="ID",
            help="The vendor's ID of the batch whose submission got no answer.",
        ),
    ] = "",
    again: Annotated[
        bool,
        typer.Option("--again", help="Submit such a file again if the vendor does not list it."),
    ] = False,
    as_json: AsJson = False,
    trust_host: TrustHosts = None,
) -> None:
    """Submit the files of a batch to OpenAI or Anthropic, each once."""
    from flipmeter.model.batch.jobs import submit

    done = wait_for(submit(folder, adopt=adopt, is_forced=again))
    finish(
        _as_dict(done),
        *map(_job_line, done),
        as_json=as_json,
        steps=[on_file("batch status", folder)],
    )


@app.command("status")
def batch_status(
    folder: BatchFolder, as_json: AsJson = False, trust_host: TrustHosts = None
) -> None:
    """Show how far the submitted files of a batch are."""
    from flipmeter.model.batch.jobs import status

    found = wait_for(status(folder))
    finish(
        _as_dict(found),
        *map(_job_line, found),
        as_json=as_json,
        steps=[on_file("batch fetch", folder)],
    )


@app.command("fetch")
def batch_fetch(
    folder: BatchFolder,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust_host: TrustHosts = None,
) -> None:
    """Download the results of a batch and store its replies; exit 4 while some are missing."""
    from flipmeter.model.batch.jobs import fetch, unfinished

    found = wait_for(fetch(folder))
    done = None
    if any(one.job.is_fetched and one.state.n_done for one in found):
        with Store(store) as replies:
            done = import_batch([folder], replies)
    lines = [*map(_job_line, found), *(_import_lines(done) if done else [])]
    content = _as_dict(found) | {"imported": asdict(done) if done else None}
    finish(content, *lines, as_json=as_json)
    if unfinished(found):
        sys.exit(INCOMPLETE)


def _show(jobs: Sequence[FileJob], as_json: bool, step: NextStep) -> None:
    finish(_as_dict(jobs), *map(_job_line, jobs), as_json=as_json, steps=[step])


def _as_dict(jobs: Sequence[FileJob]) -> dict[str, Any]:
    rows = [
        {"file": one.file.name, "job": one.job.id, "is_new": one.is_new, **asdict(one.state)}
        for one in jobs
    ]
    return {"files": rows}


def _job_line(one: FileJob) -> str:
    state = one.state
    counts = f", {state.n_done:,} of {one.file.n_requests:,} answered" if one.job.id else ""
    failed = f", {state.n_failed:,} failed" if state.n_failed else ""
    said = f": {state.said}" if state.said else ""
    job = f" ({one.job.id})" if one.job.id else ""
    return f"{one.file.name}{job}: {state.word}{counts}{failed}{said}"
