"""Table -> decisions: existing answers row by row; a judge's verdicts as one answer a row.

Verdicts in both orders may stand side by side (columns `as_given` and `swapped`), or under each
other with the order as their condition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from shlex import quote
from typing import Any

import polars as pl

from flipmeter.checks import read_number
from flipmeter.data.labels import NOMINAL, Labels, read_labels, shorten, span_spec
from flipmeter.data.places import by_lean, read_exchange
from flipmeter.data.tables import Record, Table
from flipmeter.errors import Problem
from flipmeter.prompt.probes import expand, place_order, probes
from flipmeter.registry import suggestion
from flipmeter.run.rows import DECISION, OF_SCORES, scored
from flipmeter.types import FAULTS, Item, Rank, Scale, Span, Task, View

AS_GIVEN = ("as_given", "as given", "given", "original")
SWAPPED = ("swapped", "swap")
"""Common names of the two orders of the answers that a judge compares."""
PAIR = ("a", "b")
_ANY = Item("any", dict.fromkeys(PAIR, "-"))


def unfolded(table: Table) -> Table:
    """A table whose orders stand side by side, with a row for each; any other as it is."""
    given, swapped = (
        next((name for name in names if name in table.columns), "") for names in (AS_GIVEN, SWAPPED)
    )
    if not given or not swapped or {"condition", "view"} & {*table.columns}:
        return table
    columns = tuple(name for name in table.columns if name not in (given, swapped))
    records = []
    for record in table.records:
        shared = {name: record.values.get(name) for name in columns}
        for condition, column in (("base", given), ("swapped", swapped)):
            told = {"condition": condition, "label": record.values.get(column)}
            records.append(replace(record, values={**shared, **told}))
    return replace(table, columns=(*columns, "condition", "label"), records=tuple(records))


def view_of(name: str, conditions: Collection[str]) -> str:
    """The name of our view for an order, in a table that has both."""
    is_pair = any(one in conditions for one in SWAPPED)
    if is_pair and name in AS_GIVEN:
        return "base"
    return "swapped" if is_pair and name in SWAPPED else name


def pair_task(task: Task) -> Task | None:
    """A task whose classes say which of two answers is better, None if they do not."""
    try:
        places = read_exchange(PAIR, task.scale, PAIR)
    except Problem:
        return None
    return replace(task, places=places)


def verdict_classes(labels: Sequence[str]) -> list[str]:
    """Labels that say which of two answers is better, best for the second first; else none."""
    task = pair_task(Task(Scale(tuple(labels)))) if len(labels) > 1 else None
    return by_lean(task.places, labels) if task and task.places else []


def where_won(task: Task | None, view: str, rank: Rank | None, slot: int) -> int:
    """The place of the winner: the slot if the table has it, else from its order."""
    if task is None or task.places is None:
        return slot if slot in (1, 2) else 0
    field = task.favoured(rank or 0)
    if field is None:
        return 0
    return slot if slot in (1, 2) else place_order(_ANY, task.places, view).index(field) + 1


MOST_GUESSED = 101
"""A guessed scale has no more classes than 0 to 100; larger numbers are not labels."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "item": ("item", "id"),
    "view": ("condition", "view"),
    "label": ("label", "prediction", "rank"),
    "gold": ("gold",),
    "rater": ("model", "rater", "judge"),
    "strategy": ("strategy",),
    "dataset": ("dataset", "subset"),
    "level": ("level",),
    "seed": ("seed",),
    "repeat": ("repeat",),
    "slot": ("slot",),
    "fault": ("fault",),
    "text": ("text",),
    "cluster": ("cluster",),
    "system_a": ("system_a",),
    "system_b": ("system_b",),
}
"""The parts of a table, and the possible names of their columns."""
NEEDED = ("item", "view", "label")
ROUNDED = 0.05
"""Probabilities may add up to this much more or less than 1."""
SHARE = "p_"
"""The prefix of columns with probabilities: `p_negative`."""
CARRIED = tuple(name for name in DECISION.kinds.names()[11:] if name != "n_classes")
"""Further columns of our own decisions, taken as they are."""

MOST_DIGITS = 18
"""A longer number has no place in a table."""

Key = tuple[str, str, str, int, str, int, str]


