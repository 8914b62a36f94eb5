"""Replies that their store cannot keep -> rescue files, which the next start takes in."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG, S_IWOTH
from tempfile import gettempdir
from typing import TYPE_CHECKING

from flipmeter.base.files.atomic import fresh
from flipmeter.base.problem import Incomplete, Problem

if TYPE_CHECKING:
    from flipmeter.model.store.store import Store

CAPABILITY = ("model", "asked", "name", "is_there", "how", "seen")
"""The columns of a finding on a model, the other kind of row in a rescue file."""
ENDING = ".jsonl"
PART = 8 * 2**20
"""Bytes of a file, unless this process may write less into one."""
EARLIER = 100_000
"""The most replies from before a process opened its store that it rescues too: a run that was
continued has paid for them."""
SHOWN = 3
"""Number of files printed."""
Row = Mapping[str, object]


def left_behind(store: Path) -> list[Path]:
    """The rescue files of a store, wherever there was a place for them."""
    found: list[Path] = []
    for stem in _stems(store.absolute()):
        with suppress(OSError):
            paths = sorted(stem.parent.glob(f"{escape(stem.name)}-*{ENDING}"))
            found += [path for path in paths if _is_safe(path)]
    return found


def rescue(store: Store, why: str) -> Incomplete | None:
    """Save the replies of a lost store and those not stored; None if there are none.

    The error says how many are saved, and where.
    """
    stems = [*_stems(store.place)]
    files: list[Path] = []
    seen: set[object] = set()
    n_saved = n_lost = 0
    for content, n_replies in _parts(_rows(store, seen)):
        path = _written(stems, content)
        files += [path] if path else []
        n_saved += n_replies if path else 0
        n_lost += 0 if path else n_replies
    n_lost += len({request.key for request, _ in store.unsaved} - seen)
    if not n_saved and not n_lost:
        return None
    places = [*map(str, files[:SHOWN]), *([f"{len(files) - SHOWN} more"] if files[SHOWN:] else [])]
    saved = [f"{_count(n_saved)} saved in {', '.join(places)}"] if n_saved else []
    lost = [f"{_count(n_lost)} lost: no folder could take more"] if n_lost else []
    return Incomplete(
        f"{why}; {'; '.join(saved + lost)}; run the same command again: it takes in what is "
        "saved and asks only the rest"
    )


def _count(n: int) -> str:
    return f"{n:,} {'reply is' if n == 1 else 'replies are'}"


def _stems(store: Path) -> Iterator[Path]:
    """The beginnings of names in the folders to try: as the store is seen from there.

    A project that is moved takes its rescue files along. A hidden folder comes later: it is the one
    that is removed as a whole.
    """
    folders = [store.parent, store.parent.parent]
    if store.parent.name.startswith("."):
        folders.reverse()
    for usual in (os.getcwd, gettempdir):
        with suppress(OSError):  # it may be gone
            folders.append(Path(usual()))
    for folder in dict.fromkeys(folders):
        seen = os.fsencode(os.path.relpath(store, folder))
        yield folder / f"{store.stem[:40]}-rescue-{sha256(seen).hexdigest()[:12]}"


def _is_safe(path: Path) -> bool:
    """Whether a file is a plain one, and our own where anybody could put it."""
    about, folder = path.lstat(), path.parent.stat()
    is_ours = not folder.st_mode & S_IWOTH or about.st_uid == os.geteuid()
    return S_ISREG(about.st_mode) and is_ours


def _written(stems: Iterable[Path], content: bytes) -> Path | None:
    """Write a rescue file in the first folder that takes it; None if there is none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for stem in stems:
        if stem.parent.is_symlink():
            continue
        path = stem.with_name(f"{stem.name}-{token_hex(4)}{ENDING}")
        with (
            suppress(OSError),
            fresh(path, is_durable=True) as new,
            os.fdopen(os.open(new, flags, 0o600), "wb") as file,
        ):
            file.write(content)
        if path.exists():
            return path
    return None


def _parts(rows: Iterable[Row]) -> Iterator[tuple[bytes, int]]:
    """The contents of files that this process may write, and the number of replies in each."""
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    most = PART if limit == resource.RLIM_INFINITY else min(PART, limit)
    content, n_replies = bytearray(), 0
    for row in rows:
        line = f"{json.dumps(row)}\n".encode()
        if content and len(content) + len(line) > most:
            yield bytes(content), n_replies
            content, n_replies = bytearray(), 0
        content += line
        n_replies += "key" in row
    if content:
        yield bytes(content), n_replies


def _rows(store: Store, seen: set[object]) -> Iterator[Row]:
    """Yield the replies of a lost store, as far as they can be read, and those not stored."""
    from flipmeter.model.store.export import whole_rows  # these import this module
    from flipmeter.model.store.store import Store

    if store.is_lost:
        columns = ", ".join(CAPABILITY)
        known = store.read(f"SELECT {columns} FROM capabilities")
        capabilities = (dict(zip(CAPABILITY, row, strict=True)) for row in known)
        for rows in (capabilities, whole_rows(store, store.keys_after(EARLIER))):
            with suppress(sqlite3.Error, Problem, ValueError):  # behind damage nothing is read
                for row in rows:
                    seen.add(row.get("key"))
                    yield row
    with Store() as aside:
        for request, reply in store.unsaved:
            if request.key not in seen:
                with suppress(Problem, OverflowError):  # one that no store takes
                    aside.put(request, reply)
                    seen.add(request.key)
                    yield from whole_rows(aside, [request.key])
