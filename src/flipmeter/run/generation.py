"""Tables and facts -> a run folder, and back: `run.json` names the one generation that counts.

A run writes its files into a new folder `g-ID` beside the old one. The rename of `run.json` is the
commit: before it the folder holds the old run, after it the new one, at no time a mixture.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import Any, Literal

import polars as pl
from pydantic import TypeAdapter, ValidationError

from flipmeter.documents import JSON_BYTES, read_json, read_plain
from flipmeter.errors import Problem
from flipmeter.files import discard, lock, make_folder, refuse_link, sync_folder, write_text
from flipmeter.parquet import UNREADABLE, schema_of
from flipmeter.redaction import masked
from flipmeter.types import canonical_json

FORMAT = 4
"""The format of what is written: a column that is `since` a later one is one more."""
OLDEST = 3
MANIFEST = "run.json"
STUDY = "study.yaml"
ITEMS, CONDITIONS = "items.parquet", "conditions.parquet"
PROMPTS, CALLS, DECISIONS = "prompts.parquet", "calls.parquet", "decisions.parquet"
FILES = (STUDY, ITEMS, CONDITIONS, PROMPTS, CALLS, DECISIONS)
OLD = ("environment.json", "decisions.parquet")
"""A file at the top of folders in the previous format."""
AGAIN = "run the study again: replies are stored and nothing is paid twice"

State = Literal["complete", "stopped", "settled"]
"""All items are in; a budget ended the run; the claim it was made for was settled early."""


@dataclass(frozen=True)
class FileRecord:
    """The size and the SHA-256 of a file as it was committed."""

    n_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of `run.json`: the current generation, its files, and its provenance."""

    format: int
    generation: str
    state: State
    study: str
    files: Mapping[str, FileRecord]
    facts: Mapping[str, Any]
    seal: str = ""


_MANIFEST = TypeAdapter(Manifest)


def commit(
    folder: Path,
    scratch: Path,
    writers: Mapping[str, Callable[[Path], object]],
    *,
    study: str,
    state: State,
    facts: Mapping[str, Any],
) -> None:
    """Write a new generation and make it the one that counts; those before it are removed.

    One at a time: whoever commits holds the folder.
    """
    new = scratch / "generation"
    make_folder(new)
    records = {}
    for name, write in writers.items():
        write(new / name)
        with (new / name).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        records[name] = FileRecord((new / name).stat().st_size, digest)
    generation = folder / f"g-{secrets.token_hex(6)}"
    manifest = Manifest(FORMAT, generation.name, state, study, records, facts)
    content = json.loads(masked(json.dumps(asdict(manifest), allow_nan=False)))
    content["seal"] = _seal(content)
    try:
        new.rename(generation)
        sync_folder(generation)
        written = json.dumps(content, indent=2, ensure_ascii=False)
        write_text(folder / MANIFEST, written, is_durable=True)
    except BaseException:
        _sweep(folder)  # nothing that does not count takes room on a full disk
        raise
    _sweep(folder)


def _seal(content: Mapping[str, Any]) -> str:
    """A digest of all that a manifest says: one that was edited does not fit any more."""
    told = {name: value for name, value in content.items() if name != "seal"}
    return hashlib.sha256(canonical_json(told).encode()).hexdigest()


def _sweep(folder: Path) -> None:
    """Remove the generations that do not count."""
    try:
        counts = read_manifest(folder).generation
    except Problem:
        counts = ""
    for path in folder.iterdir():
        is_folder = path.is_dir() and not path.is_symlink()  # a pipe would never open
        if not (path.name.startswith("g-") and path.name != counts and is_folder):
            continue
        handle = lock(path)
        if handle is not None:  # else it is being read, and the next commit removes it
            discard(path)
            os.close(handle)


