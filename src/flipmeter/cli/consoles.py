"""The two consoles: results on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

from flipmeter.base.printed import Shown, without_controls

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

ASKED_WRONGLY, NOT_SETTLED, INCOMPLETE = 2, 3, 4
EXITS = {"stable": 0, "flips": 1, "unreadable": 1}
"""Exit code by verdict, where one is asked for; what is not named is not settled."""


def fail(message: str, code: int = ASKED_WRONGLY) -> NoReturn:
    from rich.markup import escape

    said = escape(without_controls(message))
    errors().print(f"[bold red]flipmeter:[/] {said}", highlight=False, soft_wrap=True)
    sys.exit(code)


def exit_by(word: str) -> NoReturn:
    """End with the code of a verdict."""
    sys.exit(EXITS.get(word, NOT_SETTLED))


def errors() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def warn(text: str) -> None:
    """Say on stderr what a reader must know, in one line that is not folded."""
    said = f"! {without_controls(text)}"
    errors().print(said, highlight=False, markup=False, soft_wrap=True)


def say(*things: RenderableType) -> None:
    from rich.console import Console

    # A pipe has no width: give tables room instead of folding them at 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for thing in things:
        console.print(Shown(thing), highlight=False, markup=False)
