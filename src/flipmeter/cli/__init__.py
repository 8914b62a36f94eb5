"""The verbs. Results go to stdout, progress and warnings to stderr.

A verb is a module of this folder, imported when it is called: `--help` reads only what their
docstrings say.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from flipmeter.base.problem import Incomplete, Problem
from flipmeter.cli.consoles import ASKED_WRONGLY, INCOMPLETE, fail

__all__ = ["main"]

VERBS = (
    *("demo", "list", "init", "show", "try", "plan", "run", "measure", "report", "view", "compare"),
    *("certify", "residuals", "effects", "transfer", "phase0"),
    *("select", "confirm", "check", "classify", "paper"),
    *("batch", "import", "serve", "examine", "cache", "data", "trust", "oracle"),
)
"""In the order of a first day with flipmeter."""


class Verbs(TyperGroup):
    """The verbs by name, each loaded when it is called."""

    is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*VERBS]  # `list` is a module of ours here, once that verb was called

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        if self.is_listing:
            return TyperCommand(cmd_name, help=about(cmd_name))
        command = typer.main.get_command(import_module(_module(cmd_name)).app)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.is_listing = True
        super().format_help(ctx, formatter)


def _module(verb: str) -> str:
    return f"flipmeter.cli.{verb}_" if iskeyword(verb) else f"flipmeter.cli.{verb}"


def about(verb: str) -> str:
    """The first line of what a verb says of itself, read and not run."""
    path = Path(__file__).with_name(f"{_module(verb).rpartition('.')[2]}.py")
    _, _, function = path.read_text(encoding="utf-8").partition(f"\ndef {verb}")
    return re.split(r'"""|\n', function.partition(' -> None:\n    """')[2])[0]


app = typer.Typer(
    cls=Verbs,
    help="Does your LLM rater change its mind when nothing but positions change?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from flipmeter import __version__

        typer.echo(f"flipmeter {__version__}")
        sys.exit()


def main() -> None:
    """Run the command line; what the user can mend is said without a traceback."""
    try:
        if sys.argv[1:] == ["--version"]:  # at once: to read options takes three times as long
            _version(version=True)
        app()
    except Problem as problem:
        _end(problem)


def _end(problem: Problem) -> NoReturn:
    fail(str(problem), INCOMPLETE if isinstance(problem, Incomplete) else ASKED_WRONGLY)
