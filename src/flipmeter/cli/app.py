"""What the verbs share: the application, the options, the two consoles."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml
from rich.console import Console, RenderableType
from rich.markup import escape

from flipmeter import __version__
from flipmeter.base.atomic import is_same_file
from flipmeter.run.joined import joined
from flipmeter.run.perform import CALLS, DECISIONS, ENVIRONMENT, STUDY, Run
from flipmeter.run.predictions import ENDINGS, read_predictions
from flipmeter.study.file import (
    Study,
    find_study,
    read_study,
)
from flipmeter.types import Problem

ASKED_WRONGLY, INCOMPLETE = 2, 4
DEFAULT_STORE = Path(".flipmeter") / "replies.sqlite"

app = typer.Typer(
    help="Does your LLM rater change its mind when nothing but positions change?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

StudyName = Annotated[str, typer.Argument(help="A study file, or the name of a bundled study.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
RunOrTable = Annotated[
    Path, typer.Argument(help="A run folder, or a table of predictions (CSV, JSONL, Parquet).")
]
RunsOrTable = Annotated[
    list[Path],
    typer.Argument(
        help="A run folder, several that are one study, or a table of predictions (CSV, JSONL, "
        "Parquet)."
    ),
]
ScaleOption = Annotated[
    str | None, typer.Option("--scale", help="Of a table: its classes, lowest first: low,mid,high.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a key of the study: test_size=40, base.shots=1."),
]
Models = Annotated[
    list[str] | None, typer.Option("--model", "-m", help="Ask this model instead (repeatable).")
]
Data = Annotated[
    list[str] | None, typer.Option("--dataset", "-d", help="Use this dataset instead (repeatable).")
]
Limit = Annotated[int | None, typer.Option(help="Rate at most this many items.", min=1)]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="FLIPMETER_DATA", help="The folder with the catalog's datasets."),
]
StorePath = Annotated[Path, typer.Option("--store", help="The reply store.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run folder (runs/NAME).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a machine.")]


def fail(message: str, code: int = ASKED_WRONGLY) -> NoReturn:
    errors().print(f"[bold red]flipmeter:[/] {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(code)


def errors() -> Console:
    return Console(stderr=True)


def warn(text: str) -> None:
    """Say on stderr what a reader must know, in one line that is not folded."""
    errors().print(f"! {text}", highlight=False, markup=False, soft_wrap=True)


def say(*things: RenderableType) -> None:
    # A pipe has no width: give tables room instead of folding them at 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    for thing in things:
        console.print(thing, highlight=False, markup=False)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"flipmeter {__version__}")
        raise typer.Exit


# --- reading a study --------------------------------------------------------------------------


def study_of(
    name: str,
    changes: list[str] | None,
    models: list[str] | None,
    data: list[str] | None,
    limit: int | None,
    data_dir: Path | None,
) -> Study:
    set_keys = dict(_change(change) for change in changes or [])
    if models:
        set_keys["models"] = models
    if data:
        set_keys["datasets"] = data
    study = read_study(find_study(name), set_keys, data_dir=data_dir)
    return study if limit is None else study.limited(limit)


def _change(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise Problem(f"--set {text!r} changes nothing; write KEY=VALUE")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise Problem(f"--set {key}: {value!r} is not valid YAML ({error})") from error


def spare(out: Path | None, *sources: Path | None) -> None:
    """Refuse to write over a file that is read, or over what a run folder is made of."""
    if out is None:
        return
    for source in filter(None, sources):
        parts = (STUDY, DECISIONS, CALLS, ENVIRONMENT) if source.is_dir() else ("",)
        if any(is_same_file(out, source / part) for part in parts):
            raise Problem(f"{out} is what is read here; name another file to write")


def open_run(paths: Sequence[Path], scale: str | None = None) -> Run:
    """Return the run in a folder, several folders as one run, or a table of predictions as one."""
    tables = [path for path in paths if path.is_file() or path.suffix.lower() in ENDINGS]
    if tables and len(paths) > 1:
        raise Problem(
            f"{tables[0]} is a table of predictions, and only run folders add up; put all answers "
            "into one table, with a column `model`, `dataset` or `seed` that tells them apart"
        )
    if tables:
        names = [name.strip() for name in scale.split(",")] if scale else ()
        return read_predictions(tables[0], names)
    if scale:
        raise Problem(
            f"--scale is for a table of predictions; {paths[0]} is a run and knows its own"
        )
    return joined([Run(path) for path in paths])
