"""Request -> a line of a vendor's batch file, and its result -> Reply.

A folder holds the files to upload, `requests.jsonl` with the requests as our own store knows them,
and `manifest.json`, which says what is what. Results may come whole, in parts or twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from flipmeter.ask.http import OPENAI_WIRES, Wires, moderated
from flipmeter.ask.response import shortened
from flipmeter.ask.vendor_wires import AnthropicWire, GeminiWire
from flipmeter.ask.wires import AZURE_WIRES, CHAT_WIRES, TOGETHER_WIRES, Wire, interface_in
from flipmeter.documents import JSON_BYTES, read_json, read_plain, text_lines
from flipmeter.errors import Problem
from flipmeter.files import make_folder, open_output, write_output
from flipmeter.types import Caching, Head, Message, Reply, Request, Script

Shape = Literal["openai", "anthropic", "gemini"]
"""The shape of a line of results."""
SHAPES: Mapping[Shape, str] = {
    "openai": "OpenAI's (also Azure's, Mistral's, Groq's, Together's and vLLM's)",
    "anthropic": "Anthropic's",
    "gemini": "Gemini's",
}
MEGABYTE = 10**6
COMPATIBLE = "compatible"
ENDED_WITHOUT = {"canceled": "canceled before it was asked", "expired": "expired before its turn"}


@dataclass(frozen=True)
class BatchForm:
    """Files of requests as a vendor takes them, at most so many requests and bytes in each.

    Results are in one of three shapes. A file of Anthropic's is the one body to send; others have
    a request a line.
    """

    vendor: str
    shape: Shape
    wires: Wires
    most_requests: int
    most_bytes: int
    has_address: bool = False

    @property
    def suffix(self) -> str:
        return ".json" if self.shape == "anthropic" else ".jsonl"

    def wire_of(self, request: Request) -> Wire:
        return self.wires[interface_in(request.params)]

    def url(self, model: str, request: Request) -> str:
        """The path that the requests of a file are sent to."""
        return f"/v1{self.wire_of(request).path(model)}"

    def line(
        self, model: str, request: Request, caching: Caching | None = None, is_shared: bool = False
    ) -> bytes:
        """A request as it stands in a file."""
        body = self.wire_of(request).body(model, request, caching, is_shared).decode()
        named = {"key" if self.shape == "gemini" else "custom_id": request.key}
        if self.has_address:
            named |= {"method": "POST", "url": self.url(model, request)}
        inner = {"openai": "body", "anthropic": "params", "gemini": "request"}[self.shape]
        return f'{json.dumps(named).removesuffix("}")}, "{inner}": {body}}}\n'.encode()

    def file(self, lines: Sequence[bytes]) -> bytes:
        """The file that holds some requests."""
        if self.shape != "anthropic":
            return b"".join(lines)
        return b'{"requests": [\n' + b",\n".join(line.rstrip() for line in lines) + b"\n]}\n"

    def reply(self, row: Mapping[str, Any], request: Request) -> Reply:
        """The reply in a line of results, or one with an error, which is never stored."""
        status, answer, said = self._answer(row)
        if said:
            return Reply(error=shortened(said))
        wire = self.wire_of(request)
        trouble = wire.trouble(status, answer, json.dumps(answer).encode())
        if trouble is None:
            return wire.reply(answer, 0.0, request.answers)
        return moderated(trouble) or Reply(
            error=f"HTTP {trouble.status} in the batch: {trouble.message}"
        )

    def _answer(self, row: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
        """The status and the answer in a line of results, or what it says instead of one."""
        if self.shape == "anthropic":
            return _anthropic_answer(row)
        response, error = row.get("response"), row.get("error")
        if not isinstance(response, Mapping):
            said = (
                error.get("message") or error.get("code") if isinstance(error, Mapping) else error
            )
            return 200, {}, str(said or "the result has neither response nor error")
        if self.shape == "gemini":
            return 200, dict(response), ""
        body, status = response.get("body"), response.get("status_code", 200)
        answer = body if isinstance(body, dict) else {}
        return status if isinstance(status, int) else 200, answer, ""


def _anthropic_answer(row: Mapping[str, Any]) -> tuple[int, dict[str, Any], str]:
    result = row.get("result")
    result = result if isinstance(result, Mapping) else {}
    kind, message, error = result.get("type"), result.get("message"), result.get("error")
    if kind == "succeeded" and isinstance(message, dict):
        return 200, message, ""
    if kind == "errored" and isinstance(error, dict):
        # The error of an answer, wrapped once more or not.
        return 400, error if isinstance(error.get("error"), dict) else {"error": error}, ""
    return 200, {}, ENDED_WITHOUT.get(str(kind), "the result has no message")


def shape_of(row: Mapping[str, Any], where: str) -> Shape:
    """The shape of a line of results; what is none is a problem."""
    if "response" not in row and any(name in row for name in ("body", "params", "request")):
        raise Problem(f"{where} is a request, not a result; use the vendor's output file")
    if "result" in row:
        return "anthropic"
    return "gemini" if "key" in row and "custom_id" not in row else "openai"


OPENAI_FORM = BatchForm("OpenAI", "openai", OPENAI_WIRES, 50_000, 200 * MEGABYTE, has_address=True)
FORMS: Mapping[str, BatchForm] = {
    "openai": OPENAI_FORM,
    COMPATIBLE: replace(OPENAI_FORM, vendor="an OpenAI-compatible endpoint"),
    "azure": BatchForm("Azure", "openai", AZURE_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "groq": BatchForm("Groq", "openai", CHAT_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "vllm": BatchForm("vLLM", "openai", OPENAI_WIRES, 50_000, 200 * MEGABYTE, has_address=True),
    "mistral": BatchForm("Mistral", "openai", CHAT_WIRES, 50_000, 500 * MEGABYTE),
    "together": BatchForm("Together", "openai", TOGETHER_WIRES, 50_000, 100 * MEGABYTE),
    "anthropic": BatchForm(
        "Anthropic", "anthropic", {"chat": AnthropicWire()}, 50_000, 250 * MEGABYTE
    ),
    "gemini": BatchForm("Gemini", "gemini", {"chat": GeminiWire()}, 50_000, 500 * MEGABYTE),
}
"""By family; any other endpoint is taken to speak as OpenAI does."""


def form_for(family: str) -> str:
    """The name of the form of a family."""
    return family if family in FORMS else COMPATIBLE


MOST_REQUESTS = 50_000
"""Limits of one file for every vendor."""

MANIFEST, REQUESTS, JOBS = "manifest.json", "requests.jsonl", "jobs.jsonl"
_WAY = re.compile(r"^(/v1/models/)?(/v1/)?")
NAMED = 3
"""Number of ids in an error message."""
Door = tuple[str, str, str, str]
"""A model as its endpoint calls it, its identity, the address that is asked, and its form."""


@dataclass(frozen=True)
class BatchFile:
    """A file to upload: for one model behind one address, in the `form` of its vendor.

    `identity` tells models apart that two endpoints call by the same name.
    """

    name: str
    model: str
    identity: str
    url: str
    form: str
    n_requests: int
    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class BatchEntry:
    """A request of a batch, its model as the endpoint calls it, and the form of its vendor."""

    model: str
    request: Request
    form: str = COMPATIBLE
    caching: Caching | None = None


@dataclass
class Results:
    """The results by key: replies to keep, and the errors of the others. Nothing is stored yet."""

    replies: dict[str, Reply] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


# --- out --------------------------------------------------------------------------------------


def write_batch(
    folder: Path,
    requests: Iterable[BatchEntry],
    about: Mapping[str, Any],
    *,
    most_requests: int = MOST_REQUESTS,
    most_bytes: int | None = None,
) -> list[BatchFile]:
    """Write requests into a folder of their own; `about` goes into the manifest as it is."""
    try:
        if (folder / MANIFEST).exists():
            raise Problem(f"{folder} already contains a batch; import it, or use another folder")
        make_folder(folder)
        asked = list(requests)
        with open_output(folder / REQUESTS) as kept:
            for line in _iter_kept_rows(one.request for one in asked):
                kept.write(f"{json.dumps(line)}\n".encode())
        files: list[BatchFile] = []
        named: Counter[str] = Counter()
        for door, some in _lines_by_door(asked).items():
            model, _, url, kind = door
            stem, way = (re.sub(r"[^\w.-]+", "-", one) for one in (model, _WAY.sub("", url)))
            stem, form = stem.strip("-.") or "model", FORMS[kind]
            stem = f"{stem}-{way.removeprefix(stem).strip('-')}"
            most = most_bytes or form.most_bytes, min(most_requests, form.most_requests)
            for part in _split_batch_lines(some, *most):
                named[stem] += 1
                name, content = f"{stem}-{named[stem]:03}{form.suffix}", form.file(part)
                write_output(folder / name, content)
                digest = hashlib.sha256(content).hexdigest()
                files.append(BatchFile(name, *door, len(part), len(content), digest))
        manifest = {**about, "requests": REQUESTS, "files": [asdict(file) for file in files]}
        write_output(folder / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        return files
    except OSError as error:
        raise Problem(
            f"cannot write the batch into {folder} ({error.strerror}); use another folder"
        ) from error


def _lines_by_door(requests: Sequence[BatchEntry]) -> dict[Door, list[bytes]]:
    """The lines of requests by model and address."""
    lines: dict[Door, list[bytes]] = {}
    sharing = Counter((asked.request.model, asked.request.script.head) for asked in requests)
    for asked in requests:
        model, request, form = asked.model, asked.request, FORMS[asked.form]
        worth = asked.caching.worth if asked.caching else 0
        is_shared = sharing[request.model, request.script.head] >= worth
        door = model, request.model, form.url(model, request), asked.form
        lines.setdefault(door, []).append(form.line(model, request, asked.caching, is_shared))
    return lines


def _split_batch_lines(
    lines: Sequence[bytes], most_bytes: int, most_requests: int
) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and (len(part) >= most_requests or size + len(line) > most_bytes):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield part


def _iter_kept_rows(requests: Iterable[Request]) -> Iterator[dict[str, Any]]:
    """Yield what makes the requests again; a head that many share is written once."""
    heads: dict[Head, int] = {}
    for request in requests:
        head = request.script.head
        if head not in heads:
            heads[head] = len(heads)
            before = [[message.role, message.content] for message in head.before]
            yield {"before": before, "role": head.role, "start": head.start}
        yield {
            "key": request.key,
            "head": heads[head],
            "rest": request.script.rest,
            "model": request.model,
            "params": request.params,
            "answers": request.answers,
            "repeat": request.repeat,
        }


# --- back -------------------------------------------------------------------------------------


def read_batch(folder: Path) -> dict[str, Request]:
    """The requests of a batch by key, each as it was when it was written."""
    _manifest(folder)
    heads: list[Head] = []
    found: dict[str, Request] = {}
    for where, row in _iter_json_rows(folder / REQUESTS):
        try:
            if "key" in row:
                found[row["key"]] = _request(row, heads)
            else:
                before = tuple(Message(role, content) for role, content in row["before"])
                heads.append(Head(before, row["role"], row["start"]))
        except (LookupError, TypeError, ValueError):
            raise Problem(
                f"{where} was changed since it was written; export the batch again"
            ) from None
    return found


def _request(row: Mapping[str, Any], heads: Sequence[Head]) -> Request:
    """The request of a row; a ValueError if it is not the one that was written."""
    script = Script(heads[row["head"]], row["rest"])
    named = row["model"], script, row["params"], tuple(row["answers"]), row["repeat"]
    request = Request(*named)
    if request.key != row["key"]:
        raise ValueError(row["key"])
    return request


def forms_in(folder: Path) -> dict[str, BatchForm]:
    """The form of each model of a batch, by identity."""
    files = batch_files(folder)
    return {file.identity: FORMS[file.form] for file in files}


def batch_files(folder: Path) -> list[BatchFile]:
    """The files of a batch as its manifest names them."""
    path = folder / MANIFEST
    try:
        files = [BatchFile(**{"form": COMPATIBLE, **row}) for row in _manifest(folder)["files"]]
    except TypeError as error:
        raise Problem(f"{path} is damaged ({error}); export the batch again") from error
    for file in files:
        if file.form not in FORMS:
            raise Problem(f"{path}: no batch format '{file.form}'; known: {', '.join(FORMS)}")
        if Path(file.name).name != file.name or file.name in ("", ".", ".."):
            raise Problem(f"{path} names '{file.name}', which is not in its folder")
    return files


def result_files(folder: Path) -> list[Path]:
    """The files in a batch's folder that are not its own: what came back."""
    own = {REQUESTS, JOBS, *(file["name"] for file in _manifest(folder)["files"])}
    found = [path for path in sorted(folder.glob("*.jsonl")) if path.name not in own]
    if not found:
        raise Problem(
            f"{folder} has no results yet; put the output file and the error file of the batch "
            "there, or pass them"
        )
    return found


