"""Parquet file -> how much it unpacks to, from its footer and page headers: nothing is unpacked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from flipmeter.base.files.reading_limits import (
    BYTES_PER_VALUE,
    COLUMNS,
    FOOTER_BYTES,
    MB,
    TABLE_FACTOR,
    allowed_unpacked,
)
from flipmeter.base.problem import Problem

_MAGIC = b"PAR1"
_DEEP = 12
_BOOLEANS, _BYTE, _WHOLE, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = (
    (1, 2),
    3,
    (4, 5, 6),
    7,
    8,
    (9, 10),
    11,
    12,
)
"""The types of Thrift's compact protocol, which footers and page headers are written in."""


def check_parquet(path: Path, factor: int = TABLE_FACTOR) -> None:
    """Refuse a file that is not Parquet, or that would unpack to far more than its size."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            n_values, n_bytes = _unpacked(file, size)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise Problem(f"{path} is not a readable Parquet file ({error}); write it again") from error
    unpacked = n_bytes + BYTES_PER_VALUE * n_values
    if unpacked > allowed_unpacked(size, factor):
        raise Problem(
            f"{path} has {size:,} bytes and would unpack to {unpacked // MB:,} MB ({n_values:,} "
            "values); if you trust it, write it again with less compression"
        )


def _unpacked(file: IO[bytes], size: int) -> tuple[int, int]:
    """Number of values, and number of bytes they unpack to."""
    footer = _footer(file, size)
    if len(footer[2]) > COLUMNS:
        raise ValueError(f"more than {COLUMNS:,} columns")
    chunks = [chunk[3] for group in footer.get(4, []) for chunk in group.get(1, [])]
    told = [(_whole(one, 5), _whole(one, 6)) for one in chunks]
    pages = [page for chunk in chunks for page in _pages(file, chunk, size)]
    n_rows = _whole(footer, 3) * len(footer[2])
    n_values = max(sum(n for n, _ in told), sum(n for n, _ in pages), n_rows if told else 0)
    return n_values, max(sum(n for _, n in told), sum(n for _, n in pages))


def _footer(file: IO[bytes], size: int) -> dict[int, Any]:
    file.seek(max(0, size - 8))
    length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != _MAGIC or length + 12 > size:
        raise ValueError("its last bytes are not those of one")
    if length > FOOTER_BYTES:
        raise ValueError(f"a footer of {length:,} bytes")
    file.seek(size - 8 - length)
    return _Compact(file.read(length)).struct()


def _pages(file: IO[bytes], chunk: Mapping[int, Any], size: int) -> Iterator[tuple[int, int]]:
    """The number of values and of unpacked bytes of each page of a column, by its header."""
    starts = [at for at in (chunk.get(11), chunk.get(9)) if at]
    place = min(starts, default=0)
    end = min(place + _whole(chunk, 7), size)
    while 0 < place < end:
        header, length = _page_header(file, place)
        kinds = [header[kind] for kind in (5, 7, 8) if kind in header]
        yield sum(_whole(kind, 1) for kind in kinds), _whole(header, 2)
        place += length + _whole(header, 3)


def _page_header(file: IO[bytes], place: int) -> tuple[dict[int, Any], int]:
    for n_bytes in (2**10, MB):  # statistics can make one long
        file.seek(place)
        compact = _Compact(file.read(n_bytes))
        try:
            return compact.struct(), compact.place
        except IndexError:
            continue
    raise ValueError("a page without a header")


def _whole(fields: Mapping[int, Any], number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a size of {value!r:.20}")
    return value


class _Compact:
    """Reads Thrift's compact protocol: a struct is a dict by field number."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        fields, number = dict[int, Any](), 0
        while kind := self._byte():
            number = number + (kind >> 4) if kind >> 4 else self._zigzag()
            fields[number] = self._value(kind & 15, depth + 1, in_struct=True)
        return fields

    def _value(self, kind: int, depth: int, *, in_struct: bool = False) -> Any:
        if depth > _DEEP:
            raise ValueError("nested too deeply")
        if kind in _BOOLEANS:
            return kind == 1 if in_struct else self._byte() == 1
        if kind == _BYTE:
            return self._byte()
        if kind in _WHOLE:
            return self._zigzag()
        if kind in (_DOUBLE, _BINARY):
            return self._take(8 if kind == _DOUBLE else self._varint())
        return self._many(kind, depth)

    def _many(self, kind: int, depth: int) -> Any:
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in _LISTS:
            head = self._byte()
            n_values = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth + 1) for _ in range(n_values)]
        if kind == _MAP and (n_values := self._varint()):
            kinds = self._byte()
            for _ in range(n_values):
                self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)
        elif kind != _MAP:
            raise ValueError(f"a field of type {kind}")
        return None

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _take(self, n_bytes: int) -> bytes:
        self.place += n_bytes
        if self.place > len(self.content):
            raise IndexError("it is cut off")
        return self.content[self.place - n_bytes : self.place]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number with too many bytes")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
