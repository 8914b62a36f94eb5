"""Runs -> evidence: what a claim of the paper may look at, for one rater."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import polars as pl

from flipmeter.measure import absolutes, residuals, transfer
from flipmeter.measure.effects.residuals import SCHEMA
from flipmeter.types import Contrast, Mode, Problem

Phase = Literal["phase0a", "phase0b", "phase1", "phase2a", "phase2b"]
PHASES: tuple[Phase, ...] = ("phase0a", "phase0b", "phase1", "phase2a", "phase2b")
Record = Mapping[str, Any]


class Answers(Protocol):
    """The evidence of a run: its answers and the numbers computed from them."""

    @property
    def decisions(self) -> pl.DataFrame: ...

    @property
    def contrasts(self) -> Sequence[Contrast]: ...

    @property
    def estimates(self) -> pl.DataFrame: ...

    @property
    def verdicts(self) -> pl.DataFrame: ...


@dataclass(frozen=True)
class PhaseRuns:
    """The runs of all phases that were made, and their tables, each computed once.

    `reasons` say why a phase is missing.
    """

    runs: Mapping[Phase, Answers]
    reasons: Mapping[Phase, str] = field(default_factory=dict)
    _tables: dict[tuple[str, ...], pl.DataFrame] = field(default_factory=dict, repr=False)

    @cached_property
    def raters(self) -> list[str]:
        """All raters, in the order in which they were asked."""
        names = (run.decisions["rater"].unique(maintain_order=True) for run in self.runs.values())
        return list(dict.fromkeys(str(name) for found in names for name in found))

    def missing(self, phase: Phase) -> str:
        """Reason why a phase has no run."""
        return self.reasons.get(phase, f"{phase} was not run")

    def residuals(self, phase: Phase, mode: Mode = "recommended") -> pl.DataFrame:
        """The effect of every level of a phase, empty without a run."""
        return self._table("residuals", phase, mode)

    def absolutes(self, phase: Phase, mode: Mode = "recommended") -> pl.DataFrame:
        """The metrics of every rater at every level of a phase, empty without a run."""
        return self._table("absolutes", phase, mode)

    def transfer(self, reference: str, mode: Mode = "recommended") -> pl.DataFrame:
        """Every rater minus the reference under the same config, empty where there is one rater."""
        key = ("transfer", reference, mode)
        if key not in self._tables:
            run = self.runs.get("phase2b")
            try:
                if run is None:
                    raise Problem(self.missing("phase2b"))
                table = transfer(run.decisions, run.contrasts, reference, mode=mode)
            except Problem:
                table = EMPTY
            self._tables[key] = table
        return self._tables[key]

    def _table(self, kind: str, phase: Phase, mode: Mode) -> pl.DataFrame:
        key = (kind, phase, mode)
        if key not in self._tables:
            make = {"residuals": residuals, "absolutes": absolutes}[kind]
            run = self.runs.get(phase)
            try:
                if run is None:
                    raise Problem(self.missing(phase))
                self._tables[key] = make(run.decisions, run.contrasts, mode=mode)
            except Problem:  # one model at one level: nothing to subtract
                self._tables[key] = EMPTY
        return self._tables[key]


EMPTY = pl.DataFrame(schema=SCHEMA)
"""Residuals of a phase that was not run."""


def row_of(table: pl.DataFrame, **which: str) -> Record | None:
    """The row of the mean over datasets, None where there is none."""
    rows = table.filter(dataset="", **which)
    return None if rows.is_empty() else rows.row(0, named=True)
