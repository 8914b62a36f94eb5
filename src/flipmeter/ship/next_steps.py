"""Run -> NextStep: what is worth doing after a run, most urgent first, as commands to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

import polars as pl

from flipmeter.report.configurations import Choice, NextStep, shown_configuration, worst_flips
from flipmeter.report.headline import shown, together
from flipmeter.run.record.folder import Run
from flipmeter.run.tables.predictions import Predictions

STUDY = "STUDY.yaml"
"""Stands for the study file in a command: a run does not know where it lies."""
FORMATS = {
    "numeric": "numbers",
    "letter": "letters",
    "natural_language": "words",
    "neutral_id": "neutral names",
}
"""Label formats to try, with a word for each."""


def next_steps(run: Run, choices: Sequence[Choice] = (), study: str = STUDY) -> list[NextStep]:
    """Suggested next steps for a run; `choices` are the selections among its configurations.

    `study` is the study in commands, with the options of the run.
    """
    steps = _steps(run, choices, study)
    is_table = isinstance(run, Predictions)  # answers that exist: no study asks for more
    return [step for step in steps if not (is_table and study in step.command)]


def _steps(run: Run, choices: Sequence[Choice], study: str) -> list[NextStep]:
    measured = run.verdicts.filter(status="measured")
    return [
        *_rest(run, study),
        *_read(measured, study),
        *_repeats(measured, study),
        *_items(run, measured, study),
        *(_use(run, same) for same in together(_compared(choices))),
        *_compare(run, measured, study),
        NextStep(
            "Use it as a gate in CI: exit code 0 is stable, 1 flips or unreadable, 3 inconclusive.",
            f"flipmeter check {run.where} --junit flipmeter.xml",
        ),
    ]


def _rest(run: Run, study: str) -> Iterator[NextStep]:
    if run.stopped and not run.is_settled:
        yield NextStep(
            f"Finish the run, which stopped early ({run.stopped}): only missing requests are sent.",
            f"flipmeter run {study} --out {run.where}",
        )


def _read(measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    n = len(measured.filter(word="unreadable"))
    if n:
        yield NextStep(
            f"{n} of {len(measured)} verdicts are unreadable: see how replies are read.",
            f"flipmeter try {study}",
        )


def _repeats(measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    n = len(measured.filter(pl.col("noise").is_null(), ~pl.col("is_reproducible")))
    if n:
        yield NextStep(
            "Measure noise, to tell it from flips: ask every view twice.",
            f"flipmeter run {study} --set repeats=2",
        )


def _items(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    """Number of items that would settle half of the open contrasts, and all of them."""
    still_open = measured.filter(word="inconclusive")
    needed = sorted(still_open["n_needed"].drop_nulls().to_list())
    if not needed:
        return
    now, half = int(still_open["n_clusters"].to_numpy().max()), needed[(len(needed) - 1) // 2]
    many = f"the {len(still_open)} inconclusive verdicts"
    whole = "it" if len(still_open) == 1 else f"all {len(still_open)} inconclusive verdicts"
    if half == needed[-1] and len(needed) == len(still_open):
        settled = f"{half:,} instead of {now:,} would settle {whole}"
    else:
        settled = f"{half:,} instead of {now:,} would settle about {len(needed) // 2 + 1} of {many}"
        settled += f", {needed[-1]:,} would settle {len(needed)}"
    yield NextStep(
        f"Rate more items: {settled} (power 80 %). Stored replies are reused.",
        f"flipmeter run {study} --set test_size={half} --out {run.where}",
    )


def _compared(choices: Sequence[Choice]) -> list[Choice]:
    """The datasets with something to choose from."""
    return [choice for choice in choices if len(choice.configurations) > 1]


def _use(run: Run, same: Sequence[Choice]) -> NextStep:
    """Ship a configuration: the command is for its first dataset, the text names the others."""
    choice, *others = same
    assert choice.used is not None
    several = len({one.rater for one in choice.configurations}) > 1
    name = shown_configuration(choice.used, several_raters=several)
    datasets = run.tally["dataset"].n_unique()
    on = f" on {choice.dataset}" if datasets > 1 else ""
    only = f" --dataset {quote(choice.dataset)}" if datasets > 1 else ""
    card = f"rater-{choice.dataset}.yaml" if others else "rater.yaml"
    rest = f" The same command ships it for {', '.join(one.dataset for one in others)}."
    return NextStep(
        f"Use {name}{on}{_better(choice)}{_held_out(choice)}.{rest if others else ''}",
        f"flipmeter select {run.where}{only} --max-flip {run.study.margin:g} --out {quote(card)}",
    )


def _better(choice: Choice) -> str:
    """By how much the chosen configuration is better than the base of its rater."""
    used, base = choice.used, choice.instead_of
    if used is None or base is None:
        return ""
    told = [f"{choice.by} {shown(used.score, choice.by)} instead of {shown(base.score, choice.by)}"]
    worst = worst_flips(base.flips)
    if worst is not None and used.flips[worst[0]].n:
        name, before = worst
        told.append(f"{name} {shown(used.flips[name])} instead of {shown(before)}")
    return f": {', '.join(told)}"


def _held_out(choice: Choice) -> str:
    kept = choice.held_out
    if kept is None:
        return ""
    worst = worst_flips(kept.flips)
    flips = f", {worst[0]} {shown(worst[1])}" if worst else ""
    return f"; on held-out items: {choice.by} {shown(kept.score, choice.by)}{flips}"


def _compare(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    """A rater that flips alone has nothing to be compared with."""
    is_alone = len(run.tally.select("rater", "level").unique()) == 1
    if is_alone and (measured["word"] == "flips").any():
        others = {k: name for k, name in FORMATS.items() if k != run.study.style.label_format}
        formats = f"vary={{label_format: [{', '.join(others)}]}}"
        *first, last = others.values()
        yield NextStep(
            f"Try other label formats: {', '.join(first)} or {last}.",
            f"flipmeter run {study} --set '{formats}' --out {quote(str(run.folder) + '-formats')}",
        )
