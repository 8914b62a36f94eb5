"""The verbs. Results go to stdout, progress and warnings to stderr."""

from __future__ import annotations

from flipmeter.cli import asking, cache, measuring, names, serving  # noqa: F401 - each adds verbs
from flipmeter.cli.app import app, fail
from flipmeter.registry import load_extensions
from flipmeter.types import Problem

__all__ = ["main"]


def main() -> None:
    """Run the command line; what the user can mend is said without a traceback."""
    try:
        load_extensions()
        app()
    except Problem as problem:
        fail(str(problem))
    except ExceptionGroup as group:
        found = _first_problem(group)
        if found is None:
            raise
        fail(str(found))


def _first_problem(group: BaseExceptionGroup[BaseException]) -> Problem | None:
    for error in group.exceptions:
        found = _first_problem(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, Problem):
            return found
    return None
