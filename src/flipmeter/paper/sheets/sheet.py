"""A table of the paper in its own form: what it prints, what was measured, the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from flipmeter.paper.evidence import Record
from flipmeter.paper.published import PublishedCell

NOTHING = "–"


@dataclass(frozen=True)
class SheetCell:
    """One number: as printed, as measured by the paper's rule, and by ours with its interval.

    `here` is a row of residuals or of absolute numbers in paper mode, `right` the same in
    recommended mode. A cell with a `text` is that text.
    """

    paper: PublishedCell | None = None
    here: Record | None = None
    right: Record | None = None
    form: str = "+.2f"
    text: str = ""

    @property
    def measured(self) -> float | None:
        return None if self.here is None else self.here["value"]

    @property
    def sd(self) -> float | None:
        """The spread over datasets; one dataset has none."""
        if self.here is None or self.here.get("n_datasets", 2) < 2:
            return None
        return self.here.get("dataset_sd")

    @property
    def difference(self) -> float | None:
        if self.paper is None or self.measured is None:
            return None
        return self.measured - self.paper.value

    def lines(self) -> list[str]:
        """The cell for people, line by line: paper, here, difference, right rule with interval."""
        if self.text:
            return [self.text]
        unsigned = self.form.replace("+", "")
        shown = {"paper": self.paper.text if self.paper else ""}
        if self.measured is not None:
            spread = "" if self.sd is None else f" ± {self.sd:{unsigned}}"
            shown["here"] = f"{self.measured + 0.0:{self.form}}{spread}"
        if self.difference is not None:
            shown["diff."] = f"{self.difference:+{unsigned}}"
        if self.right is not None and None not in (self.right["value"], self.right["low"]):
            ends = (self.right[end] + 0.0 for end in ("value", "low", "high"))
            value, low, high = (f"{end:{self.form}}" for end in ends)
            shown["95 %"] = f"{value} [{low}, {high}]"
        return [f"{name} {text}" for name, text in shown.items() if text]

    def record(self) -> dict[str, object]:
        """The numbers for a machine."""
        right = self.right or {}
        about = self.here or {}
        return {
            "paper": self.paper.value if self.paper else None,
            "paper_sd": self.paper.sd if self.paper else None,
            "here": self.measured,
            "here_sd": self.sd,
            "difference": self.difference,
            "value": right.get("value"),
            "low": right.get("low"),
            "high": right.get("high"),
            "n": about.get("n"),
            "failed": about.get("failed"),
            "note": self.text or str(about.get("note") or ""),
        }


@dataclass(frozen=True)
class SheetRow:
    """The names that a row begins with, and its cells."""

    names: tuple[str, ...]
    cells: tuple[SheetCell, ...]


@dataclass(frozen=True)
class Sheet:
    """A table: its heads, its rows, and what must be known of them."""

    name: str
    title: str
    keys: tuple[str, ...]
    heads: tuple[str, ...]
    rows: Sequence[SheetRow]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def file_name(self) -> str:
        """The name of its files, whatever the names of models hold."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.casefold()).strip("-")

    def frame(self) -> pl.DataFrame:
        """All numbers, one row for each."""
        return pl.DataFrame(list(self._records()), infer_schema_length=None)

    def _records(self) -> Iterator[dict[str, object]]:
        for row in self.rows:
            for head, cell in zip(self.heads, row.cells, strict=True):
                names = dict(zip(self.keys, row.names, strict=True))
                yield {**names, "number": head, **cell.record()}