def read_results(
    paths: Sequence[Path],
    known: Mapping[str, Request],
    forms: Mapping[str, BatchForm] | None = None,
) -> Results:
    """Read result files as the live client reads answers; an id that is not known is refused.

    `forms` names the form of a model's results by its identity. The same reply twice counts once, a
    reply wins over an error, and two different replies to one request are refused: either could be
    the right one.
    """
    found, unknown, torn = Results(), dict[str, str](), dict[str, str]()
    wanted = {form.shape: form.vendor for form in (forms or {}).values()}
    wanted = wanted or {OPENAI_FORM.shape: OPENAI_FORM.vendor}
    for where, row in (row for path in paths for row in _iter_json_rows(path)):
        shape = shape_of(row, where)
        if shape not in wanted:
            raise Problem(
                f"{where} has the format of {SHAPES[shape]} batches, but this batch was written "
                f"for {', '.join(wanted.values())}; nothing is imported"
            )
        key = row.get("key" if shape == "gemini" else "custom_id")
        if not isinstance(key, str) or key not in known:
            unknown.setdefault(str(key), where)
            continue
        form = (forms or {}).get(known[key].model, OPENAI_FORM)
        reply = form.reply(row, known[key])
        if reply.error:
            found.errors.setdefault(key, reply.error)
        elif found.replies.setdefault(key, reply) != reply:
            torn.setdefault(key, where)
    _refuse_ids(unknown, "not in this batch; it may belong to another one")
    _refuse_ids(torn, "answered twice and differently: keep one of the files")
    found.errors = {key: said for key, said in found.errors.items() if key not in found.replies}
    return found


def _refuse_ids(ids: Mapping[str, str], why: str) -> None:
    if ids:
        shown = "; ".join(f"'{key}' ({where})" for key, where in [*ids.items()][:NAMED])
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        raise Problem(f"{shown}{more}: {why}; nothing is imported")


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        content = read_json(read_plain(path, JSON_BYTES), str(path))
        return {**content, "files": [{"name": file["name"], **file} for file in content["files"]]}
    except FileNotFoundError:
        raise Problem(
            f"{folder} contains no batch (no {MANIFEST}); pass its folder with --batch"
        ) from None
    except (OSError, Problem, LookupError, TypeError) as error:
        raise Problem(f"{path} is damaged ({error}); export the batch again") from error


def _iter_json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every line of a file of JSON objects, and where it stands."""
    try:
        for number, line in enumerate(text_lines(path), 1):
            if line.strip():
                where = f"{path}, line {number}"
                try:
                    row = read_json(line, where)
                except Problem as problem:
                    raise Problem(f"{problem}; if it is cut off, download it again") from problem
                if not isinstance(row, dict):
                    raise Problem(f"{where} is not a JSON object; is this a result file?")
                yield where, row
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{path} cannot be read ({error}); use a file of JSON lines") from error
