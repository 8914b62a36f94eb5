"""Room for replies on the disk of their store, and rescue files for those that it cannot keep."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from stat import S_ISREG, S_IWOTH
from tempfile import TemporaryFile, gettempdir
from typing import IO, TYPE_CHECKING

from flipmeter.errors import Incomplete, Problem
from flipmeter.files import fresh
from flipmeter.types import Request

if TYPE_CHECKING:
    from flipmeter.ask.store import Store

RESERVE = 8 * 2**20
"""Bytes held while something is asked: enough to store what is under way on a full disk."""
LEAST = 2**20
"""Nothing more is sent where fewer bytes than these are free beside the reserve."""
PER_REPLY = 1_000
"""Bytes that a reply takes beside the part of its prompt that no other has."""
FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
"""Error codes of SQLite on a full disk, for a page and for the index of its journal."""
WITHOUT_RESERVE = {
    *(errno.EFBIG, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS),
    errno.ENOENT,  # the folder is gone, which the store notices
}


class Room:
    """The disk of one store; one in memory has room."""

    def __init__(self, store: str) -> None:
        self.store = store
        self.is_short = False
        self._reserve: IO[bytes] | None = None
        self._n_holders = 0

    @contextmanager
    def held(self, requests: Sequence[Request]) -> Iterator[None]:
        """Refuse to ask what there is no room for, and keep a reserve while it is asked."""
        if self.store == ":memory:" or not requests:
            yield
            return
        self._n_holders += 1
        try:
            if self._reserve is None:
                self.is_short = False
                need = sum(len(one.script.rest) + PER_REPLY for one in requests)
                self._refuse_below(need + RESERVE, f"{len(requests):,} replies")
                self._reserve = self._reserved()
            yield
        finally:
            self._n_holders -= 1
            if not self._n_holders:
                self.give()

    def check(self) -> None:
        """Refuse to send more on a disk that is nearly full, or was."""
        if self.is_short:
            raise self._short("is full", Incomplete)
        if self._reserve is not None:
            self._refuse_below(LEAST, "further replies", Incomplete)

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Stop the sending when a write finds the disk full, and free the reserve for replies."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._reserve is None or error.sqlite_errorcode & 0xFF not in FULL:
                raise
            self.give()
            self.is_short = True
            raise self._short("is full", Incomplete) from error

    def give(self) -> None:
        """Give the reserve back to the disk."""
        if self._reserve is not None:
            self._reserve.close()
        self._reserve = None

    @property
    def _folder(self) -> Path:
        return Path(self.store).absolute().parent

    def _reserved(self) -> IO[bytes] | None:
        """A file without a name: it is gone with this process, whatever ends it."""
        try:
            with suppress(AttributeError), ExitStack() as stack:  # not every system can
                file = stack.enter_context(TemporaryFile(dir=self._folder))
                os.posix_fallocate(file.fileno(), 0, RESERVE)
                stack.pop_all()
                return file
        except OSError as error:
            if error.errno not in WITHOUT_RESERVE:
                raise self._short("has no space left") from error
        return None

    def _refuse_below(self, n_bytes: int, what: str, kind: type[Problem] = Problem) -> None:
        try:
            free = shutil.disk_usage(self._folder).free
        except OSError:
            return  # the store notices that its folder is gone
        if free < n_bytes:
            need = f"{what} need about {_format_megabytes(n_bytes)}"
            raise self._short(f"has {_format_megabytes(free)} free, but {need}", kind)

    def _short(self, what: str, kind: type[Problem] = Problem) -> Problem:
        """The error message about the disk, with the files of the store on it."""
        parts = [Path(self.store), Path(f"{self.store}-wal")]
        sizes = [
            f"{path} ({_format_megabytes(path.stat().st_size)})" for path in parts if path.exists()
        ]
        return kind(
            f"the disk of the reply store {what}; sending has stopped, nothing stored is lost: "
            f"free some space in {self._folder} (the store is {' and '.join(sizes)}: keep them), "
            f"or "
            "use another file with --store, and run again"
        )


def _format_megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


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
    for stem in _rescue_stems(store.absolute()):
        with suppress(OSError):
            paths = sorted(stem.parent.glob(f"{escape(stem.name)}-*{ENDING}"))
            found += [path for path in paths if _is_safe(path)]
    return found


def rescue(store: Store, why: str) -> Incomplete | None:
    """Save the replies of a lost store and those not stored; None if there are none.

    The error says how many are saved, and where.
    """
    stems = [*_rescue_stems(store.place)]
    files: list[Path] = []
    seen: set[object] = set()
    n_saved = n_lost = 0
    for content, n_replies in _iter_rescue_parts(_iter_rescued_rows(store, seen)):
        path = _write_rescue_file(stems, content)
        files += [path] if path else []
        n_saved += n_replies if path else 0
        n_lost += 0 if path else n_replies
    n_lost += len({request.key for request, _ in store.unsaved} - seen)
    if not n_saved and not n_lost:
        return None
    places = [*map(str, files[:SHOWN]), *([f"{len(files) - SHOWN} more"] if files[SHOWN:] else [])]
    saved = [f"{_replies_are(n_saved)} saved in {', '.join(places)}"] if n_saved else []
    lost = [f"{_replies_are(n_lost)} lost: no folder could take more"] if n_lost else []
    return Incomplete(
        f"{why}; {'; '.join(saved + lost)}; run the same command again: it takes in what is "
        "saved and asks only the rest"
    )


def _replies_are(n: int) -> str:
    return f"{n:,} {'reply is' if n == 1 else 'replies are'}"


def _rescue_stems(store: Path) -> Iterator[Path]:
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


def _write_rescue_file(stems: Iterable[Path], content: bytes) -> Path | None:
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


def _iter_rescue_parts(rows: Iterable[Row]) -> Iterator[tuple[bytes, int]]:
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


def _iter_rescued_rows(store: Store, seen: set[object]) -> Iterator[Row]:
    """Yield the replies of a lost store, as far as they can be read, and those not stored."""
    from flipmeter.ask.export import whole_rows  # these import this module
    from flipmeter.ask.store import Store

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
