"""File -> Record: read rows of CSV, TSV, JSON lines and Parquet with their numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from polars import selectors as cs

from flipmeter.types import Problem


@dataclass(frozen=True)
class Record:
    """One row as it stands in a file; `fault` says why it could not be read."""

    row: int
    values: Mapping[str, object] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Table:
    """The rows of a file and the columns there are; rows count from 1, lines with the header."""

    file: str
    columns: tuple[str, ...]
    records: tuple[Record, ...]


def read_table(
    path: Path, quotes: bool | None = None, *, needs: str = "a text and a label"
) -> Table:
    """Read a file by its suffix. `quotes` says whether a CSV or TSV quotes its fields.

    A CSV does unless told; a TSV does where its first field or a doubled quote inside one shows it.
    `needs` is what a file without rows is told to have.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise Problem(
            f"{path}: cannot read '{path.suffix}' files; use one of {', '.join(_READERS)}"
        )
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise Problem(f"{path} {what} (looked in {path.absolute().parent}); check the path")
    try:
        table = reader(path, quotes)
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror or error}") from error
    if not table.records:
        raise Problem(f"{path} has no rows; it needs at least two, each with {needs}")
    if not table.columns:
        bad = table.records[0]
        raise Problem(f"{path}, row {bad.row}: {bad.fault or 'no fields'}; no row can be read")
    return table


def read_text(path: Path) -> str:
    """Return a file's text, which must be UTF-8 without NUL; a byte order mark is skipped."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Problem(f"{path} is UTF-16; save it as UTF-8")
    nul = content.find(b"\0")
    if nul >= 0:
        raise Problem(f"{path}, {_place(content, nul)}: a NUL byte; is this a text file? remove it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # utf-8-sig counts from behind the mark
        start = error.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        raise Problem(
            f"{path}, {_place(content, start)}: byte 0x{content[start]:02x} is not UTF-8; "
            "save the file as UTF-8 (iconv -f latin1 -t utf-8, if it is Latin-1)"
        ) from None


def _place(content: bytes, offset: int) -> str:
    line = content.count(b"\n", 0, offset) + 1
    return f"line {line} (byte offset {offset})"


def _read_csv(path: Path, quotes: bool | None) -> Table:
    return _read_separated(path, ",", quotes is not False)


def _read_tsv(path: Path, quotes: bool | None) -> Table:
    return _read_separated(path, "\t", quotes)


def _read_separated(path: Path, separator: str, quotes: bool | None) -> Table:
    text = read_text(path)
    if separator == "," and has_semicolons(text):
        separator = ";"
    if quotes is None:
        quotes = re.search(r'\A"|(?:^|\t)"[^\t\n]*""', text, re.M) is not None
    rows = quoted_rows(path, text, separator) if quotes else _plain_rows(text, separator)
    _, header = next(rows, (0, []))
    columns = tuple(name.strip() for name in header)
    # Spreadsheets leave empty columns behind; nobody can ask for one without a name.
    repeated = sorted({name for name in columns if name and columns.count(name) > 1})
    if repeated:
        raise Problem(f"{path} has more than one column named {repeated}; rename the others")
    hint = "set quotes: true if it quotes texts" if not quotes else "quote texts that contain one"
    records = tuple(_separated_record(row, fields, columns, hint) for row, fields in rows)
    return Table(str(path), columns, records)


def has_semicolons(text: str) -> bool:
    """Say whether a CSV separates by semicolons, as spreadsheets do where commas are decimal."""
    header = text.partition("\n")[0]
    return ";" in header and "," not in header


def _separated_record(row: int, fields: list[str], columns: tuple[str, ...], hint: str) -> Record:
    if len(fields) == len(columns):
        return Record(row, dict(zip(columns, fields, strict=True)))
    fault = f"{len(fields)} fields where the header has {len(columns)}; {hint}"
    return Record(row, fault=fault)


def quoted_rows(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the fields of each row; a quoted field may span lines."""
    # The limit of the csv module (131,072 characters) is global and there against broken quotes,
    # which `strict` reports.
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
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


def _plain_rows(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    for line, content in enumerate(text.split("\n"), start=1):
        if content.rstrip("\r"):
            yield line, content.rstrip("\r").split(separator)


def _read_json_lines(path: Path, _: bool | None) -> Table:
    # Only "\n" ends a line: a JSON text may hold U+2028 and its kind as they are.
    lines = enumerate(read_text(path).split("\n"), start=1)
    records = tuple(_json_record(row, line) for row, line in lines if line.strip())
    columns = tuple(dict.fromkeys(name for record in records for name in record.values))
    return Table(str(path), columns, records)


def _json_record(row: int, line: str) -> Record:
    try:
        content = json.loads(line, parse_constant=lambda _: None)  # NaN is no value
    except (ValueError, RecursionError) as error:
        return Record(row, fault=f"malformed JSON ({error}); one complete object a line")
    if not isinstance(content, dict):
        return Record(row, fault=f"a JSON {type(content).__name__}; one object with fields a line")
    return Record(row, content)


def _read_parquet(path: Path, _: bool | None) -> Table:
    try:
        frame = pl.read_parquet(path).with_columns(cs.float().fill_nan(None))
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(f"{path} is no readable Parquet file ({reason}); write it again") from error
    rows = enumerate(frame.iter_rows(named=True), start=1)
    return Table(
        str(path), tuple(frame.columns), tuple(Record(row, values) for row, values in rows)
    )


_READERS: Mapping[str, Callable[[Path, bool | None], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".parquet": _read_parquet,
}
