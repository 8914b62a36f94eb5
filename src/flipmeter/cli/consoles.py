"""The two consoles: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from flipmeter.base.printed import Shown, without_controls
from flipmeter.cli.exits import USAGE

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPE_WIDTH = 160
"""Width of tables in a pipe, unless the variable COLUMNS sets another."""


def fail(message: str, code: int = USAGE) -> NoReturn:
    """Print an error and end."""
    from rich.markup import escape

    said = escape(without_controls(message))
    errors().print(f"[bold red]flipmeter:[/] {said}", highlight=False, soft_wrap=True)
    sys.exit(code)


def errors() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def warn(text: str) -> None:
    """Print a warning on stderr, in one line that is not folded."""
    said = f"! {without_controls(text)}"
    errors().print(said, highlight=False, markup=False, soft_wrap=True)


def say(*things: RenderableType) -> None:
    """Print results on stdout."""
    from rich.console import Console

    has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    console = Console() if has_width else Console(width=PIPE_WIDTH)
    for thing in things:
        console.print(Shown(thing), highlight=False, markup=False)
