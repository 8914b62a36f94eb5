"""The two consoles: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from flipmeter.base.printed import Shown, plain_console, without_controls
from flipmeter.cli.exits import USAGE

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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
