"""Files to write: whole or not at all, never through a symbolic link, texts without secrets."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from flipmeter.base.problem import Problem
from flipmeter.base.redaction import masked


@contextmanager
def fresh(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Give a path to write to, which then takes the place of another, all at once."""
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
        new.write_text(masked(text) + "\n", encoding="utf-8")


def open_output(path: Path, *, is_appended: bool = False) -> BinaryIO:
    """Open a file to write; a symbolic link in its place is refused, wherever it leads.

    A folder from elsewhere may hold a link with the name of a file to be written there.
    """
    refuse_link(path)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if is_appended else os.O_TRUNC)
    if not _is_device(path):
        flags |= os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that the user asked for."""
    with open_output(path) as file:
        file.write(masked(content).encode() if isinstance(content, str) else content)


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link: what it leads to is not what was named."""
    if path.is_symlink() and not _is_device(path):
        raise Problem(
            f"{path} is a symbolic link to {path.readlink()}, which is not followed; remove it, "
            f"or use the file itself"
        )


def _is_device(path: Path) -> bool:
    """Whether a path is the system's own, as /dev/stdout, which is a link by nature."""
    return path.parts[:2] == ("/", "dev")


def is_same_file(one: Path, other: Path) -> bool:
    """Say whether two paths lead to one file, by whatever links; one may not be there yet."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
