"""Run -> what a terminal shows of it: sentences, tables, warnings, one flipped item."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from rich.console import RenderableType

from flipmeter.report import (
    accuracy_tests_table,
    calls_table,
    finding_lines,
    flip_table,
    performance_table,
    reading_lines,
    side_by_side,
    tokens_table,
    verdict_lines,
    warned,
)
from flipmeter.report.section import added_sections, has_added
from flipmeter.run.record.folder import Run
from flipmeter.run.results.gather import gather_numbers, notes, sentences
from flipmeter.run.results.single_items import flipped_pair

MOST_LEVELS = 3
"""With more levels than these beside the base, tables on a screen are those of the base."""


def summary(run: Run) -> Iterator[RenderableType]:
    """What a run found, and how to see what is not shown."""
    levels = [level for level in run.decisions["level"].unique(maintain_order=True) if level]
    is_whole = len(levels) <= MOST_LEVELS
    shown = pl.lit(is_whole) | (pl.col("level") == "")
    estimates, judged = run.estimates.filter(shown), run.verdicts.filter(shown)
    yield ""
    yield from map(str, sentences(run))
    yield ""
    yield warned(flip_table(estimates, judged, run.contrasts), run.warnings)
    yield from (f"! {note}" for note in notes(run))
    tables = (
        performance_table(estimates, run.views),
        accuracy_tests_table(estimates),
        tokens_table(estimates),
        calls_table(estimates),
    )
    for table in tables:
        if table is not None:
            yield ""
            yield warned(table, run.warnings)
    for section in added_sections(gather_numbers(run)) if has_added() else ():
        yield ""
        yield section.text
    yield ""
    yield from verdict_lines(judged)
    yield from (f"! {line}" for line in finding_lines(judged))
    yield from reading_lines(estimates)
    if levels:
        which = "" if is_whole else "the tables are of the base alone; "
        n = f"{len(levels)} level" + ("s" if len(levels) > 1 else "")
        command = f"`flipmeter residuals {run.where}`"
        yield f"{which}{n} beside the base: {command} subtracts it"
    yield (
        f"mode: {run.study.mode}; flip rates on readable pairs; a verdict counts an item once, "
        "with its seeds and repeats"
    )


def one_flip(run: Run) -> Iterator[RenderableType]:
    """One flipped item with its two prompts side by side."""
    pair = flipped_pair(run)
    if pair is None:
        yield "\nno item flipped"
        return
    yield (
        f"\nOne item that flipped ({pair.contrast.name}, {pair.contrast.about}); "
        f"people call it {pair.gold}:"
    )
    yield side_by_side(pair.views, pair.prompts, [f"answer: {answer}" for answer in pair.answers])
