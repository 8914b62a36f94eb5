"""File -> Record: rows of CSV, TSV, JSON lines and Parquet, and the order that a dtype declares.

There is one reader: a file may be larger than memory, and one that is read whole is read by the
same code.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors as cs

from flipmeter.documents import COLUMNS, ROW_LENGTH, allowed_unpacked, check_json, text_lines
from flipmeter.errors import Problem
from flipmeter.parquet import UNREADABLE, check_parquet, scan_file, schema_of
from flipmeter.registry import suggestion


def declared_order(column: Any) -> list[Any] | None:
    """Classes lowest first, as the dtype of a column (or a dtype itself) lists them.

    None where it lists none: a categorical of pandas that is not ordered has categories, and their
    order means nothing.
    """
    dtype = getattr(column, "dtype", column)
    if isinstance(dtype, pl.Enum):
        return dtype.categories.to_list()
    if getattr(dtype, "ordered", False) is True:
        return list(dtype.categories)
    return None


ROWS_AT_ONCE = 4096
BYTES_AT_ONCE = 2**20
ROWS_OF_LONG_TEXTS = 64
"""Number of rows of a Parquet file in memory as Python values."""


@dataclass(frozen=True)
class Record:
    """One row as it stands in a file; `fault` says why it could not be read.

    Rows count from 1, lines of text with the header.
    """

    row: int
    values: Mapping[str, object] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Table:
    """The rows of a file, its columns, and the classes of those that declare an order of them."""

    file: str
    columns: tuple[str, ...]
    records: Collection[Record]
    orders: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True)
class Reread(Collection[Record]):
    """The rows of a file, read again whenever they are requested, so that they are not held."""

    path: Path
    quotes: bool | None

    def __iter__(self) -> Iterator[Record]:
        return _read_table_rows(self.path, self.quotes, None)[1]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, record: object) -> bool:
        return any(one == record for one in self)


Rows = tuple[tuple[str, ...], Iterator[Record]]
"""The columns that a file declares, none for JSON lines, and its rows."""


def read_table(
    path: Path,
    quotes: bool | None = None,
    *,
    needs: str = "a text and a label",
    is_held: bool = True,
) -> Table:
    """Read a whole file by its suffix. `quotes` says whether a CSV or TSV quotes its fields.

    A CSV does by default; a TSV does if its first field or a doubled quote shows it.
    `needs` is what the message about a file without rows asks for. Rows that are not held are
    read again each time.
    """
    declared, rows = _read_table_rows(path, quotes, None)
    records = tuple(rows) if is_held else Reread(path, quotes)
    first = next(iter(records), None)
    if first is None:
        raise Problem(f"{path} has no rows; it needs at least two, each with {needs}")
    columns = declared or tuple(dict.fromkeys(name for one in records for name in one.values))
    if not columns:
        raise Problem(f"{path}, row {first.row}: {first.fault or 'no fields'}; no row can be read")
    # The columns of a Parquet file whose dtype lists their values, lowest first.
    dtypes = schema_of(path) if path.suffix.lower() == ".parquet" else {}
    orders = ((column, declared_order(dtype)) for column, dtype in dtypes.items())
    known = {column: order for column, order in orders if order is not None}
    return Table(str(path), columns, records, known)


def stream_rows(path: Path, columns: Sequence[str], others: Sequence[str] = ()) -> Iterator[Record]:
    """Yield the rows of a file, few held at once; columns that are not named may be left out.

    A missing column is refused before the first row, unless it is one of `others`; a row that
    cannot be read comes with its fault.
    """
    declared, rows = _read_table_rows(path, None, [*columns, *others])
    if declared:
        check_columns(path, columns, declared)
    kept = []
    for record in rows:
        kept.append(record)
        if declared:
            break
        if not record.fault:  # the first object that can be read must have the columns
            check_columns(path, columns, list(record.values))
            break
    if not kept:
        raise Problem(f"{path} has no rows; there is nothing to label")
    return chain(kept, rows)


def has_column(path: Path, name: str) -> bool:
    """Say whether a file can be read and has a column."""
    try:
        stream_rows(path, [name])
    except Problem:
        return False
    return True


def columns_of(path: Path) -> list[str]:
    """The columns of a file, for JSON lines those of any row; a name used twice is left out."""
    declared, rows = _read_table_rows(path, None, ())
    if not declared:
        return list(dict.fromkeys(name for record in rows for name in record.values))
    counts = Counter(declared)
    return [name for name in declared if name and counts[name] == 1]


def check_columns(path: Path | str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise Problem(f"{path} has no column '{name}'{suggestion(name, list(there))}")


def _read_table_rows(path: Path, quotes: bool | None, wanted: Sequence[str] | None) -> Rows:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise Problem(
            f"{path}: cannot read '{path.suffix}' files; use one of {', '.join(_READERS)}"
        )
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise Problem(f"{path} {what} (looked in {path.absolute().parent}); check the path")
    try:
        return reader(path, quotes, wanted)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror or error}") from error


# --- text -------------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """A file's text, which must be UTF-8 without NUL; a byte order mark is skipped."""
    check_text(path)
    return path.read_bytes().decode("utf-8-sig")


