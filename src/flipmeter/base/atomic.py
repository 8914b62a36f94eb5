"""Files that take the place of others all at once: nobody ever reads half of one."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def fresh(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Give a path to write to, which then takes the place of another, all at once."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield new
        if is_durable:
            with new.open("rb") as file:
                os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, is_durable: bool = False) -> None:
    """Write a text and a line break; a durable one outlives a loss of power."""
    with fresh(path, is_durable=is_durable) as new:
        new.write_text(text + "\n", encoding="utf-8")


def is_same_file(one: Path, other: Path) -> bool:
    """Say whether two paths lead to one file, by whatever links; one may not be there yet."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
