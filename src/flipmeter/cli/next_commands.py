"""The next command after each verb, with the options of this one that still matter."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from flipmeter.api import Run

if TYPE_CHECKING:
    from flipmeter.report.configurations import NextStep
    from flipmeter.ship.card import Card

VALUES = ("--set", "--model", "-m", "--dataset", "-d", "--data-dir", "--store", "--trust-host")
FLAGS = ("--trust",)
"""The options that say what a study asks, and with whose consent."""
MOST_STEPS = 4


def carried(*more: str) -> list[str]:
    """The options of this command line that the next one needs, too."""
    values, found, rest = (*VALUES, *more), list[str](), iter(sys.argv[2:])
    for word in rest:
        if word in values:
            found += [word, next(rest, "")]
        elif word in FLAGS or word.partition("=")[0] in values:
            found.append(word)
    return found


def this_again(*more: str) -> NextStep:
    """The same command, with further options."""
    return _command(*sys.argv[1:], *more)


def with_study(verb: str, study: str, *more: str) -> NextStep:
    """A verb on the study of this command; `more` are further options to carry over."""
    return _command(verb, study, *carried(*more))


def on_file(verb: str, path: Path, *more: str) -> NextStep:
    """A verb on a file or folder."""
    return _command(*verb.split(), str(path), *more)


def after_select(card: Path, n_items: int, n_unseen: int | None) -> NextStep:
    """Confirm a card on as many items as it was chosen on, if the data has them unseen."""
    from flipmeter.report.configurations import NextStep

    n = n_items if n_unseen is None or n_unseen <= 0 else min(n_items, n_unseen)
    step = _command("confirm", str(card), "--items", str(n))
    if n_unseen is None or n_unseen > 0:
        return step
    why = "The choice saw every item of the data: add rows, then confirm it on these."
    return NextStep(why, step.command)


def unless_met(word: str, *runs: Path) -> list[NextStep]:
    """The report of runs that did not pass a test, with the options that read a table."""
    from flipmeter.cli.exits import BY_WORD, DONE

    if BY_WORD.get(word) == DONE:
        return []
    return [_command("report", *map(str, runs), *carried("--scale", "--within"))]


def after_classify(path: Path, card: Card) -> list[NextStep]:
    """Confirm a selected rater that is in use and was not confirmed yet."""
    if card.selected is None or not card.selected.seen or card.is_confirmed:
        return []
    return [after_select(path, card.selected.n_items, None)]


def after_confirm(path: Path, run: Path, word: str) -> list[NextStep]:
    """Use a confirmed rater; else read the run that tested it."""
    from flipmeter.report.configurations import NextStep

    use = _command("classify", str(path), "FILE.csv", "--text", "COLUMN").command
    return unless_met(word, run) or [NextStep("Label texts of your own.", use)]


def on_run(run: Run, study: str | None = None) -> list[NextStep]:
    """Suggested next steps for the verdicts of a run, most urgent first.

    Without `study` the run itself stands for it: it holds its study.
    """
    return run.next_steps(join([study, *carried()]) if study else "")[:MOST_STEPS]


def _command(*words: str) -> NextStep:
    from flipmeter.report.configurations import NextStep

    return NextStep("", join(["flipmeter", *words]))
