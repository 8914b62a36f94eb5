"""A bench for small studies of simulated raters: offline, in a folder that goes away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import polars as pl

from flipmeter.api import Run, Study
from flipmeter.model import Store

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
