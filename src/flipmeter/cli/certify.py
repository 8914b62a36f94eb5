"""The verb certify: claims about flip rates, shown, refuted or open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.cli.consoles import say
from flipmeter.cli.exits import exit_by
from flipmeter.cli.next_commands import unless_met
from flipmeter.cli.options import AsJson, ScaleOption, TableOut, WithinOption, open_run, spare, verb
from flipmeter.cli.output import AsCsv, Output
from flipmeter.cli.printing import heading
from flipmeter.measure.inference.claims import overall_outcome
from flipmeter.report import certificate_table, warned
from flipmeter.types import Problem

app = verb()


@app.command()
def certify(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... CLAIM...",
            help="Run folders or a table of predictions, then claims: 'P1<0.10', 'P1-noise<0.05'.",
        ),
    ],
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Test claims about a run: exit 0 if all are shown, 1 if one is refuted, 3 if one is open."""
    folders, claims = _split(names)
    spare(out, *folders)
    done = open_run(folders, scale, within)
    table = done.certify(*claims)
    outcome = overall_outcome(table["outcome"])
    Output(out, as_json=as_json, as_csv=csv).show(
        heading(done) | {"outcome": outcome},
        {"certificates": table},
        lambda: say("", warned(certificate_table(table), done.warnings)),
        steps=unless_met(outcome, *folders),
    )
    exit_by(outcome)


def _split(names: list[str]) -> tuple[list[Path], list[str]]:
    """The first name is a run; each further one is a run if it exists, else a claim."""
    folders = [Path(names[0])]
    claims: list[str] = []
    for name in names[1:]:
        if not claims and Path(name).exists():
            folders.append(Path(name))
        else:
            claims.append(name)
    if not claims:
        raise Problem("no claim to certify; add one, as in 'P1<0.10'")
    return folders, claims
