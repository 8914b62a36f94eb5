"""File with answers or options -> study file: a draft that moves what is compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from string import ascii_lowercase

from flipmeter.chance import n_shared
from flipmeter.data.guess import MOST_CLASSES, guess_id, is_text_column, usual_classes
from flipmeter.data.labels import label_key
from flipmeter.data.places import by_lean, lean_of, read_exchange
from flipmeter.data.tables import Table
from flipmeter.errors import Problem
from flipmeter.types import Places, Scale

ANSWERS = ("answer", "response", "output", "completion", "reply", "candidate", "summary")
"""Common names of columns whose texts a judge compares; other twins are options of a question."""

AUTHORS = ("system", "model", "generator", "assistant")
"""Common names of columns that say which system wrote an answer, before the end of its column."""
NO_RIGHT_OPTION = "no column names the right option: everything but accuracy is measured"


@dataclass(frozen=True)
class ComparedColumns:
    """The comparison in a table: its columns, and the dataset entry for it."""

    label: str | None
    keys: dict[str, object]
    probe: str
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str | None:
        """The column of the question that is asked about what is compared, if there is one."""
        fields = self.keys.get("fields", {})
        moved = self.keys.get("exchange", ())
        assert isinstance(fields, dict)
        assert isinstance(moved, Sequence)
        others = (name for name in fields if name not in moved)
        return str(self.keys["text"]) if "text" in self.keys else next(others, None)


def guess_compared(table: Table, found: Sequence[str]) -> ComparedColumns | None:
    """The comparison of columns that look exchangeable, or of a list; None if none is clear."""
    if not found:
        return _guess_listed(table)
    if len(found) == 2 or any(word in found[0].casefold() for word in ANSWERS):
        return _judged_columns(table, tuple(found))
    return _ask_compared_columns(table, tuple(found))


def _guess_listed(table: Table) -> ComparedColumns | None:
    """The question with options of a table with one column of lists, None if there is none."""
    values = {name: [one.values.get(name) for one in table.records] for name in table.columns}
    columns = [
        name
        for name, lists in values.items()
        if lists and all(isinstance(one, list) and len(one) > 1 for one in lists)
    ]
    others = [name for name in table.columns if name not in columns and is_text_column(table, name)]
    if len(columns) != 1 or not others:
        return None
    longest = max(len(one) for one in values[columns[0]] if isinstance(one, list))
    known = {*ascii_lowercase[:longest], *map(str, range(longest + 1))}
    keys: dict[str, object] = {"text": others[0], "options": columns[0]}
    for column in _label_columns(table, (columns[0], others[0])):
        named = {label_key(value) for value in usual_classes(table, column)}
        if named <= known and not {"0", str(longest)} <= named:
            return ComparedColumns(column, keys, "option_order")
    return ComparedColumns(None, keys, "option_order", (NO_RIGHT_OPTION,))


def _judged_columns(table: Table, found: tuple[str, ...]) -> ComparedColumns:
    others = [name for name in table.columns if name not in found and is_text_column(table, name)]
    fields = {name: name for name in (*islice(others, 1), *found)}
    keys: dict[str, object] = {"fields": fields, "exchange": list(found)}
    shared = n_shared(found[0], found[1])
    ends = [name[shared:] for name in found]
    named = ([f"{word}{mark}{end}" for end in ends] for word in AUTHORS for mark in ("_", "", " "))
    if authors := next((some for some in named if {*some} <= {*table.columns}), None):
        keys["systems"] = authors  # the columns that say which system wrote each answer
    probe = "pair_order" if len(found) == 2 else "candidate_order"
    for column in _label_columns(table, (*found, *others)):
        classes = tuple(str(value).strip() for value in usual_classes(table, column))
        with suppress(Problem):
            places = read_exchange(list(found), Scale(classes), found)
            scale: object = by_lean(places, classes)
            told = {**keys, "scale": {"nominal": scale} if len(found) > 2 else scale}
            return ComparedColumns(column, told, probe, tuple(_guessed_order_note(places, classes)))
    note = "no column says which answer is better: everything but accuracy is measured"
    usual = [found[1], "tie", found[0]] if len(found) == 2 else {"nominal": list(found)}
    return ComparedColumns(None, {**keys, "scale": usual}, probe, (note,))


def _guessed_order_note(places: Places, classes: Sequence[str]) -> list[str]:
    """A note on the classes for the last field whose grades are not told apart by their words."""
    leans = [(lean_of(places, rank), name) for rank, name in enumerate(classes, 1)]
    for lean, _ in leans:
        same = [name for other, name in leans if other == lean]
        if lean < 0 and len(same) > 1 and len(places.fields) == 2:
            listed = ", ".join(f"'{name}'" for name in same)
            return [f"the order of {listed} is a guess; the scale goes from best for the last"]
    return []


def _ask_compared_columns(table: Table, found: tuple[str, ...]) -> ComparedColumns | None:
    known = {*map(label_key, found), *ascii_lowercase[: len(found)]}
    known |= {str(number) for number in range(1, len(found) + 1)}
    others = [name for name in table.columns if name not in found and is_text_column(table, name)]
    if not others:
        return None
    keys: dict[str, object] = {"text": others[0], "options": list(found)}
    for column in _label_columns(table, (*found, others[0])):
        values = usual_classes(table, column)
        if {label_key(value) for value in values} <= known:
            numbers = {str(n): name for n, name in enumerate(found, 1)}
            is_counted = all(label_key(value) in numbers for value in values)
            mapped = {int(n): name for n, name in numbers.items()}
            return ComparedColumns(
                column, {**keys, **({"labels": mapped} if is_counted else {})}, "option_order"
            )
    return ComparedColumns(None, keys, "option_order", (NO_RIGHT_OPTION,))


def _label_columns(table: Table, taken: Sequence[str]) -> Iterator[str]:
    """Columns that may say which is better, those called so first."""
    skipped = {*taken, guess_id(table, [])}
    for column in table.columns:
        if column not in skipped and 2 <= len(usual_classes(table, column)) <= MOST_CLASSES:
            yield column
