"""Runs -> evidence: what a claim of the paper may look at, for one rater."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
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
        return self._table(("residuals", phase, mode), phase, partial(residuals, mode=mode))

    def absolutes(self, phase: Phase, mode: Mode = "recommended") -> pl.DataFrame:
        """The metrics of every rater at every level of a phase, empty without a run."""
        return self._table(("absolutes", phase, mode), phase, partial(absolutes, mode=mode))

    def transfer(self, reference: str, mode: Mode = "recommended") -> pl.DataFrame:
        """Every rater minus the reference under the same config, empty where there is one rater."""
        make = partial(transfer, reference=reference, mode=mode)
        return self._table(("transfer", reference, mode), "phase2b", make)

    def _table(
        self, key: tuple[str, ...], phase: Phase, make: Callable[..., pl.DataFrame]
    ) -> pl.DataFrame:
        if key not in self._tables:
            self._tables[key] = EMPTY
            run = self.runs.get(phase)
            with suppress(Problem):  # one model at one level: nothing to subtract
                if run is not None:
                    self._tables[key] = make(run.decisions, run.contrasts)
        return self._tables[key]


EMPTY = pl.DataFrame(schema=SCHEMA)
"""Residuals of a phase that was not run."""


def row_of(table: pl.DataFrame, **which: str) -> Record | None:
    """The row of the mean over datasets, None where there is none."""
    rows = table.filter(dataset="", **which)
    return None if rows.is_empty() else rows.row(0, named=True)
