"""A rater card and a file of texts -> a file of labels, which grows as a part until it is whole."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

from pydantic import Field, TypeAdapter

from flipmeter.ask.family import World
from flipmeter.ask.store import Store
from flipmeter.choose.card import Card
from flipmeter.choose.card_rater import Label, Labelled, at_work, check_abstention, refuse_in_parts
from flipmeter.data.items import text_fault
from flipmeter.data.tables import Record, columns_of, has_column, stream_rows
from flipmeter.documents import DOCUMENT_BYTES, read_json
from flipmeter.errors import Incomplete, Problem
from flipmeter.files import (
    discard,
    is_same_file,
    lock_made,
    make_folder,
    open_output,
    refuse_link,
    sync_folder,
)
from flipmeter.run.progress import Terms
from flipmeter.types import Item, joined

CHUNK = 500
"""Rows that are asked and written together."""
COLUMNS = (
    "row",
    "label",
    "rank",
    "agreement",
    "fault",
    "calls",
    "prompt_tokens",
    "completion_tokens",
    "usd",
)
ABSTAINED = "abstained"
Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """The input of classify: a file, the columns of an item's fields, and the columns to keep.

    Without a column `text`, the text is made of the further fields. All columns are kept unless
    `keep` names some. `abstain_below` is the share of positions that must agree; a row with less
    has no label.
    """

    source: Path
    out: Path
    text: str = "text"
    fields: Mapping[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] | None = None
    limit: int | None = None
    abstain_below: float | None = None

    def __post_init__(self) -> None:
        if self.out.suffix not in (".csv", ".jsonl"):
            raise Problem(
                f"cannot write {self.out}: a file that can be continued ends in .csv or .jsonl"
            )
        try:
            self.about.exists()  # an error where a name is too long
            is_source = [is_same_file(p, self.source) for p in (self.out, self.part, self.about)]
        except OSError as error:
            raise Problem(
                f"cannot write {self.out} ({error.strerror}); use another --out"
            ) from error
        if any(is_source):
            raise Problem(f"{self.out} contains the texts; use another --out")

    @property
    def part(self) -> Path:
        """The output until it is whole: the header and complete rows."""
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def about(self) -> Path:
        """The record of what made the output or its part, and of the rows that it labels."""
        return self.out.with_name(f"{self.out.name}.about.jsonl")

    @property
    def columns(self) -> dict[str, str]:
        """The column of each field of an item."""
        return {"text": self.text, **self.fields} if self.text else dict(self.fields)

    @property
    def kept(self) -> dict[str, str]:
        """The name in the output of each column that is kept; one of ours gets a prefix."""
        found: dict[str, str] = {}
        for name in self.keep or ():
            new = name
            while new in COLUMNS or (new != name and new in (self.keep or ())):
                new = f"input_{new}"
            found[name] = new
        return found

    @property
    def names(self) -> list[str]:
        return [*self.kept.values(), *COLUMNS]


@dataclass
class LabelCounts:
    """Rows in the file by now, rows labelled this time, and the faults in the file.

    `error` is the first that a call ended with this time, and of which row.
    """

    n_rows: int = 0
    n_new: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    error: str = ""

    def count(self, found: Sequence[Row]) -> None:
        self.n_rows += len(found)
        self.n_new += len(found)
        self.faults.update(row["fault"] for row in found if row["fault"])


def _of_card(job: Job, card: Card) -> Job:
    """The job with the columns of the rater's own dataset for fields that it does not name.

    Without a column for half of a pair or list of options, that half would be rated: it is refused.
    """
    source = card.selected.source if card.selected else ""
    told: Mapping[str, Any] = source if isinstance(source, dict) else {}
    places = card.task.places
    usual = {name: name for name in places.fields} if places else {}
    there = {*columns_of(job.source)}
    fields = {
        name: column
        for name, column in {**usual, **(told.get("fields") or {})}.items()
        if column in there
    }
    text = told.get("text") if job.text == Job.text and Job.text not in there else None
    fields, text = {**fields, **job.fields}, text if text and text in there else job.text
    is_joined = fields and text == Job.text and not has_column(job.source, text)
    keep = tuple(columns_of(job.source)) if job.keep is None else job.keep
    found = replace(job, fields=fields, text="" if is_joined else text, keep=keep)
    needed = places.fields[:2] if places and places.kind == "options" else places and places.fields
    missing = [name for name in needed or () if name not in found.columns]
    if places and missing:
        raise Problem(
            f"the rater compares {', '.join(places.fields)}, but {job.source} has no column "
            f"'{missing[0]}'; pass --field {missing[0]}=COLUMN"
        )
    return found


async def classify(
    card: Card,
    job: Job,
    store: Store,
    terms: Terms | None = None,
    *,
    chunk: int = CHUNK,
    anew: bool = False,
    world: World | None = None,
) -> LabelCounts:
    """Label the rows that are missing in the output; `anew` starts it over, from the store.

    Each part is on disk before the next is asked: a process that dies leaves complete rows, and
    the same command continues after them. An output of other rows is refused.
    """
    views = card.views()
    refuse_in_parts(card.pipeline)
    check_abstention(job.abstain_below, views, card.pipeline)
    named, stamp = job.keep or (), _file_stamp(job.source)
    job = _of_card(job, card)
    read = stream_rows(job.source, [*job.columns.values(), *named], job.keep or ())
    numbered = (replace(record, row=place) for place, record in enumerate(read, start=1))
    settings = {  # those that must be the same to continue an output
        "rater": card.digest,
        "source": job.source.name,
        "fields": job.columns,
        "columns": list(job.keep or ()),
        "abstain_below": job.abstain_below,
    }
    with LabelFile(job, settings).written() as output:
        tally = output.begin(numbered, anew=anew)
        left = None if job.limit is None else max(0, job.limit - tally.n_rows)
        parts = _iter_record_chunks(job.source, stamp, islice(numbered, left), chunk)
        first = next(parts, None)
        if first is None:
            return output.finish(tally)
        async with at_work(
            card.conditions(),
            views,
            store,
            terms or Terms(),
            jury=card.jury,
            world=world,
        ) as label:
            for records in chain([first], parts):
                found = await _label_records(card, job, label, records, tally)
                output.append(records, found)
                tally.count(found)
        return output.finish(tally)


def _iter_record_chunks(
    source: Path, stamp: tuple[int, ...], rows: Iterator[Record], size: int
) -> Iterator[list[Record]]:
    """Yield rows that are asked together, as long as the file is the one that was opened."""
    while True:
        records = list(islice(rows, size))
        if _file_stamp(source) != stamp:
            raise Incomplete(
                f"{source} was changed while it was being labelled; run the same command again: it "
                "continues if the rows that have labels are still the same"
            )
        if not records:
            return
        yield records


def _file_stamp(path: Path) -> tuple[int, ...]:
    """The state of a file, which changes when it is replaced or written to; empty without one."""
    try:
        told = path.stat()
    except OSError:
        return ()
    return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns


async def _label_records(
    card: Card, job: Job, label: Label, part: Sequence[Record], tally: LabelCounts
) -> list[Row]:
    """Label some rows of the input; rows without text are skipped."""
    faults = {record.row: _record_fault(card, job, record) for record in part}
    items = []
    for record in (one for one in part if not faults[one.row]):
        told = {name: record.values.get(column) for name, column in job.columns.items()}
        texts = {name: "" if value is None else str(value).strip() for name, value in told.items()}
        items.append(
            Item(f"row-{record.row}", texts if job.text else texts | {"text": joined(texts)})
        )
    labelled = {one.item.id: one for one in await label(items)} if items else {}
    errors = (f"{one.item.id}: {one.error}" for one in labelled.values() if one.error)
    tally.error = tally.error or next(errors, "")
    return [
        _output_row(card, job, record, faults[record.row], labelled.get(f"row-{record.row}"))
        for record in part
    ]


def _record_fault(card: Card, job: Job, record: Record) -> str:
    """Reason why a row cannot be rated, "" if it can; its last options may be empty."""
    if record.fault:
        return "malformed"
    places = card.task.places
    rest = places.fields[2:] if places and places.kind == "options" else ()
    told = {name: record.values.get(column) for name, column in job.columns.items()}
    kept = {name: value for name, value in told.items() if name not in rest or value}
    faults = (text_fault(job.columns[name], value) for name, value in kept.items())
    return next((fault[0] for fault in faults if fault), "")


def _output_row(card: Card, job: Job, record: Record, fault: str, one: Labelled | None) -> Row:
    kept = {new: record.values.get(name) for name, new in job.kept.items()}
    if one is None:
        return kept | dict.fromkeys(COLUMNS) | {"row": record.row, "rank": 0, "fault": fault}
    rank, fault = one.decision.rank, one.decision.fault or ""
    if rank and job.abstain_below is not None and not one.agreement >= job.abstain_below:
        rank, fault = 0, ABSTAINED
    prices, usd = {entry.price for entry in card.members}, None
    price = prices.pop() if len(prices) == 1 else None  # tokens of a panel are not told apart
    if price and one.usage.prompt is not None and one.usage.completion is not None:
        usd = price.price.of(one.usage.prompt, one.usage.completion)
    return {
        **kept,
        "row": record.row,
        "label": card.task.task.scale.name(rank) if rank else None,
        "rank": rank if not rank or not card.task.span else None,
        "agreement": None if math.isnan(one.agreement) else round(one.agreement, 6),
        "fault": fault,
        "calls": one.n_calls,
        "prompt_tokens": one.usage.prompt,
        "completion_tokens": one.usage.completion,
        "usd": usd,
    }


# --- the output -------------------------------------------------------------------------------

WHOLE = b'"whole"\n'
"""The last line about an output of all rows of its input, and not only of those up to a limit."""


class LabelFile:
    """The output of a job: a CSV or JSON-lines file that is a part until every row is settled.

    The file about it has a line for the settings and one for each row, written before the row: a
    part that is torn lacks rows, but has none that is not known.
    """

    def __init__(self, job: Job, settings: Mapping[str, Any]) -> None:
        self.job, self.settings = job, settings
        self.names, self.is_csv = job.names, job.out.suffix == ".csv"
        self._is_replacing, self._finished = False, tuple[int, ...]()
        self._part: _Appended | None = None
        self._about: _Appended | None = None

    @contextmanager
    def written(self) -> Iterator[LabelFile]:
        """Hold the only lock on the output; another process is refused."""
        path = self.job.about
        with self._writable():
            for one in (self.job.out, self.job.part, path):
                refuse_link(one)
                if one.exists() and not one.is_file():
                    raise Problem(f"{one} is not a file; use another --out")
            make_folder(path.parent)
            handle = lock_made(path, lambda: open_output(path, is_appended=True).close())
        if handle is None:
            raise Problem(
                f"{self.job.out} is being written by another process; wait until that has ended, "
                "or use another --out"
            )
        try:
            yield self
        finally:
            for file in filter(None, (self._part, self._about)):
                file.close()
            with suppress(OSError):
                if not path.stat().st_size:
                    discard(path)
            os.close(handle)

    @contextmanager
    def _writable(self, kind: type[Problem] = Problem) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise kind(
                f"cannot write {self.job.out} ({error.strerror}); free some space or use another "
                "--out: all replies so far are in the store"
            ) from error

    def begin(self, records: Iterator[Record], *, anew: bool = False) -> LabelCounts:
        """Start the output, or go past the rows of the input that it has; a torn row is cut off."""
        part, out = self.job.part, self.job.out
        is_part, self._finished = part.exists(), _file_stamp(out)
        with self._writable():
            if anew or not (is_part or out.exists()):
                self._start(is_replacing=anew and out.exists())
                return LabelCounts()
            tally, n_about, n_part = self._checked(part if is_part else out, records)
            if is_part:
                self._about = _Appended(self.job.about, n_about)
                self._part = _Appended(part, n_part)
                self._part.add(self._header[n_part:])
        return tally

    def _start(self, *, is_replacing: bool) -> None:
        self._is_replacing = is_replacing
        discard(self.job.part)
        self._about = _Appended(self.job.about, 0)  # not removed: it has the lock
        begun = {"settings": self.settings, "is_replacing": is_replacing}
        self._about.add(f"{json.dumps(begun)}\n".encode())
        self._part = _Appended(self.job.part)
        self._part.add(self._header)

    def append(self, records: Sequence[Record], rows: Sequence[Row]) -> None:
        """Add rows; they are on disk when this returns."""
        lines = [self._line(row) for row in rows]
        about = [
            [self._digest_of(record), _content_digest(line), len(line), row["fault"]]
            for record, row, line in zip(records, rows, lines, strict=True)
        ]
        with self._writable(Incomplete):
            if self._part is None or self._about is None:
                if _file_stamp(self.job.out) != self._finished:
                    raise _output_changed(self.job.out)
                self.job.out.rename(self.job.part)
                self._about, self._part = _Appended(self.job.about), _Appended(self.job.part)
            self._about.add("".join(f"{json.dumps(one)}\n" for one in about).encode())
            self._part.add(b"".join(lines))

    def finish(self, tally: LabelCounts) -> LabelCounts:
        """Give the part its name, now that every row is settled."""
        if self._part is None or self._about is None:
            return tally
        with self._writable(Incomplete):
            if self.job.limit is None or tally.n_rows < self.job.limit:
                self._about.add(WHOLE)
            self._part.check()
            self._refuse_other()
            self.job.part.replace(self.job.out)
            sync_folder(self.job.out.parent)
        return tally

    def _refuse_other(self) -> None:
        """Refuse to take the place of a file that was not there at the start."""
        if os.path.lexists(self.job.out) and not self._is_replacing:
            raise Incomplete(
                f"{self.job.out} is in the place of {self.job.part}; move it away and run the same "
                "command again"
            )

    def _checked(self, path: Path, records: Iterator[Record]) -> tuple[LabelCounts, int, int]:
        """Compare the settings with those of an output and, row by row, its digests with the input.

        Also give the end of the last complete row, in the file about it and in its own.
        """
        tally, header, size = LabelCounts(), self._header, path.stat().st_size
        with self.job.about.open("rb") as about, path.open("rb") as written:
            self._check_made(about.readline(DOCUMENT_BYTES), path)
            begun = written.read(len(header))
            if not header.startswith(begun):
                _refuse_output(f"the header of {path} was changed")
            ends, is_torn = (about.tell(), written.tell()), begun != header
            while (row := _settled_row(line := about.readline(DOCUMENT_BYTES))) is not None:
                found = written.read(min(row.n_bytes, size))
                if len(found) < row.n_bytes and not self._is_complete(found):
                    is_torn = True
                    break
                self._check_row(path, tally.n_rows + 1, row, found, next(records, None))
                tally.n_rows += 1
                tally.faults.update([row.fault] if row.fault else [])
                ends = about.tell(), written.tell()
            if not is_torn and written.read(1):
                _refuse_output(f"{path} has more rows than the {tally.n_rows:,} that were written")
        if is_torn and path == self.job.out:
            _refuse_output(f"row {tally.n_rows + 1:,} of {path} was changed since it was written")
        if line == WHOLE and next(records, None) is not None:
            _refuse_output(f"{self.job.source} has more rows than the {tally.n_rows:,} of {path}")
        return tally, *ends

    def _check_made(self, begun: bytes, path: Path) -> None:
        try:
            known = read_json(begun, self.job.about.name)
        except Problem:
            known = None
        before = known.get("settings") if isinstance(known, dict) else None
        if not isinstance(before, dict):
            _refuse_output(f"{self.job.about} does not say what made {path}")
        what = [k for k in self.settings if k not in before or before[k] != self.settings[k]]
        if what:
            _refuse_output(f"{path} was made by another command (different {', '.join(what)})")
        self._is_replacing = known.get("is_replacing") is True
        if path == self.job.part:
            self._refuse_other()

    def _check_row(
        self, path: Path, n: int, row: Settled, found: bytes, record: Record | None
    ) -> None:
        if _content_digest(found) != row.written:
            _refuse_output(f"row {n:,} of {path} was changed since it was written")
        if record is None:
            _refuse_output(f"{self.job.source} has {n - 1:,} rows, fewer than {path}")
        if self._digest_of(record) != row.given:
            _refuse_output(f"row {n:,} of {self.job.source} is not the one that {path} labels")

    def _digest_of(self, record: Record) -> str:
        """Digest of all that is asked about a row of the input, or kept of it."""
        names = (*self.job.columns.values(), *(self.job.keep or ()))
        told = [record.fault, *(record.values.get(name) for name in names)]
        return _content_digest(json.dumps(told, default=str).encode())

    def _is_complete(self, row: bytes) -> bool:
        return row.endswith(b"\n") and not (self.is_csv and row.count(b'"') % 2)

    @property
    def _header(self) -> bytes:
        named = dict(zip(self.names, self.names, strict=True))
        return self._line(named) if self.is_csv else b""

    def _line(self, row: Row) -> bytes:
        if not self.is_csv:
            line = json.dumps(row, ensure_ascii=False, default=str)
        else:
            text = io.StringIO(newline="")
            cells = {name: _csv_cell(value) for name, value in row.items()}
            # Before Python 3.13 a line break is quoted only if it is one of the line's own.
            csv.DictWriter(text, self.names, lineterminator="\r\n").writerow(cells)
            line = text.getvalue().removesuffix("\r\n")
        return f"{line}\n".encode("utf-8", "backslashreplace")


class Settled(NamedTuple):
    """A row of an output: digests of its input and of what is written, the bytes of this."""

    given: str
    written: str
    n_bytes: Annotated[int, Field(gt=0)]
    fault: str


_SETTLED = TypeAdapter(Settled)


def _settled_row(line: bytes) -> Settled | None:
    """The row that a line is about, None where these end."""
    try:
        return _SETTLED.validate_json(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _content_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _refuse_output(what: str) -> NoReturn:
    raise Problem(f"{what}; use another --out, or --anew to start over")


def _output_changed(path: Path) -> Incomplete:
    return Incomplete(
        f"{path} was removed, replaced or changed while it was being written; all replies so far "
        "are in the store: run the same command again with --anew"
    )


class _Appended:
    """A file that only we add to: others that remove it, replace it or write to it are noticed."""

    def __init__(self, path: Path, n_bytes: int | None = None) -> None:
        """Open a file, cut off after so many bytes."""
        self.path, self.file = path, open_output(path, is_appended=True)
        if n_bytes is not None:
            self.file.truncate(n_bytes)
        self.n_bytes = os.fstat(self.file.fileno()).st_size

    def check(self) -> None:
        told = os.fstat(self.file.fileno())
        with suppress(OSError):
            if os.path.samestat(told, self.path.lstat()) and told.st_size == self.n_bytes:
                return
        raise _output_changed(self.path)

    def add(self, content: bytes) -> None:
        """Add what is on disk when this returns."""
        self.check()
        self.file.write(content)
        self.file.flush()
        os.fsync(self.file.fileno())
        self.n_bytes += len(content)

    def close(self) -> None:
        with suppress(OSError):
            self.file.close()


def _csv_cell(value: Any) -> Any:
    """A value for a cell of CSV: what CSV has no type for is written as in JSON."""
    is_json = isinstance(value, bool | dict | list)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else value
