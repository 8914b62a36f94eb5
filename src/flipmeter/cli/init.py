"""The verb init: draft a study for a file of texts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.__main__ import INTERRUPTED
from flipmeter.cli.consoles import warn
from flipmeter.cli.options import AsJson, out_option, spare, verb
from flipmeter.cli.output import finish, on_file, write_text
from flipmeter.data.labels import parse_span
from flipmeter.errors import Problem
from flipmeter.redaction import refuse_hidden
from flipmeter.study.draft import EMBEDDED, Ask, draft_study

app = verb()


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="Texts: .csv, .tsv, .jsonl, .parquet.")],
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column with the texts.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column with the labels.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar="SCALE", help="The classes, lowest first: low,medium,high; or a range: 0..10."
        ),
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="The file has no labels: no accuracy.")
    ] = False,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", help="The model to ask.")
    ] = EMBEDDED,
    out: Annotated[
        Path | None,
        out_option("The study file; default: FILE.yaml."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the study file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Inspect a file of texts and write a study file that is ready to run.

    On a terminal, it asks for what the file does not show; elsewhere the error names the option.
    """
    path = out or Path(f"{file.stem}.yaml")
    spare(path, file)
    if path.exists() and not force:
        raise Problem(f"{path} already exists; use --out or --force")
    span = parse_span(scale or "")
    classes = None if scale is None else span or [part.strip() for part in scale.split(",")]
    draft = draft_study(
        file,
        path,
        text=text,
        label=label,
        scale=classes,
        unlabelled=unlabelled,
        model=model,
        ask=None if as_json else _asker(),
    )
    refuse_hidden(f"the study {path}", draft.text)
    write_text(draft.text, path)
    for note in draft.notes:
        warn(note)
    finish(
        {"study": str(path), "notes": list(draft.notes)},
        f"study: {path}  (its comments say what you may want to change)",
        as_json=as_json,
        steps=[on_file("plan", path)],
    )


def _asker() -> Ask | None:
    """A function that asks the user, None where there is no terminal to answer on."""
    if not sys.stdin.isatty():
        return None

    def ask(question: str, proposed: str | None) -> str:
        try:
            return str(typer.prompt(question, default=proposed, err=True))
        except typer.Abort:
            sys.exit(INTERRUPTED)

    return ask
