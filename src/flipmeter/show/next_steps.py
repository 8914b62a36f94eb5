"""Run -> what to do next: the choice on every dataset, and steps as commands to copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flipmeter.choose.select import (
    ALL,
    Choice,
    NextStep,
    Selection,
    on_dataset,
    select,
    shown_configuration,
    worst_flips,
)
from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.run.first_look import AT_FIRST
from flipmeter.run.folder import Run
from flipmeter.run.predictions import Predictions
from flipmeter.show.findings import Findings
from flipmeter.show.gather import gather, gather_numbers, worst_cases
from flipmeter.show.headline import shown, together
from flipmeter.stats.front import (
    Candidate,
    over_candidates,
    read_field,
    score_estimate,
    simultaneous_scores,
)
from flipmeter.types import Estimate, Span

STUDY = "STUDY.yaml"
"""Stands for the study file in a command, where a run cannot stand for its study."""
FORMATS = {
    "numeric": "numbers",
    "letter": "letters",
    "natural_language": "words",
    "neutral_id": "neutral names",
}
"""Label formats to try, with a word for each."""
_PER_SEED = (pl.col("n_pairs") // pl.col("seeds").list.len()).cast(pl.Int64)
"""Items behind a verdict, which pools the seeds of an item; a cluster may hold several items."""
TOLERATED = 0.05
"""Share of a range of scores that is suggested as a tolerance."""
PLAIN = ("pair", "pointwise")
"""Pipelines that ask in the order of the view alone."""
IN_ALL_ORDERS = {
    "pair_order": (
        ("pair+agree", "pair+mean"),
        "Ask about every pair in both orders, for two calls: contradicting answers become ties "
        "(pair+agree), or probabilities are averaged (pair+mean).",
    ),
    "option_order": (
        ("orbit(places:rotations)",),
        "Ask every question with its options in all rotations and average the probabilities; as "
        "many calls as options.",
    ),
    "label_order": (
        ("orbit",),
        "Rule out flips by label order: average label probabilities over both orders, for two "
        "calls (orbit; the model must return log-probabilities).",
    ),
}
"""Pipelines that do not depend on what a probe moves, and how they work."""
OF_PLACES = {"pair_order", "option_order"}
"""Probes that move what is rated and leave the labels alone."""


def next_steps(run: Run, choices: Sequence[Choice] = (), study: str = "") -> list[NextStep]:
    """Suggested next steps for a run; `choices` are the selections among its configurations.

    `study` is the study in commands, with the options of the run.
    """
    files = [one["file"] for one in run.study.datasets if isinstance(one, dict) and "file" in one]
    files += [run.study.demos.file] if run.study.demos else []
    is_whole = type(run) is Run and all(Path(file).is_file() for file in files)
    named = study or (run.where if is_whole else STUDY)  # the run holds its study
    steps = _run_next_steps(run, choices, named)
    is_table = isinstance(run, Predictions)  # answers that exist: no study asks for more
    return [step for step in steps if not (is_table and named in step.command)]


def _run_next_steps(run: Run, choices: Sequence[Choice], study: str) -> list[NextStep]:
    measured = run.verdicts.filter(status="measured")
    swapping = [one.name for one in run.contrasts if one.swaps_answers]
    both_orders = [
        NextStep(
            "Take a verdict only where both orders agree: see how many remain, and how many of all "
            "pairs are right in both orders.",
            f"flipmeter measure {run.where} --show pairs",
        )
    ]
    if (
        not isinstance(run, Predictions)
        or measured.filter(pl.col("contrast").is_in(swapping), word="flips").is_empty()
    ):
        both_orders = []
    return [
        *_unreadable_steps(run, measured, study),
        *_unfinished_steps(run, measured, study),
        *_repeat_steps(run, measured, study),
        *_tolerance_steps(run, measured, study),
        *_item_count_steps(run, measured, study),
        *(
            _use_step(run, same)
            for same in together([one for one in choices if len(one.standings) > 1])
        ),
        *_compare_steps(run, choices, measured, study),
        *both_orders,
        NextStep(
            "Gate the run in CI: exit code 0 is stable, 1 flips or unreadable, 3 inconclusive.",
            f"flipmeter check {run.where} --junit flipmeter.xml",
        ),
    ]


def _out_option(run: Run) -> str:
    """The option that resumes a run; several runs have no one folder to write to."""
    return f" --out {run.where}" if type(run) is Run else ""


def _unfinished_steps(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    """Finish a run, and ask again where no pair was answered: nothing is settled there yet."""
    if run.stopped and not run.is_settled:
        is_unread = AT_FIRST in run.stopped
        how = " in spite of unreadable replies" if is_unread else ", which stopped early"
        yield NextStep(
            f"Finish the run{how}: only missing requests are sent.",
            f"flipmeter run {study}{_out_option(run)}{' --anyway' if is_unread else ''}",
        )
    n = len(measured.filter(pl.col("unreadable").is_null(), pl.col("value").is_null()))
    if n:
        yield NextStep(
            f"{n:,} of {len(measured):,} verdicts have no answered pair: retry the failed "
            "requests.",
            f"flipmeter run {study}{_out_option(run)}",
        )


def _unreadable_steps(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    n = len(measured.filter(word="unreadable"))
    why = f"{n:,} of {len(measured):,} verdicts are unreadable: see how replies are read."
    if AT_FIRST in run.stopped:
        why = "Unreadable replies stopped the run: see how they are read."
    elif not n:
        return
    yield NextStep(why, f"flipmeter try {study}")


def _repeat_steps(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    compared = measured.filter(pl.col("value").is_not_null())
    n = len(compared.filter(pl.col("noise").is_null(), ~pl.col("is_reproducible")))
    if n:
        yield NextStep(
            "Measure noise, to tell it from flips: ask every view twice.",
            f"flipmeter run {study} --set repeats=2{_out_option(run)}",
        )


def _tolerance_steps(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    """A tolerance for scores of which any two that are not equal count as different."""
    for dataset, span in _too_fine(run, measured).items():
        spec = run.environment["datasets"][dataset]["spec"]
        if not isinstance(spec, dict) or spec not in run.study.datasets:
            continue
        within = TOLERATED * (span.high - span.low)
        apart = _repeat_distances(run, dataset)
        yield NextStep(
            f"Set a difference between scores of {dataset} that does not matter: any difference "
            f"counts now, and {100 * (apart > 0).mean():.0f} % of repeats differ; "
            f"{100 * (apart > within).mean():.0f} % differ by more than {within:g}. Stored replies "
            "are reused.",
            f"flipmeter run {study} --set datasets.{run.study.datasets.index(spec)}.within="
            f"{within:g}{_out_option(run)}",
        )


def _too_fine(run: Run, measured: pl.DataFrame) -> dict[str, Span]:
    """The datasets of scores without a tolerance that a verdict calls noisy."""
    noisy = {*measured.filter(pl.col("findings").list.contains("noisy"))["dataset"]}
    spans = {name: scale.span for name, scale in run.scales.items() if name in noisy}
    return {name: span for name, span in spans.items() if span is not None and not span.within}


def _repeat_distances(run: Run, dataset: str) -> NDArray[np.float64]:
    """The distances between the scores of repeats, the farthest of each prompt."""
    score, keys = pl.col("score"), ("rater", "level", "seed", "view", "item")
    rows = run.parts.decisions.filter(pl.col("dataset") == dataset).drop_nulls("score")
    spread = rows.group_by(*keys).agg(apart=score.max() - score.min(), n=pl.len())
    repeated = spread.filter(pl.col("n") > 1).select("apart")
    return repeated.pipe(collected, "streaming")["apart"].to_numpy()


def _item_count_steps(run: Run, measured: pl.DataFrame, study: str) -> Iterator[NextStep]:
    """Number of items that would settle half of the open contrasts, and all of them.

    Items are drawn from the data: where it has fewer than half of the contrasts need, more rows
    are the next step. Where any difference between scores counts, a tolerance is.
    """
    too_fine = pl.col("dataset").is_in([*_too_fine(run, measured)])
    still_open = measured.filter(~too_fine, word="inconclusive")
    settling = still_open.filter(pl.col("n_needed").is_not_null())
    if settling.is_empty():
        return
    rows = settling.with_columns(_PER_SEED.alias("n_items"))
    wanted = pl.col("n_needed") * pl.col("n_items") / pl.col("n_clusters")
    needed = rows.select(wanted.ceil().cast(pl.Int64).alias("wanted"))["wanted"].sort().to_list()
    now = rows["n_items"].to_numpy().max()
    half = needed[(len(needed) - 1) // 2]
    n_settled, n_open = sum(n <= half for n in needed), len(still_open)
    what = "it" if n_open == 1 else f"all {n_open:,} inconclusive verdicts"
    if n_settled < n_open:
        what = f"{n_settled:,} of the {n_open:,} inconclusive verdicts"
    settled = f"{half:,} instead of {now:,} would settle {what}"
    if half < needed[-1]:
        settled += f", {needed[-1]:,} would settle {len(needed):,}"
    known = {  # the size of the data, which older runs do not say
        name: int(about["n_available"])
        for name, about in run.environment["datasets"].items()
        if about.get("n_available")
    }
    smallest, most = min(known.items(), key=lambda one: one[1], default=("", None))
    if most is not None and half > most:
        settled = f"{smallest} has {most:,} items to test, and {settled}"
        text = f"Add rows to the data: {settled} (power 80 %). Stored replies are reused."
    else:
        is_short = most is not None and needed[-1] > most
        of_all = f"; {smallest} has {most:,} items to test" if is_short else ""
        text = f"Rate more items: {settled} (power 80 %){of_all}."
        text += " Stored replies are reused."
    yield NextStep(text, f"flipmeter run {study} --set test_size={half}{_out_option(run)}")


def _use_step(run: Run, same: Sequence[Choice]) -> NextStep:
    """Ship a configuration: the command is for its first dataset, the text names the others."""
    choice, *others = same
    assert choice.chosen is not None
    several = len({one.rater for one in choice.standings}) > 1
    name = shown_configuration(choice.chosen, several_raters=several)
    datasets = run.tally["dataset"].n_unique()
    on = f" on {choice.dataset}" if datasets > 1 else ""
    only = f" --dataset {quote(choice.dataset)}" if datasets > 1 else ""
    card = f"rater-{choice.dataset}.yaml" if others else "rater.yaml"
    kept = choice.held_out
    held = ""
    if kept is not None:
        worst = worst_flips(kept.flips)
        flips = f", {worst[0]} {shown(worst[1])}" if worst else ""
        held = f"; on held-out items: {choice.by} {shown(kept.score, choice.by)}{flips}"
    rest = f" The same command ships it for {', '.join(one.dataset for one in others)}."
    return NextStep(
        f"Use {name}{on}{_describe_gain(choice)}{held}.{rest if others else ''}",
        f"flipmeter select {run.where}{only} --max-flip {run.study.margin:g} --out {quote(card)}",
    )


def _describe_gain(choice: Choice) -> str:
    """By how much the chosen configuration is better than the base of its rater."""
    used, base = choice.chosen, choice.instead_of
    if used is None or base is None:
        return ""
    told = [f"{choice.by} {shown(used.score, choice.by)} instead of {shown(base.score, choice.by)}"]
    worst = worst_flips(base.flips)
    if worst is not None and worst[0] in used.cannot_flip:
        told.append(f"{worst[0]} 0 by construction instead of {shown(worst[1])}")
    elif worst is not None and used.flips[worst[0]].n:
        name, before = worst
        told.append(f"{name} {shown(used.flips[name])} instead of {shown(before)}")
    return f": {', '.join(told)}"


def _compare_steps(
    run: Run, choices: Sequence[Choice], measured: pl.DataFrame, study: str
) -> Iterator[NextStep]:
    """Configurations to compare raters with that flip, unless one of several levels will do."""
    flips = measured.filter(word="flips")
    has_levels = run.tally["level"].n_unique() > 1
    if flips.is_empty() or (has_levels and any(choice.chosen for choice in choices)):
        return
    moved = {one.probe for one in run.contrasts if one.name in flips["contrast"]}
    tried = {level.pipeline for level in run.study.levels().values()}
    for probe, (pipelines, about) in IN_ALL_ORDERS.items():
        if probe in moved and tried <= {*PLAIN}:
            yield _vary_step(run, study, "pipeline", pipelines, about)
    has_labels = any(scale.span is None for scale in run.scales.values())
    is_alone = run.tally["rater"].n_unique() == 1 and not has_levels
    if has_labels and is_alone and moved - OF_PLACES:
        others = {k: name for k, name in FORMATS.items() if k != run.study.style.label_format}
        *first, last = others.values()
        about = f"Try other label formats: {', '.join(first)} or {last}."
        yield _vary_step(run, study, "label_format", others, about)


def _vary_step(run: Run, study: str, factor: str, levels: Iterable[str], about: str) -> NextStep:
    values = f"vary={{{factor}: [{', '.join(levels)}]}}"
    out = quote(f"{run.folder}-{factor.removeprefix('label_')}s")
    return NextStep(about, f"flipmeter run {study} --set '{values}' --out {out}")


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
        if errors := _mean_absolute_errors(found):
            others["mae"] = errors
        others["worst_accuracy"] = _worst_accuracies(found)
        if tokens := _tokens(found):
            costs["tokens"] = tokens
    return replace(found, costs=costs, others=others, factors=factors)


def _mean_absolute_errors(found: Selection) -> list[Estimate]:
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
