"""Run -> aspects and certificates, as tables in the order of the study."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flipmeter.measure import certify, measure_aspects, read_claim
from flipmeter.measure.panel.checked import Floats
from flipmeter.run.record.folder import Run
from flipmeter.run.record.rows import in_order


def aspects_of(
    run: Run, names: Sequence[str], costs: Floats | None = None
) -> dict[str, pl.DataFrame]:
    """Measure some aspects; `costs` (gold by given) are for the worst case."""
    found = measure_aspects(
        run.panels,
        run.contrasts,
        list(names),
        costs=costs,
        mode=run.study.mode,
    )
    return {name: in_order(table, run.tally) for name, table in found.items()}


def worst_cases(run: Run) -> pl.DataFrame:
    """The worst case over all views of a run, for every group."""
    found = measure_aspects(run.panels, [], ["worst"], mode=run.study.mode)["worst"]
    return in_order(found, run.tally)


def certificates_of(run: Run, claims: Sequence[str]) -> pl.DataFrame:
    """Hold the claims of a user against a run."""
    found = certify(run.panels, run.contrasts, [read_claim(claim) for claim in claims])
    return in_order(found, run.tally)
