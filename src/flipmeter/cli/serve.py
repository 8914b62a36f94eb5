"""The verb serve: embedded and simulated models behind HTTP."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.base.checks import at_least
from flipmeter.base.files.documents import read_yaml
from flipmeter.cli.consoles import errors
from flipmeter.cli.options import (
    AsJson,
    DataDir,
    TrustCode,
    TrustHosts,
    verb,
)
from flipmeter.cli.output import print_json
from flipmeter.data import load
from flipmeter.model import (
    is_simulated,
    open_backend,
    run_forever,
)
from flipmeter.registry import suggestion
from flipmeter.study.file import read_study
from flipmeter.study.grid import world
from flipmeter.types import Dataset, Model, Problem

app = verb()


@app.command()
def serve(
    model: Annotated[list[str], typer.Argument(help="Models: NAME=local/..., '*=sim/honest'.")],
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset",
            "-d",
            metavar="DATASET",
            help="The dataset that simulated raters know: a name, a study file (STUDY.yaml:NAME if "
            "it has several), or an entry of one: '{file: a.csv, scale: nominal}'.",
        ),
    ] = "reviews",
    data_dir: DataDir = None,
    port: Annotated[
        int,
        typer.Option(metavar="PORT", help="The port to listen on.", min=0, max=65535),
    ] = 8080,
    delay: Annotated[
        float, typer.Option(metavar="SECONDS", help="Delay every reply by this long.")
    ] = 0.0,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Serve embedded or simulated models as an OpenAI-compatible endpoint on loopback."""
    at_least(delay, 0, "--delay")
    named = dict(_served(text) for text in model)
    models = {name: Model(address) for name, address in named.items()}
    has_sim = any(map(is_simulated, models.values()))
    known = world(_dataset(dataset, data_dir)) if has_sim else None
    opened = {name: open_backend(model, known) for name, model in models.items()}

    def tell(address: str) -> None:
        if as_json:
            print_json({"address": address, "models": [*named]})
        errors().print(f"serving {', '.join(named)} on {address} (Ctrl-C stops)")

    asyncio.run(run_forever(opened, port=port, delay=delay, on_ready=tell))


def _dataset(named: str, data_dir: Path | None) -> Dataset:
    """The dataset of a name in the catalog, of a study file, or of an entry of such a file."""
    if named.lstrip().startswith("{"):
        return load(read_yaml(named, f"--dataset {named[:80]!r}"), data_dir=data_dir)
    told = _STUDY_FILE.fullmatch(named)
    if told is None:
        return load(named, data_dir=data_dir)
    found = {one.name: one for one in read_study(Path(told["file"]), data_dir=data_dir).load()}
    which = told["name"] or next(iter(found))
    if which not in found:
        raise Problem(f"{told['file']} has no dataset '{which}'{suggestion(which, list(found))}")
    if len(found) > 1 and not told["name"]:
        raise Problem(
            f"{told['file']} has {len(found)} datasets ({', '.join(found)}); choose one: "
            f"--dataset {told['file']}:{which}"
        )
    return found[which]


_STUDY_FILE = re.compile(r"(?P<file>.+\.ya?ml)(?::(?P<name>.+))?")


def _served(text: str) -> tuple[str, str]:
    """Read NAME=ADDRESS; an address alone is served under its own name."""
    name, equals, address = text.partition("=")
    is_pair = bool(equals) and "?" not in name  # sim/first-slot?strength=1 is an address
    return (name, address) if is_pair else (text, text)
