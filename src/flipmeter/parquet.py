"""Paths -> Parquet tables, once their footers say that they unpack to little enough."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

import polars as pl
import polars.selectors as cs

from flipmeter.documents import (
    BYTES_PER_VALUE,
    COLUMNS,
    FOOTER_BYTES,
    MB,
    TABLE_FACTOR,
    allowed_unpacked,
)
from flipmeter.errors import Problem
from flipmeter.redaction import masked, spellings

UNREADABLE: tuple[type[BaseException], ...] = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
)
"""Raised by polars for a table that cannot be read; some damaged pages make it panic."""


def scan_file(path: Path) -> pl.LazyFrame:
    """A table, not yet read; polars would take `*`, `[` and a leading `~` for more than letters."""
    return pl.scan_parquet(path.absolute(), glob=False)


def scan_files(paths: Sequence[Path]) -> pl.LazyFrame:
    """Tables of the same columns, one after the other, not yet read."""
    return pl.scan_parquet([path.absolute() for path in paths], glob=False)


def without_secrets(table: pl.LazyFrame) -> pl.LazyFrame:
    """A table to be written, its texts without the secrets of this process."""
    sought = list(spellings())
    if not sought:
        return table

    def clean(texts: pl.Series) -> pl.Series:
        is_hit = texts.str.contains_any(sought).fill_null(value=False)
        if not is_hit.any():
            return texts
        return texts.map_elements(masked, return_dtype=pl.String)

    return table.with_columns(
        cs.string().map_batches(clean, return_dtype=pl.String, is_elementwise=True)
    )


def schema_of(path: Path) -> pl.Schema:
    """The columns of a table, by its footer."""
    with path.open("rb") as file:
        return pl.Schema(pl.read_parquet_schema(file))


def collected(rows: pl.LazyFrame, engine: Literal["auto", "streaming"] = "auto") -> pl.DataFrame:
    """The rows, read now: every query of a run's tables ends here.

    A page of a table can be damaged although its digest is right: its maker wrote both.
    """
    try:
        return rows.collect(engine=engine)
    except (pl.exceptions.ComputeError, pl.exceptions.PanicException, OSError) as error:
        reason = (str(error).splitlines() or [""])[0]
        named = _SCANNED.search(rows.explain(optimized=False))
        path = named[1] if named else "a table"
        raise Problem(f"{path} is damaged ({reason}); fetch it or run its study again") from error


_SCANNED = re.compile(r"Parquet SCAN \[(.+)\]")
"""The file that a query reads, in polars' description of it."""


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
    footer = _read_footer(file, size)
    if len(footer[2]) > COLUMNS:
        raise ValueError(f"more than {COLUMNS:,} columns")
    chunks = [chunk[3] for group in footer.get(4, []) for chunk in group.get(1, [])]
    told = [(_read_size_field(one, 5), _read_size_field(one, 6)) for one in chunks]
    pages = [page for chunk in chunks for page in _iter_page_sizes(file, chunk, size)]
    n_rows = _read_size_field(footer, 3) * len(footer[2])
    n_values = max(sum(n for n, _ in told), sum(n for n, _ in pages), n_rows if told else 0)
    return n_values, max(sum(n for _, n in told), sum(n for _, n in pages))


def _read_footer(file: IO[bytes], size: int) -> dict[int, Any]:
    file.seek(max(0, size - 8))
    length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != _MAGIC or length + 12 > size:
        raise ValueError("its last bytes are not those of one")
    if length > FOOTER_BYTES:
        raise ValueError(f"a footer of {length:,} bytes")
    file.seek(size - 8 - length)
    return _Compact(file.read(length)).struct()


def _iter_page_sizes(
    file: IO[bytes], chunk: Mapping[int, Any], size: int
) -> Iterator[tuple[int, int]]:
    """The number of values and of unpacked bytes of each page of a column, by its header."""
    starts = [at for at in (chunk.get(11), chunk.get(9)) if at]
    place = min(starts, default=0)
    end = min(place + _read_size_field(chunk, 7), size)
    while 0 < place < end:
        header, length = _page_header(file, place)
        kinds = [header[kind] for kind in (5, 7, 8) if kind in header]
        yield sum(_read_size_field(kind, 1) for kind in kinds), _read_size_field(header, 2)
        place += length + _read_size_field(header, 3)


def _page_header(file: IO[bytes], place: int) -> tuple[dict[int, Any], int]:
    for n_bytes in (2**10, MB):  # statistics can make one long
        file.seek(place)
        compact = _Compact(file.read(n_bytes))
        try:
            return compact.struct(), compact.place
        except IndexError:
            continue
    raise ValueError("a page without a header")


def _read_size_field(fields: Mapping[int, Any], number: int) -> int:
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
