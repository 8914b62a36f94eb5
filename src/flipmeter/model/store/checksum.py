"""A stored reply -> whether it is what was stored: SQLite does not notice a damaged byte."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from sqlite3 import DatabaseError
from typing import Any

BEFORE_CHECKSUMS = -1
"""Stands for the checksum of what an older flipmeter stored: it is taken as it is."""

Row = tuple[Any, ...]


def reply_sum(answered: str, values: Sequence[Any], numbers: Sequence[Any]) -> int:
    """The checksum of a reply, the same under every version of Python and in every store.

    What points to a text is left out, as the numbers of texts differ by store.
    """
    floats = [None if number is None else float(number) for number in numbers]
    return zlib.crc32(ascii((answered, *values, floats)).encode())


def text_sum(text: str) -> int:
    return zlib.crc32(text.encode())


def whole_text(found: tuple[str, int] | None) -> str:
    """A text that many replies share, with its checksum; without it the store cannot be used."""
    if found is None:
        raise DatabaseError("a shared text of replies is missing")
    text, stored = found
    if stored not in (BEFORE_CHECKSUMS, text_sum(text)):
        raise DatabaseError("the checksum of a shared text of replies is wrong")
    return text
