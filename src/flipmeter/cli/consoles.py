"""The two consoles, results on stdout and everything else on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from flipmeter.__main__ import INTERRUPTED
from flipmeter.printed import Shown, plain_console, without_controls

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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


PIPE_WIDTH = 160
"""Width of tables in a pipe, unless the variable COLUMNS sets another."""


def fail(message: str, code: int = USAGE) -> NoReturn:
    """Print an error and end."""
    from rich.text import Text

    said = Text.assemble(("flipmeter:", "bold red"), f" {without_controls(message)}")
    errors().print(said, soft_wrap=True)
    sys.exit(code)


def errors() -> Console:
    return plain_console(stderr=True)


def warn(text: str) -> None:
    """Print a warning on stderr, in one line that is not folded."""
    errors().print(f"! {without_controls(text)}", soft_wrap=True)


def say(*things: RenderableType) -> None:
    """Print results on stdout."""
    has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = plain_console(**({} if has_width else {"width": PIPE_WIDTH}))
    for thing in things:
        console.print(Shown(thing))
