"""File -> Record, one after the other: a file may be larger than memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import polars as pl
from polars import selectors as cs

from flipmeter.data.records import Record, has_semicolons
from flipmeter.registry import suggestion
from flipmeter.types import Problem

ROWS_AT_ONCE = 4096
LONGEST_FIELD = 2**27
"""Characters; a quote that is never closed must not take the rest of a large file for a text."""


def stream_rows(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """Yield the rows of a CSV, JSON-lines or Parquet file, numbered from 1, few held at once.

    A column that is not there is refused before the first row; a row that cannot be read comes
    with its fault.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise Problem(f"{path}: cannot read '{path.suffix}' files; use one of {known}")
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise Problem(f"{path} {what} (looked in {path.absolute().parent}); check the path")
    rows = reader(path, columns)
    first = next(rows, None)
    if first is None:
        raise Problem(f"{path} has no rows; there is nothing to label")
    return chain([first], rows)


def has_column(path: Path, name: str) -> bool:
    """Say whether a file can be read and has a column."""
    try:
        stream_rows(path, [name])
    except Problem:
        return False
    return True


def check_columns(path: Path, wanted: Sequence[str], there: Sequence[str]) -> None:
    """Refuse a column that a file has not."""
    for name in wanted:
        if name not in there:
            near = suggestion(name, list(there))
            raise Problem(f"{path} has no column '{name}'{near}")


def _stream_csv(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    row = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = ";" if has_semicolons(file.readline()) else ","
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            rows = (fields for fields in reader if fields)
            header = [name.strip() for name in next(rows, [])]
            if header:
                check_columns(path, columns, header)
                _refuse_repeated(path, columns, header)
            for row, fields in enumerate(rows, start=1):
                yield _csv_record(row, fields, header)
    except csv.Error as error:
        raise Problem(
            f"{path}, row {row + 1}: broken quoting ({error}); double the quotes inside a text"
        ) from error
    except UnicodeDecodeError as error:
        raise _not_utf8(path, row) from error


def _refuse_repeated(path: Path, wanted: Sequence[str], header: Sequence[str]) -> None:
    for name in wanted:
        if header.count(name) > 1:
            raise Problem(f"{path} has more than one column named '{name}'; rename the others")


def _csv_record(row: int, fields: list[str], header: list[str]) -> Record:
    if len(fields) == len(header):
        return Record(row, dict(zip(header, fields, strict=True)))
    return Record(row, fault=f"{len(fields)} fields where the header has {len(header)}")


def _stream_json_lines(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    row, is_checked = 0, False
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for row, line in enumerate((line for line in file if line.strip()), start=1):
                record = _json_record(row, line)
                if not record.fault and not is_checked:
                    check_columns(path, columns, list(record.values))
                    is_checked = True
                yield record
    except UnicodeDecodeError as error:
        raise _not_utf8(path, row) from error


def _json_record(row: int, line: str) -> Record:
    try:
        content = json.loads(line, parse_constant=lambda _: None)  # NaN is no value
    except (ValueError, RecursionError) as error:
        return Record(row, fault=f"malformed JSON ({error})")
    return Record(row, content) if isinstance(content, dict) else Record(row, fault="no object")


def _stream_parquet(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    try:
        check_columns(path, columns, list(pl.read_parquet_schema(path)))
        table = pl.scan_parquet(path).select(list(dict.fromkeys(columns)))
        table = table.with_columns(cs.float().fill_nan(None))
        start = 0
        while rows := table.slice(start, ROWS_AT_ONCE).collect().to_dicts():
            yield from (Record(start + k, values) for k, values in enumerate(rows, start=1))
            start += len(rows)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise Problem(f"{path} is no readable Parquet file ({reason}); write it again") from error


def _not_utf8(path: Path, row: int) -> Problem:
    return Problem(f"{path}, behind row {row}: not UTF-8; save the file as UTF-8")


_READERS: Mapping[str, Callable[[Path, Sequence[str]], Iterator[Record]]] = {
    ".csv": _stream_csv,
    ".jsonl": _stream_json_lines,
    ".ndjson": _stream_json_lines,
    ".parquet": _stream_parquet,
}
