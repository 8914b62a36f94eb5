"""The verb check: test a run against a gate, by hand or in continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.exits import exit_by
from flipmeter.cli.next_commands import unless_met
from flipmeter.cli.options import (
    AsJson,
    RunOrTable,
    ScaleOption,
    WithinOption,
    open_run,
    spare,
    verb,
    written,
)
from flipmeter.cli.output import finish, write_text
from flipmeter.report.claims import claims_junit, claims_markdown
from flipmeter.run.record.generation import verify
from flipmeter.ship.gate import Checked

app = verb()


@app.command("check")
def check_(
    folder: RunOrTable,
    gate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Limits (YAML); default: the margin of the study."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="A reference run: also test what got worse since then."),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=written, help="Write JUnit XML to this file."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=written,
            help="Write a summary for a pull request to this file.",
        ),
    ] = None,
    is_verified: Annotated[
        bool,
        typer.Option("--verify", help="First check every file of the run against its SHA-256."),
    ] = False,
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
) -> None:
    """Test a run against limits: exit 0 if all are shown to hold, 1 if one is broken, 3 if open."""
    for out in (junit, markdown):
        spare(out, folder, gate, against)
    if is_verified:
        verify(folder)
    told = (scale, within) if against is not None and against.is_file() else (None, None)
    reference = None if against is None else open_run([against], *told)
    done = open_run([folder], scale, within).check(gate, reference)
    title = f"{done.name}: {done.word}"
    if junit is not None:
        write_text(claims_junit(done.claims, done.name), junit)
    if markdown is not None:
        write_text(claims_markdown(done.claims, title, done.notes), markdown)
    lines = () if as_json else done.tables()
    finish(_plain(done), *lines, as_json=as_json, steps=unless_met(done.word, folder))
    exit_by(done.word)


def _plain(done: Checked) -> dict[str, object]:
    claims = done.claims.to_dicts()
    return {"study": done.name, "word": done.word, "claims": claims, "notes": list(done.notes)}
