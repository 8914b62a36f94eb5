"""Run -> what to do next, as commands to paste."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flipmeter.run.record.folder import Run

OTHER_PROMPTS = "vary={label_format: [letter, natural_language]}"
"""The factor that moves flip rates most in the paper: a first thing to vary."""


@dataclass(frozen=True)
class Step:
    """A command to paste, and what it is good for."""

    command: str
    why: str = ""

    def __str__(self) -> str:
        return f"next ({self.why}): {self.command}" if self.why else f"next: {self.command}"


def command(verb: str, *arguments: str) -> str:
    """A command line that a shell reads as it is meant."""
    return join(["flipmeter", *verb.split(), *arguments])


def next_steps(run: Run, again: Sequence[str] = ()) -> list[Step]:
    """What the verdicts of a run ask for.

    `again` are the arguments that ask its study again, where they are known.
    """
    from flipmeter.measure import headlines

    return [*_steps(run, set(headlines(run.verdicts)["word"]), again)]


def _steps(run: Run, words: set[str], again: Sequence[str]) -> Iterator[Step]:
    if "unreadable" in words:
        yield Step(f"flipmeter view {run.where}", "see the replies that could not be read")
    if run.decisions.select("rater", "level").n_unique() > 1:
        yield Step(f"flipmeter select {run.where}", "choose a configuration")
    elif "flips" in words and again:
        more = command("run", *again, "--set", OTHER_PROMPTS, "--out", f"{run.folder}-formats")
        yield Step(more, "try other label formats")
    if "inconclusive" in words and again and (n := _needed(run)):
        settle = command("run", *again, "--set", f"test_size={n}", *_same_folder(run))
        yield Step(settle, f"to settle what is inconclusive, about {n:,} items")
    if words == {"stable"}:
        yield Step(f"flipmeter check {run.where}", "hold it to a gate in CI")


def _same_folder(run: Run) -> list[str]:
    return [] if run.folder == Path("runs") / run.study.name else ["--out", str(run.folder)]


def _needed(run: Run) -> int | None:
    """The number of items that would settle the inconclusive contrasts at the base."""
    needed = run.verdicts.filter(level="", word="inconclusive")["n_needed"].drop_nulls()
    return max(needed, default=None)