def check_text(path: Path) -> None:
    """Refuse a file that is not UTF-8, or has a NUL, and name the place."""
    decoder, before = codecs.getincrementaldecoder("utf-8")(), 0
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise Problem(f"{path} is UTF-16; save it as UTF-8")
        file.seek(0)
        while chunk := file.read(BYTES_AT_ONCE):
            if (nul := chunk.find(b"\0")) >= 0:
                place = _line_and_offset(path, before + nul)
                raise Problem(f"{path}, {place}: a NUL byte; is this a text file? remove it")
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(chunk, final=len(chunk) < BYTES_AT_ONCE)
            except UnicodeDecodeError as error:
                place = _line_and_offset(path, before - pending + error.start)
                byte = error.object[error.start]
                raise Problem(
                    f"{path}, {place}: byte 0x{byte:02x} is not UTF-8; "
                    "save the file as UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1)"
                ) from None
            before += len(chunk)


def _line_and_offset(path: Path, offset: int) -> str:
    line, left = 1, offset
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(BYTES_AT_ONCE, left))):
            line, left = line + chunk.count(b"\n"), left - len(chunk)
    return f"line {line} (byte offset {offset})"


# --- CSV and TSV ------------------------------------------------------------------------------


def _read_separated(path: Path, quotes: bool | None, wanted: Sequence[str] | None) -> Rows:
    check_text(path)
    separator = "\t"
    if path.suffix.lower() == ".csv":
        first, quotes = next(text_lines(path), ""), quotes is not False
        # Spreadsheets separate by semicolons where commas are decimal.
        separator = ";" if ";" in first and "," not in first else ","
    if quotes is None:
        quotes = any(
            (number == 0 and line.startswith('"')) or QUOTED.search(line)
            for number, line in enumerate(text_lines(path))
        )
    rows = quoted_rows(path, separator) if quotes else _plain_rows(path, separator)
    _, header = next(rows, (0, []))
    columns = tuple(name.strip() for name in header)
    # Spreadsheets leave empty columns behind; a column without a name cannot be asked for.
    read = columns if wanted is None else wanted
    if len(columns) > COLUMNS:
        raise Problem(f"{path} has {len(columns):,} columns; the maximum is {COLUMNS:,}")
    counts = Counter(columns)
    repeated = sorted({name for name in read if name and counts[name] > 1})
    if repeated:
        raise Problem(f"{path} has more than one column named {repeated}; rename the others")
    hint = "set quotes: true if it quotes texts" if not quotes else "quote texts that contain one"
    told = f"fields where the header has {len(columns)}; {hint}"
    return columns, (
        Record(row, dict(zip(columns, fields, strict=True)))
        if len(fields) == len(columns)
        else Record(row, fault=f"{len(fields)} {told}")
        for row, fields in rows
    )


QUOTED = re.compile(r'(?:^|\t)"[^\t\n]*""')
"""A field of a TSV with a doubled quote inside."""


def quoted_rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the fields of each row; a quoted field may span lines."""
    # The limit of the csv module (131,072 characters) is global and there against broken quotes,
    # which `strict` reports.
    csv.field_size_limit(max(csv.field_size_limit(), ROW_LENGTH))
    line = 1
    reader = csv.reader(text_lines(path, newline=""), delimiter=separator, strict=True)
    try:
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise Problem(
            f"{path}, row {line}: broken quoting ({error}); double the quotes inside a quoted "
            "text, or set quotes: false if the file does not quote its fields"
        ) from None


def _plain_rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text_lines(path), start=1):
        if content := line.rstrip("\r\n"):
            yield number, content.split(separator)


# --- JSON lines -------------------------------------------------------------------------------


def _read_json_lines(path: Path, _: bool | None, __: Sequence[str] | None) -> Rows:
    check_text(path)
    lines = enumerate(text_lines(path), start=1)
    return (), (_json_record(row, line) for row, line in lines if line.strip())


def _json_record(row: int, line: str) -> Record:
    try:
        check_json(line)
        content = json.loads(line, parse_constant=lambda _: None)  # NaN is not a value
    except (ValueError, RecursionError) as error:
        return Record(row, fault=f"malformed JSON ({error}); one complete object per line")
    if not isinstance(content, dict):
        return Record(
            row, fault=f"a JSON {type(content).__name__}; one object with fields per line"
        )
    return Record(row, content)


# --- Parquet ----------------------------------------------------------------------------------


def _read_parquet(path: Path, _: bool | None, wanted: Sequence[str] | None) -> Rows:
    check_parquet(path)
    with _explain_parquet_errors(path):
        columns = tuple(schema_of(path))
    kept = columns if wanted is None else tuple(dict.fromkeys(n for n in wanted if n in columns))
    return columns, _parquet_rows(path, kept)


@contextmanager
def _explain_parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UNREADABLE as error:
        reason = (str(error).splitlines() or [""])[0]
        why = f"{path} is not a readable Parquet file ({reason}); write it again"
        raise Problem(why) from error


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    table = scan_file(path).select(columns)
    table, start = table.with_columns(cs.float().fill_nan(None)), 0
    left = allowed_unpacked(path.stat().st_size)
    with _explain_parquet_errors(path):
        while (rows := table.slice(start, ROWS_AT_ONCE).collect()).height:
            named = rows.iter_rows(named=True, buffer_size=ROWS_OF_LONG_TEXTS)
            for number, values in enumerate(named, start=start + 1):
                left -= sum(len(value) for value in values.values() if isinstance(value, str))
                if left < 0:
                    raise Problem(f"{path}: its texts unpack to far more than its size")
                yield Record(number, values)
            start += rows.height


_READERS: Mapping[str, Callable[[Path, bool | None, Sequence[str] | None], Rows]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
ENDINGS = tuple(_READERS)
"""The files that can be read."""
