"""Run -> Findings: everything that a report of a run is made of, gathered once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from flipmeter.measure import compare, phase0_table, residuals, wilson
from flipmeter.model import Store
from flipmeter.report import failures_line
from flipmeter.report.findings import Findings
from flipmeter.report.pairs import leans, pair_up
from flipmeter.report.sentences import Sentence, verdict_sentences
from flipmeter.run.perform import Run
from flipmeter.run.results.flipped_items import browse
from flipmeter.run.rows import spent
from flipmeter.shown import Shown
from flipmeter.types import Problem


def gather(run: Run, store: Store | None = None, data_dir: Path | None = None) -> Findings:
    """Return what the reports of a run show; prompts and probabilities as far as they are there."""
    shown = Shown(run, store, data_dir)
    found = gather_numbers(run, shown)
    return replace(found, browser=browse(found, shown, run.calls))


def gather_numbers(run: Run, shown: Shown) -> Findings:
    """Return what the reports of a run show, but for the flipped items."""
    study, decisions = run.study, run.decisions
    pairs = pair_up(decisions, run.contrasts)
    is_compared = decisions["rater"].n_unique() > 1 or decisions["level"].n_unique() > 1
    return Findings(
        name=study.name,
        mode=study.mode,
        margin=study.margin,
        contrasts=run.contrasts,
        decisions=decisions,
        estimates=run.estimates,
        verdicts=run.verdicts,
        noise=noise_floors(run.estimates),
        pairs=pairs,
        phase0=phase0_table(run.estimates.filter(level="")),
        residuals=residuals(decisions, run.contrasts, mode=study.mode) if is_compared else None,
        sentences=sentences(run, pairs),
        scales=shown.scales,
        warnings=run.warnings,
        notes=notes(run),
        stopped=run.stopped,
        study=run.recipe,
        environment=run.environment,
        costs=costs(run),
        spent=spent(decisions),
    )


def sentences(run: Run, pairs: pl.DataFrame | None = None) -> list[Sentence]:
    """Return the verdict on every rater in a sentence."""
    contrasts = run.contrasts
    pairs = pair_up(run.decisions, contrasts) if pairs is None else pairs
    return verdict_sentences(run.verdicts, noise_floors(run.estimates), contrasts, leans(pairs))


def noise_floors(estimates: pl.DataFrame) -> pl.DataFrame:
    """Return the noise of each rater and dataset at the base, strict, seeds pooled."""
    rows = estimates.filter(metric="noise", policy="strict", level="").drop_nulls("value")
    pooled = rows.group_by("rater", "dataset", maintain_order=True).agg(
        pl.col("k").sum(), pl.col("n").sum(), pl.col("note").first()
    )
    low, high = wilson(pooled["k"].to_numpy(), pooled["n"].to_numpy())
    return pooled.with_columns(
        (pl.col("k") / pl.col("n")).alias("value"),
        pl.Series("low", low, dtype=pl.Float64),
        pl.Series("high", high, dtype=pl.Float64),
    )


def notes(run: Run) -> list[str]:
    """Return what a reader must know of the decisions and the data."""
    lines = [failures_line(run.decisions)]
    for name, about in run.environment["datasets"].items():
        lines += [f"{name}: {note}" for note in about["notes"]]
    return [line for line in lines if line]


def costs(run: Run) -> dict[str, float]:
    """Return what the tokens of all decisions cost at the study's own prices, by rater."""
    taken = spent(run.decisions)
    found = {}
    for rater, price in run.study.prices.items():
        mine = taken.filter(rater=rater)
        prompt, completion = (mine[f"{kind}_tokens"].sum() for kind in ("prompt", "completion"))
        found[rater] = price.of(int(prompt), int(completion))
    return found


def differences(first: Run, second: Run) -> pl.DataFrame:
    """Return the second run minus the first, on the contrasts and items that both have."""
    if first.study.mode != second.study.mode:
        modes = f"{first.study.mode} and {second.study.mode}"
        raise Problem(f"the runs are in different modes, {modes}; compare runs of one mode")
    known = {contrast.name: contrast for contrast in first.contrasts}
    shared = [c for c in second.contrasts if known.get(c.name) == c]
    return compare(first.decisions, second.decisions, shared)
