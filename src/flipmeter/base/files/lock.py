"""Locks on files and folders; that of a process that dies is gone with it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from flipmeter.base.files.atomic import make_folder

EVERY = 0.1
"""Seconds between two looks at a lock."""


@contextmanager
def writing(folder: Path, on_wait: Callable[[], object]) -> Iterator[None]:
    """Be the one who writes a folder, which is made if need be; whoever comes later waits."""
    make = partial(make_folder, folder)
    handle = lock_made(folder, make)
    if handle is None:
        on_wait()
    while handle is None:
        time.sleep(EVERY)
        handle = lock_made(folder, make)
    try:
        yield
    finally:
        os.close(handle)


def lock_made(path: Path, make: Callable[[], object]) -> int | None:
    """Create a path and lock it, None if it is locked already.

    What was removed between is not what others would find at the path.
    """
    make()
    handle = None
    with suppress(FileNotFoundError):
        handle = lock(path)
        if handle is not None and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    if handle is not None:
        os.close(handle)
    return None


def lock(path: Path, *, is_shared: bool = False) -> int | None:
    """Lock a path until the handle is closed, None if it is locked already; readers share it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle
