"""Runs -> evidence of a claim, for one rater; a bench of simulated raters for errata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, Self

import polars as pl

from flipmeter.api import Run, Study
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.stats.residuals import SCHEMA, absolutes, residuals, transfer
from flipmeter.types import Contrast, Mode

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


BASE: Mapping[str, Any] = {
    "models": ["sim/honest"],
    "datasets": ["reviews"],
    "mode": "paper",
    "probes": ["label_order"],
    "repeats": 1,
}
FIVE = ("very negative", "negative", "neutral", "positive", "very positive")


class Bench:
    """Runs studies without keeping their replies; equal requests are sent once."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(TemporaryDirectory()))
            self._store = stack.enter_context(Store(":memory:"))
            self._stack = stack.pop_all()
        self._n_runs = 0
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, **keys: Any) -> Run:
        """Run a study of a simulated rater; what is not named is the paper's baseline."""
        self._n_runs += 1
        study = Study(**{**BASE, **keys})
        where = self._folder / f"run-{self._n_runs}"
        return study.run(where, store=self._store, is_quiet=True, anyway=True)

    def texts(self, counts: Sequence[int]) -> dict[str, Any]:
        """A dataset of made-up texts with so many of each class; a simulated rater knows them."""
        rows = [
            {"text": f"Passage {rank}-{number}.", "label": FIVE[rank]}
            for rank, count in enumerate(counts)
            for number in range(count)
        ]
        path = self._folder / f"texts-{'-'.join(map(str, counts))}.csv"
        pl.DataFrame(rows).write_csv(path)
        return {"file": str(path), "text": "text", "label": "label", "scale": list(FIVE)}

    @cached_property
    def comparisons(self) -> Run:
        """An honest rater asked in pairs, every aggregator in both forms on the same replies."""
        rules = ("weighted_sum", "majority_vote", "mean_score", "copeland", "bradley_terry")
        forms = [f"pairwise+{rule}@{mode}" for rule in rules for mode in ("paper", "recommended")]
        return self.run(test_size=40, vary={"pipeline": forms})


def flip_rate(run: Run, contrast: str, level: str = "") -> float | None:
    """The flip rate of a contrast at a level, None where there is none."""
    rows = run.estimates.filter(metric=contrast, level=level, policy="complete")
    return None if rows.is_empty() else rows["value"][0]


def residual_of(run: Run, level: str, metric: str, rater: str | None = None) -> float:
    """The effect of a level over all datasets, in points; 0 if undefined."""
    rows = run.residuals().filter(level=level, metric=metric, dataset="")
    rows = rows if rater is None else rows.filter(rater=rater)
    return 0.0 if rows.is_empty() else rows["value"][0] or 0.0


def share_of_class(run: Run, level: str, rank: int) -> float:
    """Share of the base view's answers that are this class."""
    given = run.decisions.filter(level=level, view="base")["rank"]
    return given.to_list().count(rank) / len(given)
