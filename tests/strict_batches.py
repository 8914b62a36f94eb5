"""Local servers of OpenAI's and Anthropic's batch APIs, which refuse what those refuse.

Each request of a batch is answered by the rules of `strict_vendors`. A fault can be put in the way
of the next requests: an answer that is lost after the work was done, a crowd, a redirect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

import strict_vendors

Said = tuple[int, dict[str, Any] | bytes]
Fault = Literal["lost", "dropped", "crowded", "broken", "redirect", "echo", "torn"]
FORM = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass
class Batches:
    """A vendor with its batches; `faults` strike requests whose method and path match, in order."""

    kind: str
    key: str
    url: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] = list
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[tuple[str, bytes]] = field(default_factory=list)

    def fault(self, call: str) -> Fault | None:
        for number, (pattern, fault) in enumerate(self.faults):
            if re.search(pattern, call):
                del self.faults[number]
                return fault
        return None

    @property
    def n_paid(self) -> int:
        """How many requests were handed in, however often each was."""
        return sum(job["n"] for job in self.jobs)


# --- OpenAI -----------------------------------------------------------------------------------


def openai(server: Batches, call: str, headers: dict[str, str], content: bytes) -> Said:
    if headers.get("authorization") != f"Bearer {server.key}":
        return strict_vendors.openai_error("Incorrect API key", None, "invalid_api_key", 401)
    if call == "POST /v1/files":
        return _openai_upload(server, headers, content)
    if call == "POST /v1/batches":
        return _openai_create(server, json.loads(content))
    if found := re.fullmatch(r"GET /v1/batches\?limit=100(&after=(\S+))?", call):
        return 200, _page(server, [_openai_job(job) for job in reversed(server.jobs)], found[2])
    if found := re.fullmatch(r"GET /v1/batches/([\w-]+)", call):
        for job in server.jobs:
            if job["id"] == found[1]:
                return 200, _openai_job(job)
    found = re.fullmatch(r"GET /v1/files/([\w-]+)/content", call)
    if found and found[1] in server.files:
        return 200, server.files[found[1]]
    return strict_vendors.openai_error(f"Invalid URL ({call})", None, None, 404)


def _openai_upload(server: Batches, headers: dict[str, str], content: bytes) -> Said:
    kind = headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return strict_vendors.openai_error("expected multipart/form-data", None, None)
    message = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + content
    )
    parts = {
        str(part.get_param("name", header="content-disposition")): part
        for part in message.iter_parts()
    }
    if set(parts) != {"purpose", "file"} or parts["purpose"].get_content().strip() != "batch":
        return strict_vendors.openai_error("purpose must be batch", "purpose", None)
    name = f"file-{len(server.files) + 1}"
    payload = parts["file"].get_payload(decode=True)
    assert isinstance(payload, bytes)
    server.files[name] = payload
    about = {
        "id": name,
        "object": "file",
        "purpose": "batch",
        "status": "processed",
        "created_at": 1,
    }
    return 200, about | {"bytes": len(server.files[name]), "filename": parts["file"].get_filename()}


def _openai_create(server: Batches, body: dict[str, Any]) -> Said:
    known = {"input_file_id", "endpoint", "completion_window", "metadata"}
    for name in set(body) - known:
        return strict_vendors.openai_error(
            f"Unknown parameter: '{name}'.", name, "unknown_parameter"
        )
    if body.get("completion_window") != "24h" or body.get("input_file_id") not in server.files:
        return strict_vendors.openai_error("Invalid batch", None, "invalid_request")
    rows = [json.loads(line) for line in server.files[body["input_file_id"]].splitlines()]
    number = len(server.jobs) + 1
    results = []
    for row in rows:
        assert (row["method"], set(row)) == ("POST", {"custom_id", "method", "url", "body"})
        assert row["url"] == body["endpoint"]
        theirs = {"authorization": "Bearer sk-openai-test-key"}
        status, answer = strict_vendors.openai(row["url"], theirs, row["body"])
        response = {"status_code": status, "request_id": "r", "body": answer}
        results.append(
            {"id": "b", "custom_id": row["custom_id"], "response": response, "error": None}
        )
    lines = [json.dumps(row) for row in server.spoil(results)]
    output = f"file-out-{number}"
    server.files[output] = "".join(f"{line}\n" for line in lines).encode()
    job = {"id": f"batch_{number}", "n": len(rows), "output": output, "status": "completed", **body}
    server.jobs.append(job)
    return 200, _openai_job({**job, "status": "validating"})


def _openai_job(job: dict[str, Any]) -> dict[str, Any]:
    is_done = job["status"] == "completed"
    counts = {"total": job["n"], "completed": job["n"] if is_done else 0, "failed": 0}
    return {
        "id": job["id"],
        "object": "batch",
        "created_at": int(datetime.now(UTC).timestamp()),
        "endpoint": job["endpoint"],
        "input_file_id": job["input_file_id"],
        "completion_window": "24h",
        "status": job["status"],
        "output_file_id": job["output"] if is_done else None,
        "error_file_id": None,
        "metadata": job.get("metadata"),
        "request_counts": counts,
    }


# --- Anthropic --------------------------------------------------------------------------------


def anthropic(server: Batches, call: str, headers: dict[str, str], content: bytes) -> Said:
    if headers.get("x-api-key") != server.key:
        return strict_vendors.anthropic_error("invalid x-api-key", 401, "authentication_error")
    if "anthropic-version" not in headers:
        return strict_vendors.anthropic_error("anthropic-version: header is required")
    if call == "POST /v1/messages/batches":
        return _anthropic_create(server, headers, json.loads(content))
    if found := re.fullmatch(r"GET /v1/messages/batches\?limit=100(&after_id=(\S+))?", call):
        return 200, _page(server, [_anthropic_job(job) for job in reversed(server.jobs)], found[2])
    if found := re.fullmatch(r"GET /v1/messages/batches/([\w-]+)(/results)?", call):
        for job in server.jobs:
            if job["id"] == found[1]:
                return 200, server.files[job["output"]] if found[2] else _anthropic_job(job)
    return strict_vendors.anthropic_error("Not found", 404, "not_found_error")


def _anthropic_create(server: Batches, headers: dict[str, str], body: dict[str, Any]) -> Said:
    if set(body) != {"requests"} or not body["requests"]:
        return strict_vendors.anthropic_error("requests: Field required")
    ids = [row["custom_id"] for row in body["requests"]]
    if len(set(ids)) < len(ids) or not all(FORM.fullmatch(one) for one in ids):
        return strict_vendors.anthropic_error("requests: custom_id must be unique and short")
    results = []
    for row in body["requests"]:
        assert set(row) == {"custom_id", "params"}
        theirs = {"x-api-key": "sk-ant-test-key", "anthropic-version": headers["anthropic-version"]}
        status, answer = strict_vendors.anthropic("/v1/messages", theirs, row["params"])
        kind = (
            {"type": "succeeded", "message": answer}
            if status == 200
            else {"type": "errored", "error": answer}
        )
        results.append({"custom_id": row["custom_id"], "result": kind})
    number = len(server.jobs) + 1
    output = f"out-{number}"
    server.files[output] = "".join(f"{json.dumps(row)}\n" for row in server.spoil(results)).encode()
    job = {"id": f"msgbatch_{number}", "n": len(ids), "output": output, "status": "ended"}
    server.jobs.append(job | {"created_at": datetime.now(UTC).isoformat()})
    return 200, _anthropic_job({**server.jobs[-1], "status": "in_progress"})


def _anthropic_job(job: dict[str, Any]) -> dict[str, Any]:
    is_done = job["status"] == "ended"
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    counts["succeeded" if is_done else "processing"] = job["n"]
    return {
        "id": job["id"],
        "type": "message_batch",
        "processing_status": job["status"],
        "request_counts": counts,
        "created_at": job["created_at"],
        "expires_at": job["created_at"],
        "ended_at": job["created_at"] if is_done else None,
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": "http://192.0.2.1/elsewhere" if is_done else None,
    }


def _page(server: Batches, rows: list[dict[str, Any]], after: str | None) -> dict[str, Any]:
    """Two jobs a page, so that pages are turned."""
    names = [row["id"] for row in rows]
    start = names.index(after) + 1 if after else 0
    return {"data": rows[start : start + 2], "has_more": len(rows) > start + 2}


# --- the server -------------------------------------------------------------------------------

RULES = {"openai": openai, "anthropic": anthropic}
INSTEAD: dict[str | None, Callable[[Batches], tuple[int, dict[str, Any], dict[str, str]]]] = {
    "crowded": lambda _: (429, {"error": {"message": "slow down"}}, {"Retry-After": "0.2"}),
    "broken": lambda _: (500, {"error": {"message": "oh no"}}, {}),
    "redirect": lambda _: (307, {}, {"Location": "http://192.0.2.1/elsewhere"}),
    "echo": lambda server: (400, {"error": {"message": f"bad key {server.key}"}}, {}),
}
"""What is said instead of an answer, with headers."""


@contextmanager
def batches(kind: str, key: str) -> Iterator[Batches]:
    """Serve a vendor's batches on this machine."""
    known = Batches(kind, key)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._do()

        def do_POST(self) -> None:
            self._do()

        def _do(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            call = f"{self.command} {self.path}"
            known.calls.append((self.command, self.path))
            known.headers.append(headers)
            fault = known.fault(call)
            if fault == "dropped":  # before anything was done
                self.close_connection = True
                return None
            if fault in INSTEAD:
                return self._say(*INSTEAD[fault](known))
            status, said = RULES[kind](known, call, headers, content)
            if fault == "lost":  # after everything was done
                self.close_connection = True
                return None
            self._say(status, said, {}, is_torn=fault == "torn")
            return None

        def _say(
            self,
            status: int,
            said: dict[str, Any] | bytes,
            more: dict[str, str],
            is_torn: bool = False,
        ) -> None:
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            known.answers.append((f"{self.command} {self.path}", content))
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if is_torn else content)
            self.close_connection = self.close_connection or is_torn

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with strict_vendors.listening(Handler) as address:
        known.url = f"{address}/v1"
        yield known
