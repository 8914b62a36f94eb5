"""Table of a judge's verdicts -> one answer a row, and where the winner of each stood.

Verdicts in both orders may stand side by side (columns `as_given` and `swapped`), or under each
other with the order as their condition.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from flipmeter.data.exchangeable import by_lean, read_exchange
from flipmeter.data.tables import Table
from flipmeter.probe import place_order
from flipmeter.types import Item, Problem, Rank, Scale, Task

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
