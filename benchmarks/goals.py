"""Shared by the benchmarks: a table, goals, and a fresh process for each size.

A missed goal is not an error: a machine may be busy.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

from rich.console import Console
from rich.table import Table

T = TypeVar("T")
KEPT = "FLIPMETER_GOALS"
"""The variable that names a file to leave goals in."""


@dataclass(frozen=True)
class Goal:
    """A measured number and its limit."""

    what: str
    value: float
    sign: Literal["<=", ">="]
    limit: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit if self.sign == "<=" else self.value >= self.limit

    @property
    def row(self) -> tuple[str, ...]:
        met = "yes" if self.is_met else "no"
        return self.what, f"{self.value:,.4g}", f"{self.sign} {self.limit:,g}", met


def show_goals(goals: Sequence[Goal]) -> None:
    """Print goals as one table, and leave them for `bench.py` if it is the caller."""
    if kept := os.environ.get(KEPT):
        with Path(kept).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(goal)) + "\n" for goal in goals)
    show_table("Goals", ("what", "measured", "must be", "met"), (goal.row for goal in goals))


def show_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of text under their heads."""
    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=140).print(table)


def alone(work: Callable[..., T], *arguments: object) -> T:
    """The result of some work in a fresh process, so that its peak memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)
