"""The verb init: look at a file and draft a study of it."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from flipmeter.base.files.atomic import write_output
from flipmeter.cli.consoles import warn
from flipmeter.cli.options import spare, verb
from flipmeter.study.draft import EMBEDDED, Ask, draft_study
from flipmeter.types import Problem

app = verb()


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Texts: .csv, .tsv, .jsonl, .parquet.")],
    text: Annotated[str | None, typer.Option(help="The column with the texts.")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the labels.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="The classes, lowest first: low,medium,high.")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="No column holds labels: no accuracy.")
    ] = False,
    model: Annotated[str, typer.Option("--model", "-m", help="Who answers.")] = EMBEDDED,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The study file (FILE's name, .yaml).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the study file.")] = False,
) -> None:
    """Look at a file of texts, with or without labels, and write a study that runs as it is.

    What the file does not tell is asked on a terminal; elsewhere the error names the option.
    """
    path = out or Path(f"{file.stem}.yaml")
    spare(path, file)
    if path.exists() and not force:
        raise Problem(f"{path} is there already; name another with --out, or say --force")
    classes = None if scale is None else [part.strip() for part in scale.split(",")]
    draft = draft_study(
        file,
        path,
        text=text,
        label=label,
        scale=classes,
        unlabelled=unlabelled,
        model=model,
        ask=_asker(),
    )
    try:
        write_output(path, draft.text)
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror}); name another with --out") from error
    for note in draft.notes:
        warn(note)
    typer.echo(f"study: {path}  (read it: the comments say what to change)")
    typer.echo(f"next: flipmeter plan {quote(str(path))}")


def _asker() -> Ask | None:
    """Return what puts a question to the user, None where nobody would answer."""
    if not sys.stdin.isatty():
        return None
    return lambda question, proposed: str(typer.prompt(question, default=proposed, err=True))
