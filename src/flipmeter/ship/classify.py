"""A rater card and a file of texts -> a file of labels, in parts that survive a crash."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from flipmeter.base.files.atomic import (
    discard,
    inside,
    is_same_file,
    make_folder,
    open_output,
    write_output,
)
from flipmeter.base.files.documents import read_json
from flipmeter.base.files.lock import EVERY, lock_made
from flipmeter.base.files.reading_limits import read_limited
from flipmeter.data.items import text_fault
from flipmeter.data.tables import Record, columns_of, has_column, stream_rows
from flipmeter.model import Asked, Budget, Ledger, Store, World
from flipmeter.model.backends.weights import Fetched
from flipmeter.ship.card import Card
from flipmeter.ship.card_rater import Label, Labelled, at_work, check_abstention, refuse_in_parts
from flipmeter.types import Item, Problem, Usage, joined

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
        if is_same_file(self.out, self.source):
            raise Problem(f"{self.out} contains the texts; use another --out")

    @property
    def columns(self) -> dict[str, str]:
        """The column of each field of an item."""
        return {"text": self.text, **self.fields} if self.text else dict(self.fields)

    def of_file(self) -> Job:
        """The job for the columns of its file, which may do without a text."""
        keep = tuple(columns_of(self.source)) if self.keep is None else self.keep
        is_joined = self.fields and self.text == Job.text and not has_column(self.source, self.text)
        return replace(self, keep=keep, text="" if is_joined else self.text)

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
    """Rows in the file by now, rows labelled this time, and the faults among these.

    `error` is the first that a call ended with, and of which row.
    """

    n_rows: int = 0
    n_new: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    error: str = ""

    def count(self, found: Sequence[Row]) -> None:
        self.n_rows += len(found)
        self.n_new += len(found)
        self.faults.update(row["fault"] for row in found if row["fault"])


def _with_known_columns(card: Card, job: Job) -> Job:
    """The job with the columns of the rater's own dataset for fields that it does not name."""
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
    return replace(
        job, fields={**fields, **job.fields}, text=text if text in there and text else job.text
    )


def _check_fields(card: Card, job: Job) -> None:
    """Refuse to compare answers or options that have no column: half a pair would be rated."""
    places = card.task.places
    needed = places.fields[:2] if places and places.kind == "options" else places and places.fields
    missing = [name for name in needed or () if name not in job.columns]
    if places and missing:
        raise Problem(
            f"the rater compares {', '.join(places.fields)}, but {job.source} has no column "
            f"'{missing[0]}'; pass --field {missing[0]}=COLUMN"
        )


