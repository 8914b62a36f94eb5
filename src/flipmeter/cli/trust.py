"""The verb trust: remember consent to the code of a file, or to a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.base.consent import config_file, forget, remember, remembered
from flipmeter.base.problem import Problem
from flipmeter.cli.options import verb

app = verb()


@app.command()
def trust(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Python files that studies or cards name.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A host that may be given the key a model names (repeatable)."),
    ] = None,
    is_forgotten: Annotated[
        bool, typer.Option("--forget", help="Withdraw the consent to these instead.")
    ] = False,
) -> None:
    """Remember consent to run a Python file as it is now, or to send keys to a host."""
    chosen, hosts = files or [], host or []
    for path in chosen:
        if not is_forgotten and (path.suffix != ".py" or not path.is_file()):
            raise Problem(f"{path} is no Python file; name the file whose code may run")
    (forget if is_forgotten else remember)(chosen, hosts)
    known = remembered()
    for digest, place in known.code.items():
        typer.echo(f"code  {digest[:12]}  {place}")
    for one in known.hosts:
        typer.echo(f"host  {one}")
    if not known.code and not known.hosts:
        typer.echo(f"nothing is trusted in {config_file()}")
