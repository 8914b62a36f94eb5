"""The exit codes of all verbs; the help and the reference print this table."""

from __future__ import annotations

import sys
from typing import NoReturn

from flipmeter.__main__ import INTERRUPTED as INTERRUPTED

DONE, NOT_MET, USAGE, NOT_SETTLED, INCOMPLETE = range(5)
EXIT_CODES = {
    DONE: "done; a claim, gate or card that was tested holds",
    NOT_MET: "tested and not met: the rater flips, or its answers cannot be read",
    USAGE: "usage error; the message says what to change",
    NOT_SETTLED: "inconclusive: too few items to tell",
    INCOMPLETE: "incomplete: stopped, out of budget, requests failed, or output not written; "
    "run again to continue",
    INTERRUPTED: "interrupted while nothing was being sent",
}
BY_WORD = {
    **dict.fromkeys(("stable", "shown"), DONE),
    **dict.fromkeys(("flips", "refuted", "unreadable"), NOT_MET),
}
"""The exit code of a verdict, or of the outcome of claims; any other word is not settled."""


def exit_by(word: str) -> NoReturn:
    """End with the exit code of a verdict, or of the outcome of claims."""
    sys.exit(BY_WORD.get(word, NOT_SETTLED))
