"""Request -> a line of a batch file, and its result -> Reply, in the form of the vendor.

A folder holds the files to upload, `requests.jsonl` with the requests as our own store knows them,
and `manifest.json`, which says what is what. Results may come whole, in parts or twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flipmeter.base.files.atomic import make_folder, open_output, write_output
from flipmeter.base.files.documents import read_json, text_lines
from flipmeter.base.files.reading_limits import JSON_BYTES, read_plain
from flipmeter.model.batch.forms import (
    COMPATIBLE,
    FORMS,
    OPENAI_FORM,
    SHAPES,
    BatchForm,
    shape_of,
)
from flipmeter.types import Caching, Head, Message, Problem, Reply, Request, Script

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
            for line in _kept(one.request for one in asked):
                kept.write(f"{json.dumps(line)}\n".encode())
        files: list[BatchFile] = []
        named: Counter[str] = Counter()
        for door, some in _lines(asked).items():
            model, _, url, kind = door
            stem, way = (re.sub(r"[^\w.-]+", "-", one) for one in (model, _WAY.sub("", url)))
            stem, form = stem.strip("-.") or "model", FORMS[kind]
            stem = f"{stem}-{way.removeprefix(stem).strip('-')}"
            most = most_bytes or form.most_bytes, min(most_requests, form.most_requests)
            for part in _parts(some, *most):
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


def _lines(requests: Sequence[BatchEntry]) -> dict[Door, list[bytes]]:
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


def _parts(lines: Sequence[bytes], most_bytes: int, most_requests: int) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and (len(part) >= most_requests or size + len(line) > most_bytes):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield part


def _kept(requests: Iterable[Request]) -> Iterator[dict[str, Any]]:
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
    for where, row in _rows(folder / REQUESTS):
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
    for where, row in (row for path in paths for row in _rows(path)):
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
    _refuse(unknown, "not in this batch; it may belong to another one")
    _refuse(torn, "answered twice and differently: keep one of the files")
    found.errors = {key: said for key, said in found.errors.items() if key not in found.replies}
    return found


def _refuse(ids: Mapping[str, str], why: str) -> None:
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


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
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
