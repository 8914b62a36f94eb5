"""The page of the command line: every verb with its arguments and options, from the code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from flipmeter.cli import VERBS, open_verb
from flipmeter.cli.consoles import EXIT_CODES

HEAD = """# Command line

Results go to stdout, progress and warnings to stderr. With `--json`, stdout holds one JSON document
and nothing else. If there is an obvious next command, it is printed at the end after `next`, quoted
for pasting; in JSON it is in the list `next`. An option means the same with every command.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it, subcommands with their group's name."""
    for verb in VERBS:
        command = open_verb(verb)
        group = getattr(command, "commands", None)
        if group is None:
            yield verb, command
        else:
            yield from ((f"{verb} {name}", one) for name, one in group.items())


def reference() -> str:
    """The page as the code has it."""
    return "\n".join(
        [HEAD, *_exit_codes(), *(line for one in commands() for line in _section(*one))]
    )


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield from _table(("code", "meaning"), [(str(k), text) for k, text in EXIT_CODES.items()])


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.help]
    words = " ".join(_argument(one) for one in arguments)
    yield f"## flipmeter {name}\n"
    yield f"    flipmeter {name} {words}".rstrip() + "\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if arguments:
        yield from _table(
            ("argument", "meaning"), [(f"`{_argument(one)}`", one.help) for one in arguments]
        )
    options = [one for one in options if one.name != "help"]
    yield from _table(("option", "meaning"), [(_option(one), one.help) for one in options])


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return f"{name}{many}" if argument.required else f"[{name}{many}]"


def _option(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    needed = " (required)" if option.required else ""
    return ", ".join(f"`{one}{value}`" for one in option.opts) + needed


def _table(heads: tuple[str, ...], rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    yield from (
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows
    )
    yield ""
