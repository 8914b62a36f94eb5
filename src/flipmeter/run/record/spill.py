"""Tables that come one after the other -> one: what is many waits on disk, not in memory."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from flipmeter.base.files.parquet import scan_file
from flipmeter.base.process import is_running
from flipmeter.types import Problem

MANY = 50_000
"""Rows that are held in memory; a small run never waits for a disk."""

SCRATCH = ".spill."


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Name a folder of this process inside another; whatever is made there is gone at the end.

    What a process of this machine that was killed has left is removed first; what another machine
    has on a shared disk may be in use.
    """
    mine = f"{SCRATCH}{platform.node()}."
    for left in folder.iterdir() if folder.is_dir() else ():
        pid = left.suffix[1:]
        if left.name.startswith(mine) and pid.isdecimal() and not is_running(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    inner = folder / f"{mine}{secrets.token_hex(4)}.{os.getpid()}"
    try:
        yield inner
    finally:
        shutil.rmtree(inner, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()  # not if there is anything in it


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Say what is lost, which is nothing, when a table cannot be written."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Problem(
            f"cannot write {path} ({error}); make room or name another folder with --out, and run "
            "again: every reply so far is in the store"
        ) from error


class Spill:
    """Rows in the order in which they come, in files of a folder once they are many."""

    def __init__(self, folder: Path, name: str, empty: pl.DataFrame) -> None:
        self._folder = folder
        self._name = name
        self._near = [empty]
        self._far: list[Path] = []
        self.n_rows = 0

    def add(self, rows: pl.DataFrame) -> None:
        self.n_rows += len(rows)
        self._near.append(rows)
        if sum(map(len, self._near)) >= MANY:
            self._put_away()

    def rows(self) -> pl.LazyFrame:
        """Return all rows, those in files unread."""
        return pl.concat([*map(scan_file, self._far), *(one.lazy() for one in self._near)])

    def _put_away(self) -> None:
        self._far.append(self._folder / f"{self._name}-{len(self._far)}.parquet")
        with room_for(self._far[-1]):
            self._folder.mkdir(parents=True, exist_ok=True)
            pl.concat(self._near).write_parquet(self._far[-1].absolute())
        self._near = [self._near[0].clear()]
