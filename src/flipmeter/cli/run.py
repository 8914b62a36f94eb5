"""The verb run: send what is not stored, then measure; keep or withdraw consent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import ask
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Limit,
    Models,
    Out,
    StorePath,
    TrustCode,
    TrustHosts,
    run_folder,
    study_of,
    verb,
)
from flipmeter.cli.output import finish, on_run
from flipmeter.consent import config_file, forget, remember, remembered
from flipmeter.errors import Problem

app = verb()


Remember = Annotated[
    bool,
    typer.Option(
        "--remember",
        help="Keep this consent: to the code that the study (or STUDY, a .py file) is now, and to "
        "the hosts of --trust-host.",
    ),
]
Forget = Annotated[
    list[str] | None,
    typer.Option(
        "--forget",
        metavar="FILE|HOST",
        help="Withdraw consent that was kept, and run nothing (repeatable).",
    ),
]


@app.command()
def run(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]",
            help="A study file, a run folder (its study), or the name of a bundled study.",
        ),
    ] = None,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    limit: Limit = None,
    data_dir: DataDir = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="CLAIM", help="Stop as soon as a claim is settled: 'P1<0.10'."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="RAY", help="Ask on a Ray cluster: ray, ray://HOST:PORT or ray:HOST:PORT."
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Go on with raters whose first replies cannot be read."),
    ] = False,
    out: Out = None,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
    keeps: Remember = False,
    forgotten: Forget = None,
) -> None:
    """Send the requests that are not stored yet, then measure; stop and resume at any time."""
    is_alone = study is None or study.endswith(".py")
    if forgotten or (keeps and is_alone):
        files = [Path(study)] if study else []
        if files and not (trust or forgotten):
            raise Problem(f"--remember keeps consent to code; add --trust to give it to {study}")
        _change_consent(files, trust_host or [], forgotten or [], as_json=as_json)
        return
    if study is None:
        raise Problem("name a study: flipmeter run STUDY")
    chosen = study_of(study, changes, model, dataset, limit, data_dir)
    if until is not None:
        chosen = chosen.model_copy(update={"until": until})
    if keeps:
        addresses = (entry.model.partition("/") for entry in chosen.entries)
        places = (own.partition(":")[0] for family, _, own in addresses if family == "python")
        code = [Path(place) for place in places if place.endswith(".py")]
        remember(code if trust else (), trust_host or ())
    ask(
        chosen,
        run_folder(out, chosen.name),
        store,
        on=on,
        anyway=anyway,
        as_json=as_json,
        steps=lambda done: on_run(done, study),
    )


def _change_consent(
    files: list[Path], hosts: list[str], forgotten: list[str], *, as_json: bool
) -> None:
    """Keep or withdraw consent, and print all that is kept."""
    for path in files:
        if path.suffix != ".py" or not path.is_file():
            raise Problem(f"{path} is not a Python file; pass the file whose code may run")
    if forgotten:
        forget(
            [Path(one) for one in forgotten if one.endswith(".py")],
            [one for one in forgotten if not one.endswith(".py")],
        )
    else:
        remember(files, hosts)
    known = remembered()
    lines = [f"code  {digest[:12]}  {place}" for digest, place in known.code.items()]
    lines += [f"host  {one}" for one in known.hosts]
    finish(
        {"code": dict(known.code), "hosts": list(known.hosts)},
        *(lines or [f"{config_file()} trusts nothing"]),
        as_json=as_json,
    )
