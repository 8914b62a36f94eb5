"""The verb trust: remember consent to the code of a file, or to a host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.base.consent import config_file, forget, remember, remembered
from flipmeter.base.problem import Problem
from flipmeter.cli.options import AsJson, verb
from flipmeter.cli.output import finish

app = verb()


@app.command()
def trust(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Python files that studies or cards name.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--trust-host",
            metavar="HOST",
            help="A host that may receive the API key a model names (repeatable).",
        ),
    ] = None,
    is_forgotten: Annotated[
        bool, typer.Option("--forget", help="Withdraw the consent instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remember consent to run a Python file as it is now, or to send API keys to a host."""
    chosen, hosts = files or [], host or []
    for path in chosen:
        if not is_forgotten and (path.suffix != ".py" or not path.is_file()):
            raise Problem(f"{path} is not a Python file; pass the file whose code may run")
    (forget if is_forgotten else remember)(chosen, hosts)
    known = remembered()
    lines = [f"code  {digest[:12]}  {place}" for digest, place in known.code.items()]
    lines += [f"host  {one}" for one in known.hosts]
    finish(
        {"code": dict(known.code), "hosts": list(known.hosts)},
        *(lines or [f"{config_file()} trusts nothing"]),
        as_json=as_json,
    )
