"""Batch folder -> jobs at vendors: submit each file once, look at it, bring its results home."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from flipmeter.base.files.atomic import fresh, open_output
from flipmeter.base.files.lock import lock
from flipmeter.base.files.reading_limits import read_plain
from flipmeter.model.backends.backend import Retry
from flipmeter.model.backends.channel import Channel
from flipmeter.model.batch.files import BatchFile, batch_files, forms_in, read_batch, read_results
from flipmeter.model.batch.forms import FORMS
from flipmeter.model.batch.journal import Journal, Submission
from flipmeter.model.batch.vendors import (
    AnswerLost,
    AnthropicJobs,
    JobVendor,
    OpenAiJobs,
    State,
    age_of,
    pause_after,
)
from flipmeter.model.endpoints import keyed_endpoint, provider_of
from flipmeter.types import Model, Problem

VENDORS: Mapping[str, type[JobVendor]] = {"openai": OpenAiJobs, "anthropic": AnthropicJobs}
"""Vendors whose jobs can be submitted here, by form; files for others are uploaded by hand."""
LARGEST_RESULT = 4 * 2**30
LARGEST_FILE = 2**30
"""Vendors take 100 to 256 MB in a file."""
DOWNLOADS = 3
SETTLING = 30.0
"""Seconds after which a job that was created stands in its vendor's list."""


@dataclass(frozen=True)
class FileJob:
    """A file of a batch and its job: what is known here, and what its vendor says."""

    file: BatchFile
    job: Submission
    state: State = field(default_factory=lambda: State("not submitted"))
    is_new: bool = False


@asynccontextmanager
async def _opened(file: BatchFile, folder: Path) -> AsyncIterator[JobVendor]:
    """The vendor of a file, with its key."""
    vendor = VENDORS.get(file.form)
    if vendor is None:
        known = ", ".join(FORMS[name].vendor for name in VENDORS)
        raise Problem(
            f"{file.name} is for {FORMS[file.form].vendor}, whose batches are not submitted here "
            f"({known} are); submit it yourself, then: flipmeter batch import {folder}"
        )
    model = _model(file)
    wire = provider_of(model).wires["chat"]
    channel = Channel(keyed_endpoint(model), wire.auth)
    opened = vendor(channel, wire.headers(_params(file, folder)))
    try:
        yield opened
    finally:
        await opened.close()


def _model(file: BatchFile) -> Model:
    """The model of a file; a manifest is not trusted to send a key anywhere."""
    address, _, url = file.identity.partition(" at ")
    if not address.startswith(f"{file.form}/"):
        raise Problem(f"{file.name} has the format '{file.form}', for {address}; export it again")
    return Model(address, base_url=url or None)


def _params(file: BatchFile, folder: Path) -> str:
    """The fields of the requests of a file: they decide the version of an API."""
    known = read_batch(folder).values()
    return next((one.params for one in known if one.model == file.identity), "{}")


@asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """Be the only one who submits or fetches: two would pay twice."""
    handle = lock(folder)
    if handle is None:
        raise Problem(f"another process is submitting or fetching {folder}; wait until it is done")
    try:
        yield
    finally:
        os.close(handle)


# --- submit -----------------------------------------------------------------------------------


async def submit(folder: Path, *, adopt: str = "", is_forced: bool = False) -> list[FileJob]:
    """Submit every file of a batch that was not; what may have been is looked for first.

    `adopt` names the job of the one file whose fate is not known; forced, it is submitted again.
    """
    files = batch_files(folder)
    async with _alone(folder):
        journal = Journal(folder)
        open_ = [file.name for file in files if journal.of(file.name).is_open]
        if adopt:
            if len(open_) != 1:
                raise Problem(f"{len(open_)} files have no known job; --adopt needs exactly one")
            journal.note(open_[0], "submitted", job=adopt)
        return [await _submitted(file, folder, journal, is_forced) for file in files]


