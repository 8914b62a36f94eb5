"""Run -> Choice: what to use on every dataset, by the selection that ships a rater."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import polars as pl

from flipmeter.measure import Standing, read_field
from flipmeter.measure.effects.field import Candidate
from flipmeter.measure.effects.pareto import (
    CANNOT_FLIP,
    over_candidates,
    score_estimate,
    simultaneous_scores,
)
from flipmeter.report.configurations import Choice, Configuration, HeldOutNumbers
from flipmeter.report.findings import Findings
from flipmeter.run.record.folder import Run
from flipmeter.run.results.aspects import worst_cases
from flipmeter.run.results.gather import gather, gather_numbers
from flipmeter.ship.next_steps import next_steps
from flipmeter.ship.select import ALL, Selection, factors_of, on_dataset, select
from flipmeter.types import Estimate, Problem

T = TypeVar("T")


def findings(
    run: Run, choices: Sequence[Choice] | None = None, *, with_items: bool = True
) -> Findings:
    """The content of a report: findings, recommendation and next steps."""
    found = gather(run) if with_items else gather_numbers(run)
    choices = choices_of(run) if choices is None else choices
    return replace(found, choices=choices, next_steps=next_steps(run, choices))


def choices_of(run: Run) -> list[Choice]:
    """The recommendation per dataset: the best configuration shown to flip less than the margin."""
    names = run.tally.filter(level="")["dataset"].unique(maintain_order=True)
    return [_choice(run, str(name)) for name in names]


def _choice(run: Run, dataset: str) -> Choice:
    try:
        found = select(run, dataset=dataset, max_flip={ALL: run.study.margin})
    except Problem as problem:  # no gold class, other scales: the page says why
        return Choice(dataset, trouble=str(problem))
    return as_choice(found)


def as_choice(found: Selection) -> Choice:
    """A selection as a page shows it."""
    kept = found.held_out
    places: Sequence[Standing] = found.standings
    is_choice = len(places) > 1
    errors = _errors(found) if is_choice else {}
    worst = _worst_accuracies(found) if is_choice else {}
    tokens = _tokens(found) if is_choice else {}
    return Choice(
        dataset=found.dataset,
        by=found.by,
        limits=found.limits,
        configurations=[
            _configuration(
                found,
                one,
                others=_known({"mae": errors, "worst_accuracy": worst}, one.candidate),
                costs=_known({"tokens": tokens}, one.candidate),
            )
            for one in places
        ],
        chosen=None if found.chosen is None else places.index(found.chosen),
        held_out=None if kept is None else HeldOutNumbers(kept.score, kept.flips),
    )


def _known(by_name: Mapping[str, Mapping[Candidate, T]], candidate: Candidate) -> dict[str, T]:
    """The numbers of a candidate that every candidate has."""
    return {name: found[candidate] for name, found in by_name.items() if found}


def _configuration(
    found: Selection,
    one: Standing,
    *,
    others: Mapping[str, Estimate],
    costs: Mapping[str, float],
) -> Configuration:
    rater, level = one.candidate
    weighed: dict[str, float] = {} if found.cost == "none" else {found.cost: one.cost}
    return Configuration(
        rater=rater,
        level=level,
        score=one.score,
        flips=one.flips,
        costs={**weighed, **costs},
        is_on_front=one.is_on_front,
        is_allowed=one.is_allowed,
        on_front=one.chance_on_front,
        chosen=one.chance_chosen,
        others=others,
        cannot_flip=frozenset(name for name, x in one.flips.items() if x.note == CANNOT_FLIP),
        factors={name: str(value) for name, value in factors_of(found.run, level).items()},
    )


# --- numbers beside those that the selection weighs -------------------------------------------


def _errors(found: Selection) -> dict[Candidate, Estimate]:
    """The mean absolute error of every candidate, where classes have an order."""
    try:
        field = read_field(_decisions(found), (), by="mae", cost="none")
    except Problem:
        return {}
    told = over_candidates(len(field.candidates))
    bounds = simultaneous_scores(field).bounds
    estimates = [score_estimate(field, one, told) for one in bounds]
    return dict(zip(field.candidates, estimates, strict=True))


def _tokens(found: Selection) -> dict[Candidate, float]:
    """Tokens per item of every candidate, where they were counted."""
    try:
        field = read_field(_decisions(found), (), cost="tokens")
    except Problem:
        return {}
    if not field.cost.any():
        return {}
    return dict(zip(field.candidates, field.cost.tolist(), strict=True))


def _worst_accuracies(found: Selection) -> dict[Candidate, Estimate]:
    """The accuracy of every candidate under its worst view, and its worst seed."""
    rows = worst_cases(found.run).filter(dataset=found.dataset, metric="worst_accuracy")
    known: dict[Candidate, Estimate] = {}
    for row in rows.sort("value", descending=True).iter_rows(named=True):
        ends = Estimate(row["value"], row["low"], row["high"], row["n"], note=row["note"])
        known[row["rater"], row["level"]] = ends  # the worst seed comes last and stays
    missing = Estimate(math.nan, note="not every view was asked")
    return {one.candidate: known.get(one.candidate, missing) for one in found.standings}


def _decisions(found: Selection) -> pl.LazyFrame:
    return on_dataset(found.run, found.dataset)
