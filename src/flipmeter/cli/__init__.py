"""The verbs. Results go to stdout, progress and warnings to stderr."""

from __future__ import annotations

from typing import NoReturn

from flipmeter.cli import (  # noqa: F401 - each adds verbs
    asking,
    batch,
    cache,
    check,
    classify,
    compare,
    examine,
    import_,
    list,
    measure,
    oracle,
    planning,
    reporting,
    selecting,
    serve,
    starting,
    view,
)
from flipmeter.cli.app import ASKED_WRONGLY, INCOMPLETE, app, fail
from flipmeter.model import OutOfBudget
from flipmeter.types import Problem

__all__ = ["main"]


def main() -> None:
    """Run the command line; what the user can mend is said without a traceback."""
    try:
        app()
    except Problem as problem:
        _end(problem)


def _end(problem: Problem) -> NoReturn:
    fail(str(problem), INCOMPLETE if isinstance(problem, OutOfBudget) else ASKED_WRONGLY)
