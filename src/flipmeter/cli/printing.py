"""A run on stdout: tables, warnings, one flipped item."""

from __future__ import annotations

from typing import Any

import polars as pl

from flipmeter.cli.app import say
from flipmeter.look import flipped_pair
from flipmeter.report import (
    accuracy_tests_table,
    calls_table,
    flip_table,
    performance_table,
    reading_lines,
    side_by_side,
    tokens_table,
    verdict_lines,
    warned,
)
from flipmeter.run.perform import Run
from flipmeter.run.results.gather import notes, sentences
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions


def heading(done: Run) -> dict[str, Any]:
    """Return what a machine must know of every table of a run."""
    return {"study": done.study.name, "mode": done.study.mode, "warnings": done.warnings}


def warning_lines(done: Run) -> list[str]:
    return [f"! {rater}: {warning}" for rater, warning in done.warnings.items()]


MOST_LEVELS = 3
"""With more levels than these beside the base, tables on a screen are those of the base."""


def print_run(done: Run, study: Study) -> None:
    """Print what a run found, and how to see what is not printed."""
    levels = [level for level in done.decisions["level"].unique(maintain_order=True) if level]
    is_whole = len(levels) <= MOST_LEVELS
    shown = pl.lit(is_whole) | (pl.col("level") == "")
    estimates, judged = done.estimates.filter(shown), done.verdicts.filter(shown)
    say("", *map(str, sentences(done)))
    say("", warned(flip_table(estimates, judged, done.contrasts), done.warnings))
    for note in notes(done):
        say(f"! {note}")
    tables = (
        performance_table(estimates, done.views),
        accuracy_tests_table(estimates),
        tokens_table(estimates),
        calls_table(estimates),
    )
    for table in tables:
        if table is not None:
            say("", warned(table, done.warnings))
    say("", *verdict_lines(judged), *reading_lines(estimates))
    if levels:
        which = "" if is_whole else "the tables are of the base alone; "
        n = f"{len(levels)} level" + ("s" if len(levels) > 1 else "")
        command = f"`flipmeter measure {done.where} --residuals`"
        say(f"{which}{n} beside the base: {command} subtracts it")
    say(f"mode: {study.mode}; flip rates on complete pairs, verdicts under the strict policy")


def print_flip(done: Run, study: Study) -> None:
    pair = flipped_pair(conditions(study), done.decisions, study.contrasts)
    if pair is None:
        say("\nno item flipped")
        return
    say(
        f"\nOne item that flipped ({pair.contrast.name}, {pair.contrast.about}); "
        f"people call it {pair.gold}:",
        side_by_side(pair.views, pair.prompts, [f"answer: {answer}" for answer in pair.answers]),
    )
