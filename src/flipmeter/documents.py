"""YAML and JSON -> values, within the limits on all input, which stand here.

Plain size is hardly limited. Small files that expand to large ones are limited: nesting,
aliases, compression, and text that stands for more text.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

import yaml

from flipmeter.errors import Problem

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
        return _read_at_most(file, path, most)


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a file in an untrusted folder: links are not followed, pipes not waited for."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Problem(f"{path} is not a plain file")
        return _read_at_most(file, path, most)


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


def _read_at_most(file: BinaryIO, path: Path, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise Problem(f"{path} is larger than {most // MB} MB, the limit for such a file")
    return content


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
# What the constructors of PyYAML raise for `!!bool x`, `!!int ''`, `!!timestamp x` and their kind.
_MALFORMED = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, OverflowError)


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; `where` begins every message.

    A repeated key is refused: YAML takes the last and does not say so.
    """
    try:
        _check_shape(text, where)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            _check_nodes(node, where)
            content = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (*_MALFORMED, RecursionError) as error:
        raise Problem(f"{where} is not valid YAML: {error}") from error
    check_values(content, where, is_plain=True)
    return content


def _check_shape(text: str, where: str) -> None:
    """Refuse what nests too deeply or unfolds to too much, before anything is made of it."""
    sizes: dict[str, int] = {}
    waiting: list[list[Any]] = [["", 0]]  # the anchor and the size of each open collection
    for n_values, event in zip(count(), yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            waiting.append([event.anchor, 1])
        elif isinstance(event, yaml.AliasEvent | yaml.ScalarEvent):
            waiting[-1][1] += _event_size(event, sizes, where)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = waiting.pop()
            waiting[-1][1] += size
            sizes |= {anchor: size} if anchor else {}
        line = 1 + (event.start_mark.line if event.start_mark else 0)
        if len(waiting) > NESTING:
            raise Problem(f"{where}, line {line}: nested more than {NESTING} levels deep")
        if n_values > YAML_VALUES:
            raise Problem(f"{where}, line {line}: more than {YAML_VALUES:,} values; split the file")
        if waiting[-1][1] > UNFOLDED * max(n_values, 1000):
            raise Problem(f"{where}, line {line}: aliases unfold to too much; write the values out")


def _event_size(event: Any, sizes: dict[str, int], where: str) -> int:
    """Number of values of an alias or a scalar; a scalar may be an anchor."""
    if isinstance(event, yaml.ScalarEvent):
        sizes |= {event.anchor: 1} if event.anchor else {}
        return 1
    if event.anchor not in sizes:
        line = 1 + (event.start_mark.line if event.start_mark else 0)
        raise Problem(
            f"{where}, line {line}: no value named '*{event.anchor}' is defined before it"
        )
    return sizes[event.anchor]


def _check_nodes(root: yaml.Node | None, where: str) -> None:
    """Refuse repeated keys and numbers of endless length; a node may be reached in two ways."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            for key in _iter_repeated_keys(node):
                line = key.start_mark.line + 1
                raise Problem(
                    f"{where}, line {line}: '{key.value}' appears twice; keep one of them"
                )
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.tag in _NUMBERS and len(node.value) > NUMBER_LENGTH:
            raise Problem(f"{where}, line {line}: a number of {len(node.value):,} characters")


def _iter_repeated_keys(node: yaml.MappingNode) -> Iterator[yaml.ScalarNode]:
    seen = set[tuple[str, str]]()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                yield key
            seen.add((key.tag, key.value))


def read_json(text: str | bytes, where: str) -> Any:
    """The value of a JSON text; NaN and infinities are null."""
    try:
        found = text if isinstance(text, str) else text.decode("utf-8-sig")
        check_json(found)
        return json.loads(found, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{where} is not JSON ({error})") from error


def text_lines(path: Path, newline: str = "\n") -> Iterator[str]:
    """The lines of a UTF-8 file; a byte order mark is skipped, and an endless line refused."""
    # Only "\n" ends a line: a JSON text may hold U+2028 and its kind as they are.
    with path.open(encoding="utf-8-sig", newline=newline) as file:
        for number in count(1):
            line = file.readline(ROW_LENGTH + 1)
            if len(line) > ROW_LENGTH:
                raise Problem(
                    f"{path}, line {number} is longer than {ROW_LENGTH:,} characters; does the "
                    f"file have one row per line?"
                )
            if not line:
                return
            yield line


def check_json(text: str) -> None:
    """Refuse, by a ValueError, a JSON text of so many values that they would fill the memory."""
    if len(text) > JSON_VALUES and sum(map(text.count, "[{,")) > JSON_VALUES:
        raise ValueError(f"more than {JSON_VALUES:,} values")


def check_values(content: object, where: str, *, is_plain: bool = False) -> None:
    """Refuse NaN, infinities, and numbers and texts that no table or file could hold.

    Where all must be plain, so are dates and other kinds that are neither text nor number.
    """
    waiting: list[tuple[str, object, int]] = [("", content, 0)]
    n_values = 0
    while waiting:
        name, value, depth = waiting.pop()
        n_values += 1
        if depth > NESTING or n_values > UNFOLDED * YAML_VALUES:
            raise Problem(f"{where}: {name} is nested too deeply, or refers to itself")
        if isinstance(value, Mapping):
            waiting += [("a key", key, depth + 1) for key in value]
            waiting += [(f"{name}.{key!s:.60}"[:200], v, depth + 1) for key, v in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            waiting += [(f"{name}.{at}", one, depth + 1) for at, one in enumerate(value)]
        elif trouble := _value_error(value, is_plain):
            raise Problem(f"{where}: {name.removeprefix('.') or 'it'} {trouble}")


def _value_error(value: object, is_plain: bool) -> str:
    """The error of a single value, "" if there is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}; use a finite number, or leave it out"
    if isinstance(value, int) and abs(value) >= LARGEST_INT:
        return "is a whole number of more than 63 bits; use a smaller one"
    if isinstance(value, str) and not is_unicode(value):
        return "contains half a character (a lone surrogate, as in \\ud800); remove it"
    if not is_plain or value is None or isinstance(value, str | int | float):
        return ""
    kind = type(value).__name__
    return f"is a {kind}, which is neither text nor number; put it in quotes if it is text"


def is_unicode(text: str) -> bool:
    """Whether a text can be written down: JSON and YAML can spell halves of characters."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True
