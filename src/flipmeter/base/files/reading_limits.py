"""Limits on the expansion of files: every limit on input, in one place.

Plain size is hardly limited. Small files that expand to large ones are limited: nesting,
aliases, compression, and text that stands for more text.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zipfile
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from flipmeter.base.problem import Problem

MB = 2**20

DOCUMENT_BYTES = 16 * MB
"""A study, gate, rater card, prompt file or price file; those in use have some kilobytes."""
JSON_BYTES = 64 * MB
"""One JSON document that is read whole: a manifest, a provider's list of prices."""
JSON_VALUES = 1_000_000
"""The most values in one JSON document or line: an empty list takes 2 bytes of it and 56 here."""
NESTING = 60
"""Lists and mappings inside each other."""
YAML_VALUES = 50_000
"""The most values in a YAML file: its parser takes a kilobyte and 20 microseconds for each."""
UNFOLDED = 10
"""Largest factor by which aliases may multiply the values of a YAML file."""
NUMBER_LENGTH = 100
"""The most characters of a number in YAML: 1:0:0:0 with thousands of places takes minutes."""
LARGEST_INT = 2**63
"""Limit of whole numbers, above which no table can hold them."""

ROW_LENGTH = 8 * MB
"""The most characters in a row of a table, and so in a text."""
COLUMNS = 10_000
"""The most columns of a table."""
FOOTER_BYTES = 8 * MB
"""The most bytes of the footer of a Parquet file."""
TABLE_BYTES = 64 * MB
"""A Parquet or zip file may always unpack to this much ..."""
TABLE_FACTOR = 100
"""... and to this many times its own size."""
RUN_FACTOR = 1_000
"""The same for tables of a run, read in parts: raters that share prompts compress well."""
BYTES_PER_VALUE = 16
"""Smallest size of a value of a Parquet table, however well compressed."""

PROMPT_TOKENS = 20_000
"""The most words inside the tags of a prompt file: to compile them takes a second."""
PROMPT_STEPS = 1_000_000
"""Limits of a prompt file for every prompt ..."""
PROMPT_STEPS_PER_CHARACTER = 20
"""... and beside that for every character that it is given."""
PATTERN_LENGTH = 5_000
"""The most characters of a pattern that finds a label."""
PATTERN_SECONDS = 3.0
"""Time limit for a pattern on one reply."""


def allowed_unpacked(n_bytes: int, factor: int = TABLE_FACTOR) -> int:
    """Number of bytes that a compressed file of this size may unpack to."""
    return max(TABLE_BYTES, factor * n_bytes)


def check_zip(path: Path) -> None:
    """Refuse a zip file that would unpack to far more than its size; other files pass."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
        raise Problem(f"{path} is not a readable zip file ({error})") from error
    if unpacked > allowed_unpacked(path.stat().st_size):
        raise Problem(f"{path} would unpack to {unpacked // MB:,} MB, far more than its size")


def read_limited(path: Path, most: int = DOCUMENT_BYTES) -> bytes:
    """A file's bytes; one that is larger than `most` is refused, and no more than that is read."""
    with path.open("rb") as file:
        return _limited(file, path, most)


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a file in an untrusted folder: links are not followed, pipes not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Problem(f"{path} is not a plain file")
        return _limited(file, path, most)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """The SHA-256 of a file; one of the same size and time of change is not read again."""
    about = path.stat()
    return _sha256_at(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256_at(path: Path, size: int, changed: int) -> str:
    return file_sha256(path)


def _limited(file: BinaryIO, path: Path, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise Problem(f"{path} is larger than {most // MB} MB, the limit for such a file")
    return content
