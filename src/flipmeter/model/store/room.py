"""Room on the disk of a store: looked at before replies are paid for, and some held back."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from flipmeter.base.problem import Incomplete
from flipmeter.types import Problem, Request

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
            need = f"{what} need about {_size(n_bytes)}"
            raise self._short(f"has {_size(free)} free, but {need}", kind)

    def _short(self, what: str, kind: type[Problem] = Problem) -> Problem:
        """The error message about the disk, with the files of the store on it."""
        parts = [Path(self.store), Path(f"{self.store}-wal")]
        sizes = [f"{path} ({_size(path.stat().st_size)})" for path in parts if path.exists()]
        return kind(
            f"the disk of the reply store {what}; sending has stopped, nothing stored is lost: "
            f"free some space in {self._folder} (the store is {' and '.join(sizes)}: keep them), "
            f"or "
            "use another file with --store, and run again"
        )


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"