async def classify(
    card: Card,
    job: Job,
    store: Store,
    *,
    chunk: int = CHUNK,
    anew: bool = False,
    world: World | None = None,
    budget: Budget | None = None,
    ledger: Ledger | None = None,
    on_reply: Asked | None = None,
    on_fetch: Fetched | None = None,
    on_plan: Callable[[int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> LabelCounts:
    """Label the rows that are missing in the output; `anew` starts it over, from the store.

    Each part is on disk before the next is asked: a process that dies leaves complete rows, and
    the same command continues after them. While another process writes the output, this one waits.
    """
    views = card.views()
    refuse_in_parts(card.pipeline)
    check_abstention(job.abstain_below, views, card.pipeline)
    named = job.keep or ()
    job = _with_known_columns(card, job).of_file()
    _check_fields(card, job)
    read = stream_rows(job.source, [*job.columns.values(), *named], job.keep or ())
    numbered = (replace(record, row=place) for place, record in enumerate(read, start=1))
    output = LabelFile(job.out, job.names)
    async with output.written(on_note):
        tally = LabelCounts(n_rows=output.begin(_about(card, job), anew=anew))
        stop = max(tally.n_rows, job.limit) if job.limit is not None else None
        rows = islice(numbered, tally.n_rows, stop)
        first = next(rows, None)
        if first is None:
            return tally
        async with at_work(
            card.conditions(),
            views,
            store,
            jury=card.jury,
            world=world,
            budget=budget,
            ledger=ledger,
            on_reply=on_reply,
            on_fetch=on_fetch,
            on_plan=on_plan,
            on_note=on_note,
        ) as label:
            part = [first, *islice(rows, chunk - 1)]
            while part:
                found = await _part(card, job, label, part, tally)
                output.append(found)
                tally.count(found)
                part = list(islice(rows, chunk))
    return tally


async def _part(
    card: Card, job: Job, label: Label, part: Sequence[Record], tally: LabelCounts
) -> list[Row]:
    """Label some rows of the input; rows without text are skipped."""
    faults = {record.row: _fault(card, job, record) for record in part}
    items = [_item(job, record) for record in part if not faults[record.row]]
    labelled = {one.item.id: one for one in await label(items)} if items else {}
    errors = (f"{one.item.id}: {one.error}" for one in labelled.values() if one.error)
    tally.error = tally.error or next(errors, "")
    return [
        _row(card, job, record, faults[record.row], labelled.get(_name(record))) for record in part
    ]


def _name(record: Record) -> str:
    return f"row-{record.row}"


def _item(job: Job, record: Record) -> Item:
    told = {name: record.values.get(column) for name, column in job.columns.items()}
    texts = {name: "" if value is None else str(value).strip() for name, value in told.items()}
    return Item(_name(record), texts if job.text else texts | {"text": joined(texts)})


def _fault(card: Card, job: Job, record: Record) -> str:
    """Reason why a row cannot be rated, "" if it can; its last options may be empty."""
    if record.fault:
        return "malformed"
    places = card.task.places
    rest = places.fields[2:] if places and places.kind == "options" else ()
    told = {name: record.values.get(column) for name, column in job.columns.items()}
    kept = {name: value for name, value in told.items() if name not in rest or value}
    faults = (text_fault(job.columns[name], value) for name, value in kept.items())
    return next((fault[0] for fault in faults if fault), "")


def _row(card: Card, job: Job, record: Record, fault: str, one: Labelled | None) -> Row:
    kept = {new: record.values.get(name) for name, new in job.kept.items()}
    if one is None:
        return kept | dict.fromkeys(COLUMNS) | {"row": record.row, "rank": 0, "fault": fault}
    rank, fault = one.decision.rank, one.decision.fault or ""
    if rank and job.abstain_below is not None and not one.agreement >= job.abstain_below:
        rank, fault = 0, ABSTAINED
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
        "usd": _usd(card, one.usage),
    }


def _usd(card: Card, usage: Usage) -> float | None:
    """The cost of an answer's tokens at the card's price, None if either is unknown."""
    prices = {entry.price for entry in card.members}
    price = prices.pop() if len(prices) == 1 else None  # tokens of a panel are not told apart
    if price is None or usage.prompt is None or usage.completion is None:
        return None
    return price.price.of(usage.prompt, usage.completion)


def _about(card: Card, job: Job) -> dict[str, Any]:
    """The settings that must be the same to continue an output."""
    return {
        "rater": card.digest,
        "source": job.source.name,
        "columns": job.columns,
        "keep": list(job.keep or ()),
        "abstain_below": job.abstain_below,
    }


# --- the output -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelFile:
    """A CSV or JSON-lines file that is only ever added to, whole rows at a time."""

    path: Path
    names: Sequence[str]

    @property
    def is_csv(self) -> bool:
        return self.path.suffix == ".csv"

    @property
    def about(self) -> Path:
        """The file that says what made the output."""
        return self.path.with_name(f"{self.path.name}.about.json")

    @asynccontextmanager
    async def written(self, on_note: Callable[[str], None] | None) -> AsyncIterator[None]:
        """Hold the only lock on the file, made if need be; other processes wait."""
        handle = self._locked()
        if handle is None and on_note is not None:
            on_note(f"{self.path} is being written by another process; waiting for it to finish")
        while handle is None:
            await asyncio.sleep(EVERY)
            handle = self._locked()
        try:
            yield
        finally:
            os.close(handle)
            self._tidy()

    def _locked(self) -> int | None:
        try:
            make_folder(self.path.parent)
            return lock_made(self.path, lambda: open_output(self.path, is_appended=True).close())
        except OSError as error:
            raise self._unwritable(error) from error

    def _tidy(self) -> None:
        """Remove an empty file."""
        with suppress(OSError):
            if not self.path.stat().st_size and not self.about.exists():
                discard(self.path)

    def begin(self, about: Mapping[str, Any], *, anew: bool = False) -> int:
        """Start or continue the file and return its number of rows; a torn last row is cut off."""
        inside(self.path)
        try:
            is_there = self.path.exists()
            if is_there and anew:
                # Not removed: other processes wait for a lock on this file.
                open_output(self.path).close()
            if is_there and self.path.stat().st_size:
                self._check(about)
                return self._repaired()
            make_folder(self.path.parent)
            write_output(self.about, json.dumps(about, indent=2) + "\n")
            self._write(self._header)
        except OSError as error:
            raise self._unwritable(error) from error
        return 0

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows; they are on disk when this returns."""
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in rows)
        text = self._csv(rows) if self.is_csv else "".join(f"{line}\n" for line in lines)
        try:
            self._write(text)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> Problem:
        return Problem(
            f"cannot write {self.path} ({error.strerror}); free some space or use another --out: "
            "all replies so far are in the store"
        )

    @property
    def _header(self) -> str:
        names = dict(zip(self.names, self.names, strict=True))
        return self._csv([names]) if self.is_csv else ""

    def _csv(self, rows: Sequence[Row]) -> str:
        text = io.StringIO(newline="")
        cells = ({name: _cell(value) for name, value in row.items()} for row in rows)
        csv.DictWriter(text, self.names, lineterminator="\n").writerows(cells)
        return text.getvalue()

    def _write(self, text: str) -> None:
        with open_output(self.path, is_appended=True) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())

    def _check(self, about: Mapping[str, Any]) -> None:
        try:
            known = read_json(read_limited(self.about), self.about.name)
        except (OSError, Problem):
            known = None
        if known != about:
            before = known if isinstance(known, dict) else {}
            what = ", ".join(k for k in about if k not in before or before[k] != about[k])
            raise Problem(
                f"{self.path} already exists and was made by another command (different {what}); "
                "use another --out, or --anew to start it over"
            )

    def _repaired(self) -> int:
        """Cut off what follows the last complete row, and count the rows."""
        last = deque(self._row_ends(), maxlen=1)
        n_rows, end = last[0] if last else (0, 0)
        with open_output(self.path, is_appended=True) as file:
            file.truncate(end)
        if not end:
            self._write(self._header)
        return max(0, n_rows - self.is_csv)

    def _row_ends(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each complete row and where it ends; a quoted text may have lines."""
        n_rows = end = n_quotes = 0
        with self.path.open("rb") as file:
            for line in file:
                end += len(line)
                n_quotes += line.count(b'"') if self.is_csv else 0
                if line.endswith(b"\n") and n_quotes % 2 == 0:
                    n_rows += 1
                    yield n_rows, end


def _cell(value: Any) -> Any:
    """A value for a cell of CSV: what CSV has no type for is written as in JSON."""
    is_json = isinstance(value, bool | dict | list)
    return json.dumps(value, ensure_ascii=False, default=str) if is_json else value
