"""Goals of a benchmark, met or not. A missed goal is not an error: a machine may be busy."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

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
    table = Table("what", "measured", "must be", "met", title="Goals", title_justify="left")
    for goal in goals:
        table.add_row(*goal.row)
    Console(width=120).print(table)
