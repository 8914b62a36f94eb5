"""Run -> what a terminal shows of it: the answer, the worst rows, where the rest is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from rich.console import RenderableType

from flipmeter.measure import headlines, worst_first
from flipmeter.report import (
    accuracy_tests_table,
    calls_table,
    finding_lines,
    flip_table,
    performance_table,
    reading_lines,
    side_by_side,
    tokens_table,
    unmeasured_lines,
    verdict_lines,
    verdict_table,
)
from flipmeter.report.configurations import Choice
from flipmeter.report.estimate_tables import score_titles, shared_warnings
from flipmeter.report.format import interval
from flipmeter.report.headline import Headline, plain, whose
from flipmeter.report.screen import more_rows
from flipmeter.report.section import added_sections, has_added
from flipmeter.run.record.folder import Run
from flipmeter.run.results.gather import gather_numbers, notes, sentences
from flipmeter.run.results.single_items import flipped_pair
from flipmeter.types import NO_LABELS


def summary(run: Run, choices: Sequence[Choice] = ()) -> Iterator[RenderableType]:
    """The first screen: the answer, the worst rows, warnings, and where the rest is."""
    verdicts = worst_first(run.verdicts)
    yield ""
    yield from headline(run, choices)
    yield ""
    accuracy = _accuracy(run)
    is_one = run.tally.select("rater", "dataset", "level").n_unique() == 1
    by_row = {} if is_one else accuracy
    yield verdict_table(verdicts, run.contrasts, accuracy=by_row)
    yield from more_rows(verdicts)
    if is_one and accuracy:
        yield f"accuracy at the base view: {next(iter(accuracy.values()))}"
    elif _is_unlabelled(run):
        yield f"accuracy: {NO_LABELS}"
    yield from unmeasured_lines(verdicts)
    yield from (f"! {names}: {text}" for names, text in shared_warnings(run.remarks).items())
    yield from (f"! {note}" for note in notes(run))
    for section in added_sections(gather_numbers(run)) if has_added() else ():
        yield ""
        yield section.text
    yield f"details: flipmeter measure {run.where} --show {','.join([*DETAILS, *_places(run)])}"
    if run.tally["level"].n_unique() > 1:
        yield f"changes by factor level: flipmeter effects {run.where}"


def _is_unlabelled(run: Run) -> bool:
    notes = run.estimates.filter(metric="accuracy")["note"]
    return len(notes) > 0 and (notes == NO_LABELS).all()


def _places(run: Run) -> Iterator[str]:
    """The aspects that say which place is preferred, where answers or options change places."""
    if any(contrast.swaps_answers for contrast in run.contrasts):
        yield "pairs"
    if any(contrast.is_open for contrast in run.contrasts):
        yield "slots"


def headline(run: Run, choices: Sequence[Choice] = ()) -> list[str]:
    """The summary of a run, in a few lines."""
    verdicts = run.verdicts
    words = headlines(verdicts, whose=whose(verdicts))
    told = (sentences(run), choices, run.unrated)
    found = Headline.of(words, worst_first(verdicts), run.contrasts, *told)
    return [plain(line) for line in found.lines]


def _accuracy(run: Run) -> dict[tuple[str, ...], str]:
    """Accuracy at the base view with its interval, by rater, dataset and level, for one seed."""
    rows = run.estimates.filter(metric="accuracy", policy="complete", view="base")
    if rows["seed"].n_unique() > 1:
        return {}
    return {
        (row["rater"], row["dataset"], row["level"]): interval(row)
        for row in rows.filter(pl.col("value").is_not_null()).to_dicts()
    }


# --- details -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detail:
    """More of what was measured than fits a screen: for people, and as rows."""

    tables: Callable[[Run], Iterator[RenderableType]]
    rows: Callable[[Run], pl.DataFrame]


def _verdicts(run: Run) -> Iterator[RenderableType]:
    """Every rater in a sentence, every row with its reason and findings."""
    yield from map(str, sentences(run))
    yield flip_table(run.estimates, run.verdicts, run.contrasts)
    yield ""
    yield from verdict_lines(run.verdicts)
    yield from (f"! {line}" for line in finding_lines(run.verdicts))
    yield from reading_lines(run.estimates)
    yield (
        f"mode: {run.study.mode}; flip rates on readable pairs; a verdict counts an item once, "
        "with its seeds and repeats"
    )


def _scores(run: Run) -> Iterator[RenderableType]:
    yield performance_table(run.estimates, run.views)
    if (tests := accuracy_tests_table(run.estimates)) is not None:
        yield tests


def _tokens(run: Run) -> Iterator[RenderableType]:
    tables = (tokens_table(run.estimates), calls_table(run.estimates))
    if not any(tables):
        yield "no token counts were reported, and every decision took one call"
    yield from (table for table in tables if table is not None)


def _of(*metrics: str) -> Callable[[Run], pl.DataFrame]:
    pattern = "^(" + "|".join(metrics) + ")"
    return lambda run: run.estimates.filter(pl.col("metric").str.contains(pattern))


def _score_rows(run: Run) -> pl.DataFrame:
    """The rows of the tables of scores, with the tests of accuracy."""
    beside = (f"{name}$" for name in score_titles(run.estimates))
    return _of("accuracy", *beside, "mae", "parse_failure$", "weighted:accuracy$")(run)


DETAILS: Mapping[str, Detail] = {
    "verdicts": Detail(_verdicts, lambda run: run.verdicts),
    "scores": Detail(_scores, _score_rows),
    "tokens": Detail(_tokens, _of("output_tokens$", "hidden_tokens$", "calls$")),
}
"""The choices of `flipmeter measure --show` besides the aspects."""


def one_flip(run: Run) -> Iterator[RenderableType]:
    """One flipped item with its two prompts side by side."""
    pair = flipped_pair(run)
    if pair is None:
        yield "\nno item flipped"
        return
    contrast, flip, prompts = pair
    yield (
        f"\nOne item that flipped ({contrast.name}, {contrast.about}); "
        f"its gold label is {flip.gold}:"
    )
    answers = [f"answer: {side.answer}" for side in flip.sides]
    yield side_by_side([side.view for side in flip.sides], prompts, answers)
