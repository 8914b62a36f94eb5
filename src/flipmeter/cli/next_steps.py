"""What each verb leads to: the next command, with the options of this one that still matter."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from flipmeter.api import Run
from flipmeter.run.results.next_steps import Step, command, next_steps

VALUES = ("--set", "--model", "-m", "--dataset", "-d", "--data-dir", "--store", "--trust-host")
FLAGS = ("--trust",)
"""The options that say what a study asks and with whose consent."""


def carried(*more: str) -> list[str]:
    """The options of this command line that the next one needs, too."""
    return [*_carried(sys.argv[2:], (*VALUES, *more))]


def _carried(given: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    rest = iter(given)
    for word in rest:
        if word in values:
            yield from (word, next(rest, ""))
        elif word in FLAGS or word.partition("=")[0] in values:
            yield word


def this_again(*more: str) -> Step:
    """The same command, with further options."""
    return Step(command("", *sys.argv[1:], *more))


def with_study(verb: str, study: str, *more: str) -> Step:
    """A verb on the study of this command."""
    return Step(command(verb, study, *carried(*more)))


def on_file(verb: str, path: Path, *more: str) -> Step:
    """A verb on a file or folder that was written."""
    return Step(command(verb, str(path), *more))


def after_select(card: Path, n_items: int) -> Step:
    """Confirm a card on as many unseen items as it was chosen on."""
    return Step(command("confirm", str(card), "--items", str(n_items)), "test it on unseen items")


def on_run(run: Run, study: str | None = None) -> list[Step]:
    """What the verdicts of a run ask for; `study` is what it was made from, if that is known."""
    return next_steps(run.source, [study, *carried()] if study else [])
