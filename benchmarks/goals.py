"""What a benchmark must reach, and whether it did. Nothing fails: a machine may be busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table


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
        return self.what, f"{self.value:,.3g}", f"{self.sign} {self.limit:,g}", met


def show_goals(goals: Sequence[Goal]) -> None:
    """Print all goals as one table."""
    table = Table("what", "measured", "must be", "met", title="Goals", title_justify="left")
    for goal in goals:
        table.add_row(*goal.row)
    Console(width=120).print(table)
