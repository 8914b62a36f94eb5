"""Run -> Choice: what to use on every dataset, by the selection that ships a rater."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flipmeter.measure.effects.field import Candidate, read_field
from flipmeter.measure.effects.pareto import over_candidates, score_estimate, simultaneous_scores
from flipmeter.report.configurations import Choice
from flipmeter.report.findings import Findings
from flipmeter.run.record.folder import Run
from flipmeter.run.results.aspects import worst_cases
from flipmeter.run.results.gather import gather, gather_numbers
from flipmeter.ship.next_steps import next_steps
from flipmeter.ship.select import ALL, Selection, on_dataset, select
from flipmeter.types import Estimate, Problem


def findings(
    run: Run, choices: Sequence[Choice] | None = None, *, with_items: bool = True
) -> Findings:
    """The content of a report: findings, recommendation and next steps."""
    found = gather(run) if with_items else gather_numbers(run)
    choices = choices_of(run) if choices is None else choices
    return replace(found, choices=choices, next_steps=next_steps(run, choices))


def choices_of(run: Run) -> list[Choice]:
    """The recommendation per dataset: the best configuration shown to flip less than the margin."""
    found: list[Choice] = []
    for name in run.tally.filter(level="")["dataset"].unique(maintain_order=True):
        try:
            chosen = select(run, dataset=name, max_flip={ALL: run.study.margin})
        except Problem as problem:  # no gold class, other scales: the page says why
            found.append(Choice(dataset=name, trouble=str(problem)))
        else:
            found.append(_with_others(chosen))
    return found


def _with_others(found: Selection) -> Selection:
    """A selection with the numbers beside those that it weighs, if there are several candidates."""
    costs: dict[str, list[float]] = {}
    if found.cost != "none":
        costs[found.cost] = [one.cost for one in found.standings]
    at_base, changes = found.run.study.at_base, found.run.study.changes()
    factors = [
        {name: str(value) for name, value in {**at_base, **changes[one.level]}.items()}
        if one.level in changes
        else {}
        for one in found.standings
    ]
    others: dict[str, list[Estimate]] = {}
    if len(found.standings) > 1:
        if errors := _errors(found):
            others["mae"] = errors
        others["worst_accuracy"] = _worst_accuracies(found)
        if tokens := _tokens(found):
            costs["tokens"] = tokens
    return replace(found, costs=costs, others=others, factors=factors)


def _errors(found: Selection) -> list[Estimate]:
    """The mean absolute error of every candidate, where classes have an order."""
    try:
        field = read_field(on_dataset(found.run, found.dataset), (), by="mae", cost="none")
    except Problem:
        return []
    told = over_candidates(len(field.candidates))
    bounds = simultaneous_scores(field).bounds
    known = dict(zip(field.candidates, bounds, strict=True))
    return [score_estimate(field, known[one.candidate], told) for one in found.standings]


def _tokens(found: Selection) -> list[float]:
    """Tokens per item of every candidate, where they were counted."""
    try:
        field = read_field(on_dataset(found.run, found.dataset), (), cost="tokens")
    except Problem:
        return []
    known = dict(zip(field.candidates, field.cost.tolist(), strict=True))
    return [known[one.candidate] for one in found.standings] if field.cost.any() else []


def _worst_accuracies(found: Selection) -> list[Estimate]:
    """The accuracy of every candidate under its worst view, and its worst seed."""
    rows = worst_cases(found.run).filter(dataset=found.dataset, metric="worst_accuracy")
    known: dict[Candidate, Estimate] = {}
    for row in rows.sort("value", descending=True).iter_rows(named=True):
        ends = Estimate(row["value"], row["low"], row["high"], row["n"], note=row["note"])
        known[row["rater"], row["level"]] = ends  # the worst seed comes last and stays
    missing = Estimate(math.nan, note="not every view was asked")
    return [known.get(one.candidate, missing) for one in found.standings]
