"""The verb check: test a run against a gate or claims, by hand or in continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flipmeter.choose.tables import claims_junit, claims_markdown
from flipmeter.cli.consoles import exit_by, say
from flipmeter.cli.options import (
    AsJson,
    ScaleOption,
    TableOut,
    WithinOption,
    open_run,
    spare,
    verb,
    written,
)
from flipmeter.cli.output import AsCsv, Output, heading, unless_met, write_text
from flipmeter.errors import Problem
from flipmeter.run.generation import verify
from flipmeter.show.estimate_tables import certificate_table, warned
from flipmeter.stats.judge import overall_outcome

if TYPE_CHECKING:
    from flipmeter.api import Run
    from flipmeter.choose.gate import Checked

app = verb()

GateFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Limits (YAML); default: the margin of the study."),
]
Against = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="A reference run: also test what got worse since then."),
]
JUnit = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=written, help="Write JUnit XML to this file."),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", callback=written, help="Write a summary for a pull request to this file."
    ),
]
Verified = Annotated[
    bool, typer.Option("--verify", help="First check every file of the run against its SHA-256.")
]


@app.command("check")
def check_(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... [CLAIM...]",
            help="Run folders or a table of predictions, then claims instead of a gate: "
            "'P1<0.10', 'P1-noise<0.05'.",
        ),
    ],
    gate: GateFile = None,
    against: Against = None,
    junit: JUnit = None,
    markdown: Markdown = None,
    is_verified: Verified = False,
    scale: ScaleOption = None,
    within: WithinOption = None,
    as_json: AsJson = False,
    csv: AsCsv = False,
    out: TableOut = None,
) -> None:
    """Test a run: exit 0 if every limit or claim is shown to hold, 1 if one is not, 3 if open."""
    folders, claims = _split_runs_and_claims(names)
    for path in (out, junit, markdown):
        spare(path, *folders, gate, against)
    for folder in folders if is_verified else ():
        verify(folder)
    run = open_run(folders, scale, within)
    output = Output(out, as_json=as_json, as_csv=csv)
    if not claims:
        told = (scale, within) if against is not None and against.is_file() else (None, None)
        reference = None if against is None else open_run([against], *told)
        _say_gate(run.check(gate=gate, against=reference), output, folders, (junit, markdown))
    given = {"--gate": gate, "--against": against, "--junit": junit, "--markdown": markdown}
    if spent := [name for name, value in given.items() if value is not None]:
        raise Problem(f"{spent[0]} is for a gate; leave out the claim '{claims[0]}'")
    _say_claims(run, claims, output, folders)


def _split_runs_and_claims(names: list[str]) -> tuple[list[Path], list[str]]:
    """The first name is a run; so are those after it that exist, and the rest are claims."""
    first = next((n for n, name in enumerate(names) if n and not Path(name).exists()), len(names))
    return [Path(name) for name in names[:first]], names[first:]


def _say_gate(
    done: Checked, output: Output, folders: list[Path], files: tuple[Path | None, Path | None]
) -> None:
    junit, markdown = files
    if junit is not None:
        write_text(claims_junit(done.claims, done.name), junit)
    if markdown is not None:
        write_text(claims_markdown(done.claims, f"{done.name}: {done.word}", done.notes), markdown)
    output.show(
        {"study": done.name, "word": done.word, "notes": list(done.notes)},
        {"claims": done.claims},
        lambda: say(*done.tables()),
        steps=unless_met(done.word, *folders),
    )
    exit_by(done.word)


def _say_claims(run: Run, claims: list[str], output: Output, folders: list[Path]) -> None:
    table = run.check(*claims)
    outcome = overall_outcome(table["outcome"])
    output.show(
        heading(run) | {"outcome": outcome},
        {"certificates": table},
        lambda: say("", warned(certificate_table(table), run.source.remarks)),
        steps=unless_met(outcome, *folders),
    )
    exit_by(outcome)