@dataclass
class PredictionRows:
    """A table on its way to decisions: which column says what, and the scale of each dataset."""

    table: Table
    scale: tuple[str, ...]
    name: str
    span: Span | None = None
    notes: list[str] = field(default_factory=list)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def columns(self) -> dict[str, str]:
        there = self.table.columns
        found = {
            part: next((name for name in names if name in there), "")
            for part, names in COLUMNS.items()
        }
        missing = [COLUMNS[part][0] for part in NEEDED if not found[part]]
        if missing:
            near = suggestion(missing[0], [*there], with_known=True)
            raise Problem(
                f"{self.table.file} has no column '{missing[0]}'{near}; a table of predictions "
                "needs item, condition and label, and gold for accuracy"
            )
        return {part: name for part, name in found.items() if name}

    @property
    def is_ranked(self) -> bool:
        """Say whether these are decisions of ours, whose classes are ranks and 0 is none."""
        return self.columns["label"] == "rank" and "n_classes" in self.table.columns

    @cached_property
    def labels(self) -> dict[str, Labels]:
        """The label readers by dataset."""
        names = dict.fromkeys(self._text(record, "dataset", self.name) for record in self._records)
        if not self.is_ranked or self.scale or self.span:
            return dict.fromkeys(names, self._told_labels())
        own: dict[str, tuple[int, Span | None]] = {}
        for record in self._records:
            dataset = self._text(record, "dataset", self.name)
            size = self._whole(record, "n_classes", default=0)
            own[dataset] = max(own.get(dataset, (0, None))[0], size), self._own_span(record)
        return {
            name: read_labels([*range(1, size + 1)] if span is None else span_spec(span))
            for name, (size, span) in own.items()
        }

    def _own_span(self, record: Record) -> Span | None:
        """The range of scores that a decision of ours names."""
        low, high = (read_number(record.values.get(name)) for name in ("scale_from", "scale_to"))
        if low is None or high is None:
            return None
        tolerance = self._whole(record, "tolerance", default=0)
        return Span(low, high, tolerance * Span(low, high).step)

    def _told_labels(self) -> Labels:
        """Labels on the scale that was named; `nominal` alone takes every label for a class."""
        if self.span is not None:
            return read_labels(span_spec(self.span))
        if self.scale[:1] != (NOMINAL,):
            declared = self.table.orders.get(self.columns["label"])
            return read_labels(list(self.scale or declared or self._guessed()))
        said = [self._text(r, part) for r in self._records for part in ("label", "gold")]
        named = self.scale[1:]
        return read_labels({NOMINAL: list(named)} if named else NOMINAL, found=said)

    def _guessed(self) -> list[str]:
        """The verdicts of a judge, or the whole numbers from the least to the greatest."""
        said = [self._text(r, part) for r in self._records for part in ("label", "gold")]
        known = list(dict.fromkeys(text for text in said if text))
        numbers = [int(text.removesuffix(".0")) for text in known if _is_whole(text)]
        if not known:
            raise Problem(
                f"{self.table.file}: no row has a label in '{self.columns['label']}'; fill it "
                f"in, or pass the classes if nothing could be read: --scale low,high"
            )
        if len(numbers) < len(known) and None not in map(read_number, known):
            raise Problem(
                f"{self.table.file}: the labels are decimal scores, such as {known[0]}; pass "
                f"their range and the tolerance: --scale 0..10 --within 0.5"
            )
        is_judged = bool(self._conditions & {*SWAPPED})
        if len(numbers) < len(known) and is_judged and (verdicts := verdict_classes(known)):
            self.notes.append(f"the scale was taken to be {', '.join(verdicts)}")
            return verdicts
        if len(numbers) < len(known):
            shown = ",".join(sorted(text for text in known if not _is_whole(text))[:5])
            raise Problem(
                f"{self.table.file}: cannot infer the order of the labels, which are words; "
                f"pass all classes, lowest first: --scale {quote(shown)}, or --scale nominal if "
                f"they have no order"
            )
        low, high = min(numbers), max(numbers)
        if not 1 <= high - low < MOST_GUESSED:
            raise Problem(
                f"{self.table.file}: the labels go from {low} to {high}, so the scale cannot "
                f"be inferred; pass all classes, lowest first: --scale 1,2,3"
            )
        self.notes.append(
            f"the scale was taken to be {low} to {high}, the range of the labels found"
        )
        return [str(number) for number in range(low, high + 1)]

    @cached_property
    def _conditions(self) -> set[str]:
        return {self._text(record, "view") for record in self._records}

    @cached_property
    def _tasks(self) -> dict[str, Task | None]:
        """The readers of verdicts on two answers, by dataset."""
        return {name: pair_task(labels.task) for name, labels in self.labels.items()}

    def _placed(self, record: Record, dataset: str, row: dict[str, Any]) -> dict[str, Any]:
        """The places of the winner and of the better answer, if the answers were swapped."""
        if self.is_ranked or not self._is_swapped:
            return {}
        task, view = self._tasks[dataset], row["view"]
        slot = self._number(record, "slot")
        if task is None and not slot:
            return {}
        systems = {name: self._text(record, name) or None for name in ("system_a", "system_b")}
        return {
            **systems,
            "place": where_won(task, view, row["rank"], slot),
            "gold_place": where_won(task, view, row["gold"], 0),
            "n_places": 2,
        }

    @cached_property
    def _is_swapped(self) -> bool:
        views = {view_of(name, self._conditions) for name in self._conditions}
        return view_of("swapped", self._conditions) in views

    @cached_property
    def _records(self) -> Collection[Record]:
        for record in self.table.records:
            if record.fault:
                raise self._wrong(record, record.fault)
        return self.table.records

    @cached_property
    def decisions(self) -> pl.DataFrame:
        rows, seen, golds = [], dict[Key, int](), dict[tuple[str, str, str], tuple[int, Any]]()
        for record in self._records:
            row = self._row(record)
            key: Key = tuple(row[name] for name in DECISION.key)
            if key in seen:
                raise self._wrong(
                    record,
                    f"'{row['item']}' already has an answer under '{row['view']}', in row "
                    f"{seen[key]}; a second answer needs a column `repeat` (0, then 1)",
                )
            seen[key] = record.row
            whose = (row["dataset"], row["level"], row["item"])
            first, gold = golds.setdefault(whose, (record.row, row["gold"]))
            if gold != row["gold"]:
                raise self._wrong(
                    record, f"'{row['item']}' has a different gold in row {first}; keep one"
                )
            rows.append(row)
        table = pl.DataFrame(rows, schema=DECISION.kinds)
        if table["view"].n_unique() < 2 and table["repeat"].n_unique() < 2:
            raise Problem(
                f"{self.table.file}: every row has the condition '{rows[0]['view']}'; to see a "
                "flip, items need answers under at least two"
            )
        return table

    def _row(self, record: Record) -> dict[str, Any]:
        dataset = self._text(record, "dataset", self.name)
        labels = self.labels[dataset]
        view = view_of(self._told(record, "view"), self._conditions)
        rank, fault = self._answer(record, labels)
        span, gold = labels.task.scale.span, self._class(record, "gold", labels)
        n_classes = labels.task.scale.n_ranks
        slot = 0 if span else self._place(record, _slot_in_view(view, rank, n_classes), n_classes)
        item = self._told(record, "item")
        # A value of one of our decisions; a CSV has it as text.
        is_nominal = self.is_ranked and str(record.values.get("nominal", "")).lower() == "true"
        name = self._text(record, "rater", self.name)
        if text := self._text(record, "text"):
            self.texts[dataset, item] = text
        row = {
            **dict.fromkeys(DECISION.kinds),
            **self._carried(record),
            **self._shares(record, labels),
            # The same judge with another strategy is another rater.
            "rater": " ".join(filter(None, (name, self._text(record, "strategy")))),
            "dataset": dataset,
            "level": self._text(record, "level"),
            "seed": self._number(record, "seed"),
            "view": view,
            "repeat": self._number(record, "repeat"),
            "item": item,
            "gold": gold,
            "rank": rank,
            "slot": slot,
            "fault": fault,
            "n_classes": n_classes,
            "nominal": labels.task.scale.nominal or is_nominal,
            "cluster": self._text(record, "cluster") or " ".join(text.casefold().split()) or item,
            **dict(zip(OF_SCORES, scored(span, rank, gold), strict=True)),
        }
        return row | self._placed(record, dataset, row)

    def _carried(self, record: Record) -> dict[str, Any]:
        """The other columns of a decision of ours; a CSV has texts only, without types."""
        plain = {"tie_decided": False, "degenerate": False, "prompt": "", "labels": ""}
        told = {name: record.values.get(name) for name in CARRIED if self.is_ranked}
        return plain | {
            name: value
            for name, value in told.items()
            if value is not None
            and (DECISION.kinds[name] == pl.String or not isinstance(value, str))
        }

    def _answer(self, record: Record, labels: Labels) -> tuple[Rank, str]:
        """The class or the fault of a row; a row without a label counts as unreadable."""
        fault = self._text(record, "fault")
        if fault and fault not in FAULTS:
            raise self._wrong(record, f"no fault named '{fault}'{suggestion(fault, [*FAULTS])}")
        is_none = self.is_ranked and self._text(record, "label") == "0"
        rank = None if is_none else self._class(record, "label", labels)
        if rank and fault:
            raise self._wrong(record, f"a label and the fault '{fault}'; leave one of them empty")
        return (rank, "") if rank else (0, fault or "unparsed")

    def _class(self, record: Record, part: str, labels: Labels) -> Rank | None:
        raw = record.values.get(self.columns.get(part, ""))
        if raw is None or not str(raw).strip():
            return None
        span = labels.task.scale.span
        if self.is_ranked and span is not None and self.span is None:
            rank = self._whole(record, self.columns[part], 0)
            rank = rank if rank <= span.n_ranks else 0
        else:
            rank = labels.rank(raw)
        if not rank and span is not None:
            raise self._wrong(record, f"{part}: {labels.complaint(raw)}; see --scale")
        if not rank:
            names = [*labels.task.scale.names]
            near = suggestion(str(raw), names)
            raise self._wrong(
                record, f"the {part} {shorten(raw)} is not on the scale{near}; see --scale"
            )
        return rank

    def _shares(self, record: Record, labels: Labels) -> dict[str, Any]:
        names = [f"{SHARE}{name}" for name in labels.task.scale.names]
        there = [name for name in names if name in self.table.columns]
        if not there:
            return {}
        if len(there) < len(names):
            lacking = next(name for name in names if name not in there)
            raise Problem(f"{self.table.file} has the column {there[0]} and no {lacking}; give all")
        shares = [share for name in names if (share := self._share(record, name)) is not None]
        if len(shares) < len(names):
            return {"probabilities": None}
        total = sum(shares)
        if abs(total - 1) > ROUNDED:
            raise self._wrong(
                record, f"{', '.join(names)} add up to {total:g}; they must add up to 1"
            )
        return {"probabilities": [share / total for share in shares]}

    def _share(self, record: Record, column: str) -> float | None:
        raw = record.values.get(column)
        if raw is None or raw == "":
            return None
        try:
            share = float(str(raw))
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise self._wrong(record, f"{column} is {shorten(raw)}; a probability is 0 to 1")
        return share

    def _place(self, record: Record, default: int, n_classes: int) -> int:
        slot = self._number(record, "slot", default)
        if slot > n_classes:
            raise self._wrong(
                record, f"slot is {slot}, but the list has {n_classes} labels; 0 means no slot"
            )
        return slot

    def _number(self, record: Record, part: str, default: int = 0) -> int:
        return self._whole(record, self.columns.get(part, ""), default)

    def _whole(self, record: Record, column: str, default: int) -> int:
        raw = record.values.get(column)
        if raw is None or raw == "":
            return default
        text = str(raw).removesuffix(".0")
        if not text.isdecimal() or len(text) > MOST_DIGITS:
            raise self._wrong(
                record, f"{column} is {shorten(raw)}; it must be a whole number, 0 or more"
            )
        return int(text)

    def _told(self, record: Record, part: str) -> str:
        text = self._text(record, part)
        if not text:
            raise self._wrong(record, f"the column '{self.columns[part]}' is empty")
        return text

    def _text(self, record: Record, part: str, default: str = "") -> str:
        raw = record.values.get(self.columns.get(part, ""))
        return default if raw is None or raw == "" else str(raw).strip()

    def _wrong(self, record: Record, what: str) -> Problem:
        return Problem(f"{self.table.file}, row {record.row}: {what}")


def _is_whole(text: str) -> bool:
    return text.removesuffix(".0").removeprefix("-").isdecimal()


def _slot_in_view(view: str, rank: Rank, n_classes: int) -> int:
    """The slot of a class in the list of a built-in view, 0 if unknown.

    Where fields of an item changed places, what was said is not what was meant.
    """
    known = _views_by_name(n_classes).get(view)
    return known.slot_of(rank) if rank and known and known.place_order == "base" else 0


@lru_cache
def _views_by_name(n_classes: int) -> dict[str, View]:
    return {view.name: view for view in expand(list(probes), n_classes)}