def read_manifest(folder: Path) -> Manifest:
    """Read what a run folder says of itself; anything else is refused by name."""
    path = folder / MANIFEST
    refuse_link(path)
    try:
        found = read_json(read_plain(path, JSON_BYTES), MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        raise _no_run(folder) from None
    except (OSError, Problem) as error:
        raise damaged(path, error) from error
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise Problem(f"{folder} was made by a later version of flipmeter; update this one")
    if not isinstance(version, int) or version < OLDEST:
        raise earlier(folder)
    try:
        manifest = _MANIFEST.validate_python(found)
    except ValidationError as error:
        raise damaged(path, ValueError(error.errors()[0]["msg"])) from error
    name = manifest.generation
    if not name.startswith("g-") or not name.removeprefix("g-").isalnum():
        raise damaged(path, ValueError(f"{name!r} is not a generation"))
    if strangers := sorted(set(manifest.files) - set(FILES)):
        raise damaged(path, ValueError(f"it lists {strangers[0]!r}, which is not a file of a run"))
    refuse_link(folder / name)
    if manifest.seal != _seal(found):
        raise damaged(path, ValueError("its content has changed since the run wrote it"))
    return manifest


def hold(folder: Path) -> tuple[Manifest, int]:
    """Read what counts in a folder and keep it from being removed while the handle is open."""
    while True:
        manifest = read_manifest(folder)
        try:
            handle = lock(folder / manifest.generation, is_shared=True)
        except OSError as error:
            handle, reason = None, error
        else:
            reason = OSError("its generation is being removed")
        if handle is None and read_manifest(folder) == manifest:
            raise damaged(folder / MANIFEST, reason)
        if handle is not None and read_manifest(folder) == manifest:
            return manifest, handle
        if handle is not None:
            os.close(handle)  # another run was committed meanwhile


def _no_run(folder: Path) -> Problem:
    if folder.is_file():
        return Problem(
            f"{folder} is a file, but a run folder is needed; tables of predictions are for "
            "measure, report, check and compare"
        )
    if any((folder / name).is_file() for name in OLD):
        return earlier(folder)
    return Problem(
        f"{folder} has no {MANIFEST}: it is not a run folder, or its run was stopped before the "
        f"end; {AGAIN}"
    )


def earlier(folder: Path) -> Problem:
    return Problem(f"{folder} was made by an earlier version; {AGAIN}")


def damaged(path: Path, error: BaseException) -> Problem:
    reason = (str(error).splitlines() or [""])[0]
    return Problem(f"{path} is damaged ({reason}); {AGAIN}")


def checked(folder: Path, manifest: Manifest, name: str, *, is_whole: bool = True) -> Path:
    """The path of a committed file that is as it was written: its size, and its hash too if asked.

    A file is hashed once for each size and time of change.
    """
    path = folder / manifest.generation / name
    record = manifest.files.get(name)
    if record is None:
        raise damaged(folder / MANIFEST, ValueError(f"it does not list {name}"))
    refuse_link(path)
    try:
        stat = path.stat(follow_symlinks=False)
    except OSError as error:
        raise damaged(path, error) from error
    if not S_ISREG(stat.st_mode):
        raise damaged(path, ValueError("it is not a file"))
    if stat.st_size != record.n_bytes:
        what = f"{stat.st_size:,} bytes instead of {record.n_bytes:,}"
        raise damaged(path, ValueError(what))
    if is_whole and _run_file_digest(path, stat.st_size, stat.st_mtime_ns) != record.sha256:
        raise damaged(path, ValueError("its content has changed since the run wrote it"))
    return path


@lru_cache(maxsize=1024)
def _run_file_digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(folder: Path) -> Manifest:
    """Hold every file of a run to its size, its hash and, if a table, its footer."""
    manifest = read_manifest(folder)
    _run_file_digest.cache_clear()
    for name in FILES:
        path = checked(folder, manifest, name)
        if path.suffix == ".parquet":
            read_schema(path)
    return manifest


def read_schema(path: Path) -> pl.Schema:
    """Read the footer of a table; one that cannot be read is damaged."""
    try:
        return schema_of(path)
    except UNREADABLE as error:
        raise damaged(path, error) from error
