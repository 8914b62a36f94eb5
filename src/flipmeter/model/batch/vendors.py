"""Batch jobs as OpenAI and Anthropic run them: create, look for, look at, and get the results."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import aiohttp

from flipmeter.model.backends.backend import Retry
from flipmeter.model.backends.channel import Channel, Unreachable
from flipmeter.model.backends.response import Trouble, clean_name, decoded, told_pause, trouble_in
from flipmeter.model.batch.files import BatchFile
from flipmeter.types import Problem

ATTEMPTS = 6
PATIENCE = 300.0
"""The longest pause that is waited for, in seconds."""
CROWDED = {429, 529}
"""Too much at a time, and not taken: it may be sent again."""
PAGES, PAGE = 20, 100
CLOCKS = timedelta(minutes=5)
"""Largest lag of the vendor's clock behind ours."""
_ID = re.compile(r"[\w.-]{1,200}")


class AnswerLost(Exception):
    """A job may have been created: the answer is not known."""


@dataclass(frozen=True)
class State:
    """A job as its vendor describes it; one that `is_ended` has results, maybe not for all."""

    word: str
    is_ended: bool = False
    n_done: int = 0
    n_failed: int = 0
    parts: tuple[str, ...] = ()
    said: str = ""


class JobVendor(ABC):
    """One vendor's batch API behind a channel."""

    def __init__(self, channel: Channel, headers: Mapping[str, str]) -> None:
        self._channel = channel
        self._headers = headers

    @abstractmethod
    async def create(self, file: BatchFile, upload: str, content: bytes) -> str:
        """Create a job for a file and return its id; AnswerLost if that is not known."""

    @abstractmethod
    async def find(self, file: BatchFile, since: str) -> list[str]:
        """The ids of jobs that may be the one of a file that was sent at a time."""

    @abstractmethod
    async def state(self, job: str) -> State: ...

    async def upload(self, file: BatchFile, content: bytes) -> str:
        """Send a file ahead of its job, "" where there is nothing to send."""
        return ""

    @asynccontextmanager
    async def results(self, part: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a part of the results; what may pass is a Retry."""
        async with self._channel.lines(part, self._headers) as (status, headers, lines):
            if status != 200:
                trouble = _trouble(status, b"".join([line async for line in lines]))
                if status in CROWDED or status >= 500:
                    raise Retry(self._channel.said(trouble), self._told(headers, trouble))
                raise self._problem(trouble, headers)
            yield lines

    async def close(self) -> None:
        await self._channel.close()

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._call("GET", path, lambda: None)

    async def _call(
        self, method: str, path: str, body: Callable[[], aiohttp.FormData | None]
    ) -> dict[str, Any]:
        """An answer to what may be asked again; pauses that the vendor asks for are kept."""
        for attempt in range(ATTEMPTS):
            is_last = attempt == ATTEMPTS - 1
            try:
                status, headers, content = await self._channel.send(
                    method, path, body(), self._headers, is_long=method == "POST"
                )
            except Retry as failure:
                if is_last:
                    raise Problem(f"{failure}; try again later, nothing is lost") from None
                await asyncio.sleep(pause_after(attempt, failure.after))
                continue
            if status // 100 == 2:
                return decoded(content)
            trouble = _trouble(status, content)
            if is_last or not (status in CROWDED or status >= 500):
                raise self._problem(trouble, headers)
            await asyncio.sleep(pause_after(attempt, self._told(headers, trouble)))
        raise AssertionError("the last attempt returns or raises")

    async def _create(self, path: str, body: bytes) -> str:
        """The id of a job that is created here; a request that broke off is never sent twice."""
        for attempt in range(ATTEMPTS):
            try:
                status, headers, content = await self._channel.send(
                    "POST", path, body, self._headers, is_long=True
                )
            except Unreachable as failure:
                raise Problem(f"{failure}; nothing was submitted") from None
            except Retry as failure:
                raise AnswerLost(str(failure)) from None
            if status // 100 == 2:
                return self._id_in(content)
            trouble = _trouble(status, content)
            if status not in CROWDED and status >= 500:
                raise AnswerLost(self._channel.said(trouble))
            if status not in CROWDED or attempt == ATTEMPTS - 1:
                raise self._problem(trouble, headers)
            await asyncio.sleep(pause_after(attempt, self._told(headers, trouble)))
        raise AssertionError("the last attempt returns or raises")

    def _id_in(self, content: bytes) -> str:
        """The id in an answer; without one it is not known what was created."""
        found = decoded(content).get("id")
        if not isinstance(found, str) or not _ID.fullmatch(found):
            raise AnswerLost(f"{self._channel.endpoint.base_url}: the answer contains no batch ID")
        return found

    def _told(self, headers: Mapping[str, str], trouble: Trouble) -> float | None:
        told = told_pause(headers)
        if (told or 0.0) > PATIENCE:
            raise Problem(
                f"{self._channel.said(trouble)}; it requests a pause of {told:g} s: try again "
                "after that, nothing is lost"
            )
        return told

    def _problem(self, trouble: Trouble, headers: Mapping[str, str]) -> Problem:
        said = self._channel.said(
            Trouble(trouble.status, self._channel.without_key(trouble.message), trouble.kinds)
        )
        is_known = trouble.status < 400 or trouble.status in (401, 402, 403)
        return Problem(f"{said}; {self._channel.remedy(trouble, headers)}" if is_known else said)


class OpenAiJobs(JobVendor):
    """OpenAI's batches: a file is uploaded, then a batch is created from it.

    The batch carries the file's digest, by which it is found again.
    """

    async def upload(self, file: BatchFile, content: bytes) -> str:
        def form() -> aiohttp.FormData:
            fields = aiohttp.FormData()
            fields.add_field("purpose", "batch")
            kind = "application/jsonl"
            fields.add_field("file", content, filename=file.name, content_type=kind)
            return fields

        answer = await self._call("POST", "/files", form)
        found = answer.get("id")
        if not isinstance(found, str) or not _ID.fullmatch(found):
            raise Problem(
                f"{self._channel.endpoint.base_url} took {file.name} but returned no file ID"
            )
        return found

    async def create(self, file: BatchFile, upload: str, content: bytes) -> str:
        body = {
            "input_file_id": upload,
            "endpoint": file.url,
            "completion_window": "24h",
            "metadata": {"flipmeter": file.sha256},
        }
        return await self._create("/batches", json.dumps(body).encode())

    async def find(self, file: BatchFile, since: str) -> list[str]:
        found, after = list[str](), ""
        for _ in range(PAGES):
            page = await self._get(f"/batches?limit={PAGE}{after}")
            rows = _rows(page)
            found += [_name(row) for row in rows if _metadata(row) == file.sha256]
            if not page.get("has_more") or not rows:
                break
            after = f"&after={quote(_name(rows[-1]))}"
        return found

    async def state(self, job: str) -> State:
        row = await self._get(f"/batches/{quote(job)}")
        word, counts = clean_name(row.get("status")), row.get("request_counts")
        parts = [row.get(name) for name in ("output_file_id", "error_file_id")]
        named = [one for one in parts if isinstance(one, str) and _ID.fullmatch(one)]
        return State(
            word,
            word in ("completed", "expired", "cancelled", "failed"),
            _count(counts, "completed"),
            _count(counts, "failed"),
            tuple(f"/files/{quote(one)}/content" for one in named),
            _errors(row.get("errors")),
        )


class AnthropicJobs(JobVendor):
    """Anthropic's message batches: one body has all requests.

    A batch carries nothing of ours, so it is found again by its time and its number of requests.
    """

    async def create(self, file: BatchFile, upload: str, content: bytes) -> str:
        return await self._create("/messages/batches", content)

    async def find(self, file: BatchFile, since: str) -> list[str]:
        earliest = _moment(since) - CLOCKS
        found, after = list[str](), ""
        for _ in range(PAGES):
            page = await self._get(f"/messages/batches?limit={PAGE}{after}")
            rows = _rows(page)
            recent = [row for row in rows if _moment(row.get("created_at")) >= earliest]
            found += [_name(row) for row in recent if _total(row) == file.n_requests]
            if not page.get("has_more") or len(recent) < len(rows) or not rows:
                break
            after = f"&after_id={quote(_name(rows[-1]))}"
        return found

    async def state(self, job: str) -> State:
        row = await self._get(f"/messages/batches/{quote(job)}")
        word, counts = clean_name(row.get("processing_status")), row.get("request_counts")
        failed = sum(_count(counts, name) for name in ("errored", "canceled", "expired"))
        # Its `results_url` is not used: it could be on another host, and the key would go there.
        parts = (f"/messages/batches/{quote(job)}/results",) if word == "ended" else ()
        return State(word, word == "ended", _count(counts, "succeeded"), failed, parts)


def _trouble(status: int, content: bytes) -> Trouble:
    found = trouble_in(status, decoded(content), content, lambda _: "")
    return found or Trouble(status, "an invalid response")


def pause_after(attempt: int, told: float | None) -> float:
    return max(told or 0.0, min(0.25 * 2.0**attempt, 8.0))


def _rows(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = page.get("data")
    return (
        [row for row in rows if isinstance(row, dict) and _name(row)]
        if isinstance(rows, list)
        else []
    )


def _name(row: Mapping[str, Any]) -> str:
    found = row.get("id")
    return found if isinstance(found, str) and _ID.fullmatch(found) else ""


def _metadata(row: Mapping[str, Any]) -> object:
    found = row.get("metadata")
    return found.get("flipmeter") if isinstance(found, dict) else None


def _count(counts: object, name: str) -> int:
    found = counts.get(name) if isinstance(counts, dict) else None
    return found if isinstance(found, int) and found >= 0 else 0


def _total(row: Mapping[str, Any]) -> int:
    counts = row.get("request_counts")
    return sum(_count(counts, name) for name in counts) if isinstance(counts, dict) else 0


def _errors(errors: object) -> str:
    rows = errors.get("data") if isinstance(errors, dict) else None
    said = (
        [row.get("message") for row in rows if isinstance(row, dict)]
        if isinstance(rows, list)
        else []
    )
    return "; ".join(clean_name(one) for one in said[:3])


def _moment(text: object) -> datetime:
    """A time as vendors write it; what is none counts as now, so that nothing is overlooked."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def age_of(text: str) -> float:
    """The seconds that have passed since a time."""
    return (datetime.now(UTC) - _moment(text)).total_seconds()
