"""Run -> Choice: what to use on every dataset, by the selection that ships a rater."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flipmeter.measure import Standing
from flipmeter.report.configurations import Choice, Configuration, HeldOutNumbers
from flipmeter.report.findings import Findings
from flipmeter.run.record.folder import Run
from flipmeter.run.results.gather import gather, gather_numbers
from flipmeter.ship.next_steps import next_steps
from flipmeter.ship.select import ALL, Selection, select
from flipmeter.types import Problem


def findings(run: Run, *, with_items: bool = True) -> Findings:
    """Everything that a report shows: what was found, what to use, and what to do next."""
    found = gather(run) if with_items else gather_numbers(run)
    choices = choices_of(run)
    return replace(found, choices=choices, next_steps=next_steps(run, choices))


def choices_of(run: Run) -> list[Choice]:
    """What to use on each dataset: the best shown to flip less than the margin allows."""
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
    return Choice(
        dataset=found.dataset,
        by=found.by,
        limits=found.limits,
        configurations=[_configuration(found, one) for one in places],
        chosen=None if found.chosen is None else places.index(found.chosen),
        held_out=None if kept is None else HeldOutNumbers(kept.score, kept.flips),
    )


def _configuration(found: Selection, one: Standing) -> Configuration:
    rater, level = one.candidate
    return Configuration(
        rater=rater,
        level=level,
        score=one.score,
        flips=one.flips,
        costs={} if found.cost == "none" else {found.cost: one.cost},
        is_on_front=one.is_on_front,
        is_allowed=one.is_allowed,
        on_front=one.chance_on_front,
        chosen=one.chance_chosen,
    )
