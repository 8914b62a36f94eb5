"""The verbs. Results go to stdout, progress and warnings to stderr.

A verb is a module of this folder, imported when it is called: `--help` reads only docstrings.
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

from flipmeter.cli.consoles import EXIT_CODES, INCOMPLETE, USAGE, fail, warn
from flipmeter.errors import Incomplete, Problem
from flipmeter.printed import guard_streams, unwritten

__all__ = ["main"]

FIRST = ("init", "try", "plan", "run", "report", "view", "check", "select", "classify")
"""The verbs of the first help screen, in the order in which a new user needs them."""
VERBS = (
    *FIRST,
    *("confirm", "measure", "compare", "effects"),
    *("import", "batch", "cache", "list", "demo", "paper"),
)
REPLACED = {
    "batch fetch": "batch import FOLDER, with the results that the vendor's client downloads",
    "batch status": "the vendor's client",
    "batch submit": "the vendor's client",
    "cache explain": "plan STUDY, which says how many replies are stored",
    "certify": "check RUN 'P1<0.10'",
    "data": "list datasets NAME --out FILE",
    "examine": "try MODEL",
    "oracle": "paper --errata",
    "phase0": "paper --phase0 --run phase0b=RUN",
    "residuals": "effects RUN",
    "serve": "http/NAME with base_url, behind llama-server or vLLM",
    "show": "try STUDY --dry",
    "trust": "run FILE.py --trust --remember, or run --forget FILE",
    "transfer": "effects RUN --reference MODEL",
}
"""Removed verbs and their replacements."""

KEPT = [[verb] for verb in ("demo", "run", "confirm", "classify", "paper")]
"""Verbs whose results are in files: their exit code does not depend on stdout."""


class Verbs(TyperGroup):
    """The verbs by name, each loaded when it is called."""

    is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(FIRST if self.is_listing else VERBS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        if self.is_listing:
            return TyperCommand(cmd_name, help=about(cmd_name))
        return open_verb(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.is_listing = True
        super().format_help(ctx, formatter)


def open_verb(verb: str) -> Any:
    """The command of a verb, its module imported."""
    command = typer.main.get_command(import_module(_module(verb)).app)
    command.name = verb
    return command


def _module(verb: str) -> str:
    return f"flipmeter.cli.{verb}_" if iskeyword(verb) else f"flipmeter.cli.{verb}"


def about(verb: str) -> str:
    """The first line of a verb's docstring, read without importing the verb."""
    path = Path(__file__).with_name(f"{_module(verb).rpartition('.')[2]}.py")
    _, _, function = path.read_text(encoding="utf-8").partition(f"\ndef {verb}")
    return re.split(r'"""|\n', function.partition(' -> None:\n    """')[2])[0]


app = typer.Typer(
    cls=Verbs,
    help="Does your LLM rater change its mind when nothing but positions change?",
    epilog=f"More verbs: {', '.join(VERBS[len(FIRST) :])} (flipmeter VERB --help).\n\n"
    "Exit codes:\n\n" + "\n\n".join(f"{code:>3}  {text}" for code, text in EXIT_CODES.items()),
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
    """Run the command line; a result that cannot be printed does not exit with 0."""
    guard_streams()
    try:
        _run()
    except SystemExit as end:
        if lost := unwritten():
            told = f"the output could not be written ({lost.strerror or lost})"
            if not end.code and sys.argv[1:2] not in KEPT:
                fail(told, INCOMPLETE)
            warn(told)
        raise
    except Exception:  # Python exits with 1, which here means that the rater flips
        sys.excepthook(*sys.exc_info())
        sys.exit(INCOMPLETE)


def _run() -> None:
    """Run a verb; user-fixable errors and those of plug-ins have no traceback."""
    try:
        if sys.argv[1:] == ["--version"]:  # reading options would take three times as long
            _version(version=True)
        for verb in (" ".join(sys.argv[1:end]) for end in (2, 3)):
            if verb in REPLACED:
                raise Problem(f"there is no verb '{verb}' any more; use: {REPLACED[verb]}")
        app()
    except Problem as problem:
        _end(problem)
    except Exception as error:
        from flipmeter.registry import blame

        blamed = blame(error)
        if blamed is None:
            raise
        _end(blamed)
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of polars, which is not imported here
            fail(f"a table is damaged ({error}); make it again, or fetch another copy")
        raise


def _end(problem: Problem) -> NoReturn:
    fail(str(problem), INCOMPLETE if isinstance(problem, Incomplete) else USAGE)
