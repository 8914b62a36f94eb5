"""The verb check: hold a run to a gate, for people and for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.base.files.atomic import write_output
from flipmeter.cli.consoles import exit_by, say
from flipmeter.cli.options import AsJson, RunOrTable, ScaleOption, open_run, spare, verb
from flipmeter.report.claims import claims_junit, claims_markdown
from flipmeter.run.record.generation import verify
from flipmeter.ship.gate import Checked
from flipmeter.types import Problem

app = verb()


@app.command("check")
def check_(
    folder: RunOrTable,
    gate: Annotated[
        Path | None, typer.Option(help="A file of limits; without it, the margin of the study.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A reference run: also hold what got worse since then.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a summary for a pull request to this file.")
    ] = None,
    is_verified: Annotated[
        bool, typer.Option("--verify", help="First hold every file of the run to its SHA-256.")
    ] = False,
    scale: ScaleOption = None,
    as_json: AsJson = False,
) -> None:
    """Hold a run to limits: exit 0 if all are surely kept, 1 if one is broken, 3 if not known."""
    for written in (junit, markdown):
        spare(written, folder, gate, against)
    if is_verified:
        verify(folder)
    reference = (
        None if against is None else open_run([against], scale if against.is_file() else None)
    )
    done = open_run([folder], scale).check(gate, reference)
    title = f"{done.name}: {done.word}"
    if junit is not None:
        _write(junit, claims_junit(done.claims, done.name))
    if markdown is not None:
        _write(markdown, claims_markdown(done.claims, title, done.notes))
    if as_json:
        typer.echo(json.dumps(_plain(done), ensure_ascii=False))
    else:
        say(*done.tables())
    exit_by(done.word)


def _plain(done: Checked) -> dict[str, object]:
    claims = done.claims.to_dicts()
    return {"study": done.name, "word": done.word, "claims": claims, "notes": list(done.notes)}


def _write(path: Path, text: str) -> None:
    try:
        write_output(path, text)
    except OSError as error:
        raise Problem(f"cannot write {path} ({error.strerror}); name another file") from error