async def _submitted(file: BatchFile, folder: Path, journal: Journal, is_forced: bool) -> FileJob:
    known = journal.of(file.name)
    if known.id:
        return FileJob(file, known, State("submitted before"))
    content = _content(file, folder)
    async with _opened(file, folder) as vendor:
        if known.is_open and not is_forced and (found := await _found(file, vendor, journal)):
            journal.note(file.name, "submitted", job=found)
            return FileJob(file, journal.of(file.name), State("found at the vendor"))
        if not known.upload and (upload := await vendor.upload(file, content)):
            journal.note(file.name, "uploaded", upload=upload)
        journal.note(file.name, "submitting")
        try:
            job = await vendor.create(file, journal.of(file.name).upload, content)
        except AnswerLost as lost:
            raise Problem(
                f"{lost}: it is unknown whether {file.name} was submitted; run this command again "
                "in a minute, it looks for the batch before it submits"
            ) from None
        except Problem:
            journal.note(file.name, "refused")
            raise
        journal.note(file.name, "submitted", job=job)
    return FileJob(file, journal.of(file.name), State("submitted"), is_new=True)


async def _found(file: BatchFile, vendor: JobVendor, journal: Journal) -> str:
    """The job of a file that was sent and not heard of, "" if the vendor has none."""
    known = {job.id for job in journal.jobs.values()}
    found = [
        one for one in await vendor.find(file, journal.of(file.name).since) if one not in known
    ]
    if len(found) > 1:
        raise Problem(
            f"{file.name} was sent, the answer was lost, and the vendor has {len(found)} batches "
            f"that may be it: {', '.join(found[:5])}; find the right one, then add --adopt ID, "
            f"or --again if none is"
        )
    if not found and (left := SETTLING - age_of(journal.of(file.name).since)) > 0:
        raise Problem(
            f"{file.name} was sent a moment ago and its vendor does not list it yet; run this "
            f"command again in {left:.0f} s"
        )
    return found[0] if found else ""


def _content(file: BatchFile, folder: Path) -> bytes:
    path = folder / file.name
    try:
        content = read_plain(path, LARGEST_FILE)
    except OSError as error:
        raise Problem(
            f"{path} cannot be read ({error.strerror}); export the batch again"
        ) from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise Problem(f"{path} was changed since it was written; export the batch again")
    return content


# --- status and fetch -------------------------------------------------------------------------


async def status(folder: Path) -> list[FileJob]:
    """Every file of a batch with what its vendor says about its job."""
    journal = Journal(folder)
    return [await _looked(file, folder, journal) for file in batch_files(folder)]


async def _looked(file: BatchFile, folder: Path, journal: Journal) -> FileJob:
    known = journal.of(file.name)
    if known.is_fetched:
        return FileJob(file, known, State("fetched", is_ended=True, n_done=file.n_requests))
    if not known.id:
        word = "sent, and the answer was lost: submit again" if known.is_open else "not submitted"
        return FileJob(file, known, State(word))
    async with _opened(file, folder) as vendor:
        return FileJob(file, known, await vendor.state(known.id))


async def fetch(folder: Path) -> list[FileJob]:
    """Download the results of every job that has ended; they are checked before they are kept."""
    known, forms = read_batch(folder), forms_in(folder)
    found: list[FileJob] = []
    async with _alone(folder):
        journal = Journal(folder)
        for file in batch_files(folder):
            one = await _looked(file, folder, journal)
            if one.state.is_ended and not one.job.is_fetched:
                async with _opened(file, folder) as vendor:
                    for number, part in enumerate(one.state.parts, 1):
                        path = folder / f"results-{Path(file.name).stem}-{number}.jsonl"
                        with fresh(path, is_durable=True) as new:
                            await _download(vendor, part, new)
                            read_results([new], known, forms)
                journal.note(file.name, "fetched")
                one = FileJob(file, journal.of(file.name), one.state, is_new=True)
            found.append(one)
    return found


async def _download(vendor: JobVendor, part: str, path: Path) -> None:
    """Write a part of the results to a file; one that breaks off is begun again."""
    for attempt in range(DOWNLOADS):
        try:
            await _written(vendor, part, path)
            return
        except Retry as failure:
            if attempt == DOWNLOADS - 1:
                raise Problem(f"{failure}; fetch again later, nothing is lost") from None
            await asyncio.sleep(pause_after(attempt, failure.after))


async def _written(vendor: JobVendor, part: str, path: Path) -> None:
    n_bytes = 0
    with open_output(path) as file:
        async with vendor.results(part) as lines:
            async for line in lines:
                n_bytes += file.write(line + b"\n")
                if n_bytes > LARGEST_RESULT:
                    raise Problem(f"the results are longer than {LARGEST_RESULT} bytes")


def unfinished(jobs: Sequence[FileJob]) -> list[FileJob]:
    """The files whose results are not here."""
    return [one for one in jobs if not one.job.is_fetched]
