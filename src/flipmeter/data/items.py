"""Record -> Item: check every row, and name the bad ones or count them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from flipmeter.data.labels import Labels, content_digest, is_blank, shorten
from flipmeter.data.places import place_fault
from flipmeter.data.tables import Record, Table
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import Item, Role, joined

LABEL = "label"
"""The column of the labels unless another is named."""

UNSLICED: Mapping[str, str] = {}
"""The columns of items that results are not sliced by, one for all of them."""

LONGEST_SLICE = 200
"""Characters of a value that items are sliced by."""

OnBad = Literal["error", "drop"]
ON_BAD: tuple[OnBad, ...] = ("error", "drop")


@dataclass(frozen=True)
class Columns:
    """The columns of an item's parts: text and label, an optional id, and further fields.

    Without a column of its own, the text is made of the other fields.
    """

    text: str = "text"
    label: str | None = LABEL
    id: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    cluster: str | None = None
    systems: Sequence[str] | None = None
    slices: Sequence[str] = ()

    def __post_init__(self) -> None:
        if "text" in self.fields:
            raise Problem("fields lists 'text' again; the main field's column is the option text")

    @property
    def texts(self) -> dict[str, str]:
        """Map the name of each field of an item to its column."""
        return {"text": self.text, **self.fields} if self.text else dict(self.fields)

    def of(self, table: Table) -> Self:
        """The columns of a table; the text is optional if there are other fields."""
        is_joined = self.fields and self.text == Columns.text and self.text not in table.columns
        return replace(self, text="") if is_joined else self

    def check(self, table: Table) -> None:
        others = (self.label, self.id, self.cluster, *(self.systems or ()), *self.slices)
        named = [name for name in others if name]
        for column in [*self.texts.values(), *named]:
            if column not in table.columns:
                there = suggestion(column, list(table.columns), with_known=True)
                way_out = UNLABELLED if column == self.label else ""
                raise Problem(f"{table.file} has no column '{column}'{there}{way_out}")


UNLABELLED = "; for a file without labels write `label: null`"


@dataclass(frozen=True)
class Bad:
    """A row that cannot be used: where, a reason to count by, and a sentence with the way out."""

    file: str
    row: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}: {self.message}"


@dataclass(frozen=True)
class ReadItems:
    """The good items of a table with their rows, and the bad rows."""

    file: str
    items: tuple[tuple[int, Item], ...]
    bad: tuple[Bad, ...] = ()


def read_items(table: Table, columns: Columns, labels: Labels, role: Role) -> ReadItems:
    """Turn every row of a table into an item or a bad row."""
    columns.check(table)
    items: list[tuple[int, Item]] = []
    bad: list[Bad] = []
    for record in table.records:
        fault = _row_fault(record, columns, labels)
        if fault:
            bad.append(Bad(table.file, record.row, *fault))
        else:
            items.append((record.row, _read_item(record, columns, labels, role)))
    return _without_repeats(ReadItems(table.file, tuple(items), tuple(bad)))


def _row_fault(record: Record, columns: Columns, labels: Labels) -> tuple[str, str] | None:
    """The reason and the message for the first thing wrong with a row, if any."""
    if record.fault:
        return "malformed", record.fault
    places = labels.task.places
    may_be_empty = places.fields if places and places.kind == "options" else ()
    for name, column in columns.texts.items():
        value = record.values.get(column)
        fault = None if name in may_be_empty and value in (None, "") else text_fault(column, value)
        if fault:
            return fault
    fault = _label_fault(record, columns, labels) if columns.label else None
    if fault:
        return fault
    if columns.id and record.values.get(columns.id) in (None, ""):
        return "no id", f"the field '{columns.id}' is empty; every row needs an id of its own"
    return None


def _label_fault(record: Record, columns: Columns, labels: Labels) -> tuple[str, str] | None:
    raw = record.values.get(columns.label or "")
    if raw is None or (isinstance(raw, str) and is_blank(raw)):
        return "no label", f"the field '{columns.label}' is empty; every row needs a label"
    if not labels.rank(raw):
        return "unknown label", labels.complaint(raw)
    places = labels.task.places
    if places and places.kind == "options":
        return place_fault(record.values, columns.texts, places, labels.rank(raw))
    return None


def text_fault(column: str, value: object) -> tuple[str, str] | None:
    """The reason and the message if a value is not a text to rate."""
    if value is None:
        return "empty", f"the field '{column}' is empty; fill it in or remove the row"
    if not isinstance(value, str):
        found = f"{shorten(value)} ({type(value).__name__})"
        return "not text", f"the field '{column}' contains {found}; it must be text"
    if is_blank(value):
        return "empty", f"the field '{column}' is empty; fill it in or remove the row"
    if "\0" in value or any("\ud800" <= mark <= "\udfff" for mark in value):
        return "not text", (
            f"the field '{column}' contains a NUL or half a surrogate pair in {shorten(value)}; "
            "remove that character"
        )
    return None


def _read_item(record: Record, columns: Columns, labels: Labels, role: Role) -> Item:
    name = record.values[columns.id] if columns.id else f"{role}-{record.row}"
    told = {key: record.values.get(column) for key, column in columns.texts.items()}
    fields = {key: "" if value is None else str(value).strip() for key, value in told.items()}
    if not columns.text:
        fields["text"] = joined(fields)
    cluster = str(record.values[columns.cluster]).strip() if columns.cluster else ""
    systems = tuple(str(record.values[column]).strip() for column in columns.systems or ())
    gold = labels.rank(record.values[columns.label]) if columns.label else None
    filed = {}
    for column in columns.slices:
        value = record.values.get(column)
        filed[column] = "" if value is None else str(value).strip()[:LONGEST_SLICE]
    return Item(str(name), fields, gold, role, cluster, systems, filed or UNSLICED)


def find_repeats(
    items: Sequence[Item], keys: Sequence[bytes]
) -> dict[int, tuple[Literal["duplicate", "contradictory"], int]]:
    """The places of items that must not be used, why, and the place of one that is the same.

    The first of equal items stays, and none where their labels differ.
    """
    groups: dict[bytes, list[int]] = {key: [] for key, n in Counter(keys).items() if n > 1}
    found: dict[int, tuple[Literal["duplicate", "contradictory"], int]] = {}
    for place, key in enumerate(keys):
        if key in groups:
            groups[key].append(place)
    for places in groups.values():
        if len({items[place].gold for place in places}) == 1:
            found |= dict.fromkeys(places[1:], ("duplicate", places[0]))
            continue
        for place in places:
            other = next(at for at in places if items[at].gold != items[place].gold)
            found[place] = "contradictory", other
    return found


def _without_repeats(reading: ReadItems) -> ReadItems:
    """Keep the first of items that are the same, and none where their labels differ."""
    items = [item for _, item in reading.items]
    repeats = find_repeats(items, [content_digest(item) for item in items])
    bad, kept = [*reading.bad], []
    rows: dict[str, int] = {}
    for place, (row, item) in enumerate(reading.items):
        if place in repeats:
            why, other = repeats[place]
            same = f"the text {shorten(item.text)} is also in row {reading.items[other][0]}"
            remedy = "the same label; remove one of them"
            if why == "contradictory":
                remedy = "a different label; keep one of them"
            bad.append(Bad(reading.file, row, why, f"{same}, with {remedy}"))
        elif (first := rows.setdefault(item.id, row)) != row:
            message = f"the id {shorten(item.id)} is also in row {first}; ids must differ"
            bad.append(Bad(reading.file, row, "repeated id", message))
        else:
            kept.append((row, item))
    return ReadItems(reading.file, tuple(kept), tuple(bad))


def without_leaks(pool: ReadItems, test: ReadItems) -> ReadItems:
    """Take out of the pool what stands in the test set: a demonstration must not give it away."""
    rows = {content_digest(item): row for row, item in test.items}
    kept, bad = [], [*pool.bad]
    for row, item in pool.items:
        leak = rows.get(content_digest(item))
        if leak is None:
            kept.append((row, item))
            continue
        message = f"the text {shorten(item.text)} is also in the test set ({test.file}, row"
        bad.append(Bad(pool.file, row, "leak", f"{message} {leak}); remove it from one of them"))
    return ReadItems(pool.file, tuple(kept), tuple(bad))


def settle_bad(readings: Iterable[ReadItems], on_bad: OnBad) -> dict[str, int]:
    """Raise on the first bad row, or count the dropped ones by reason."""
    if on_bad not in ON_BAD:
        raise Problem(f"on_bad is '{on_bad}'{suggestion(str(on_bad), list(ON_BAD))}")
    bad = [row for reading in readings for row in sorted(reading.bad, key=lambda bad: bad.row)]
    if bad and on_bad == "error":
        more = f"; {len(bad) - 1} more rows are bad" if len(bad) > 1 else ""
        raise Problem(f"{bad[0]}{more} (on_bad: drop leaves bad rows out and counts them)")
    return dict(sorted(Counter(row.reason for row in bad).items()))


def check_classes(reading: ReadItems, labels: Labels) -> None:
    """Refuse a labelled set with fewer than two classes: nothing in it can be ordered.

    Pairs and options may all have their right answer in one field (chosen, rejected): swapping
    them makes the other class.
    """
    if not reading.items:
        raise Problem(f"{reading.file} has no usable row; check its text and label columns")
    names = {labels.task.scale.name(item.gold) for _, item in reading.items if item.gold}
    if len(names) == 1 and labels.task.places is None:
        raise Problem(
            f"{reading.file}: every row has the class '{names.pop()}'; at least two classes are "
            "needed, check the label column and the scale"
        )
