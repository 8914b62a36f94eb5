"""The verb paper: the paper's claims and errors, answered."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.base.files.atomic import write_output
from flipmeter.cli.consoles import say
from flipmeter.cli.options import AsJson, verb
from flipmeter.cli.output import print_json
from flipmeter.paper.errata import shown_errata
from flipmeter.paper.errata.errata_page import errata_markdown, errata_tables
from flipmeter.types import Problem

app = verb()


@app.command()
def paper(
    is_errata: Annotated[
        bool, typer.Option("--errata", help="Show each error of the paper on honest raters.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this erratum, by name (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="Write the page to this file (.md)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Answer the paper: its errors shown on raters that are known to be honest."""
    if not is_errata:
        raise Problem("say what to show: --errata")
    _show_errata(only or [], out, as_json=as_json)


def _show_errata(names: list[str], out: Path | None, *, as_json: bool) -> None:
    if out is not None and out.suffix != ".md":
        raise Problem(f"cannot write {out}: errata are written as Markdown (.md)")
    if out is None and not as_json:
        for one in shown_errata(names):
            say(*errata_tables(one))
        return
    found = list(shown_errata(names))
    if out is not None:
        write_output(out, errata_markdown(found))
    if as_json:
        print_json({"errata": [one.record() for one in found]})
    elif out is not None:
        typer.echo(f"errata: {out}")
