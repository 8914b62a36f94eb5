"""Files: written whole or not at all, never through a link, without secrets; locks on them.

A place is what the user named, or the working folder. A link that leads to it is the user's; one
below it may have come with the folder from elsewhere, and is refused.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from flipmeter.errors import Problem
from flipmeter.redaction import masked


@contextmanager
def fresh(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Give a path to write to, which then takes the place of another, all at once."""
    inside(path)
    new = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        yield new
        if is_durable:
            with new.open("rb") as file:
                os.fsync(file.fileno())
        new.replace(path)
        if is_durable:
            sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Write a text and a line break; a durable one outlives a loss of power."""
    with fresh(path, is_durable=is_durable) as new:
        write_output(new, text + "\n")


def open_output(path: Path, *, is_appended: bool = False) -> BinaryIO:
    """Open a file to write; a link in its place or on the way to it is refused (`inside`)."""
    inside(path)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if is_appended else os.O_TRUNC)
    if not _is_device(path):
        flags |= os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for."""
    with open_output(path) as file:
        file.write(masked(content).encode() if isinstance(content, str) else content)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, with those above it, unless it is there."""
    inside(folder).mkdir(mode, parents=True, exist_ok=True)


def discard(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; of a link, only the link."""
    inside(path.parent)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def named(path: Path) -> Path:
    """A path as the user gave it to be written: where its links lead now is the user's choice.

    A link in the place of a file stays one: what it leads to is not what was named.
    """
    with suppress(OSError):  # what cannot be looked at cannot be written: the writer says why
        folder = path if path.is_dir() else path.parent
        if any(one.is_symlink() for one in _folders_below(folder, Path())):
            return Path(os.path.realpath(folder)) / path.relative_to(folder)
    return path


def inside(path: Path, place: Path = Path()) -> Path:
    """A path to write; a link below its place is refused, and one in the place of a file.

    The folders of a path that is not below the place were named by the user.
    """
    for one in _folders_below(path, place):
        refuse_link(one)
    if not path.is_dir():
        refuse_link(path)
    return path


def _folders_below(path: Path, place: Path) -> list[Path]:
    """A path and the folders above it that lie below a place, the outermost first."""
    depth = len(path.relative_to(place).parts) if path.is_relative_to(place) else 0
    return [path, *path.parents][:depth][::-1]


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link: what it leads to is not what was named."""
    if path.is_symlink() and not _is_device(path):
        raise Problem(
            f"{path} is a symbolic link to {path.readlink()}, which is not followed; remove it, "
            "or name what it leads to yourself"
        )


def _is_device(path: Path) -> bool:
    """Whether a path is the system's own, as /dev/stdout, which is a link by nature."""
    return path.parts[:2] == ("/", "dev")


def is_same_file(one: Path, other: Path) -> bool:
    """Say whether two paths lead to one file, by whatever links; one may not be there yet."""
    with suppress(OSError):
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


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
