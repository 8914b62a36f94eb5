"""The verb try: prompts, the replies to a few items and how each is read, what a model supports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from flipmeter.api import STORE
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import fail
from flipmeter.cli.exits import INCOMPLETE
from flipmeter.cli.next_commands import with_study
from flipmeter.cli.options import (
    AsJson,
    Changes,
    Data,
    DataDir,
    Models,
    StorePath,
    TrustCode,
    TrustHosts,
    study_of,
    verb,
)
from flipmeter.cli.output import finish
from flipmeter.cli.supported import say_supported
from flipmeter.model import Ledger
from flipmeter.types import Interface, Model, Problem

app = verb()

OF_A_MODEL = ("base_url", "key", "interface", "again")
OF_A_STUDY = ("limit", "dry", "item", "view", "changes", "model", "dataset", "data_dir")

StudyOrModel = Annotated[
    str,
    typer.Argument(
        metavar="STUDY|MODEL",
        help="A study file, a run folder (its study) or the name of a bundled study; or a model: "
        "openrouter/..., http/NAME, local/....",
    ),
]
ItemNumber = Annotated[
    int,
    typer.Option(metavar="N", help="With --dry: the test item, counted from 1.", min=1),
]
ViewNames = Annotated[
    list[str] | None,
    typer.Option(metavar="VIEW", help="With --dry: only this view (repeatable)."),
]
Address = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="Of a model: its endpoint, if not the usual."),
]
KeyName = Annotated[
    str,
    typer.Option(metavar="NAME", help="Of a model: the environment variable with its API key."),
]
ModelInterface = Annotated[
    Interface | None, typer.Option(help="Of a model: chat or completions; default: by model.")
]


@app.command("try")
def try_(
    ctx: typer.Context,
    study: StudyOrModel,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", help="Rate at most this many items.", min=1)
    ] = 3,
    dry: Annotated[
        bool, typer.Option("--dry", help="Print the prompts of one item; sends nothing.")
    ] = False,
    item: ItemNumber = 1,
    view: ViewNames = None,
    changes: Changes = None,
    model: Models = None,
    dataset: Data = None,
    data_dir: DataDir = None,
    base_url: Address = None,
    key: KeyName = "",
    interface: ModelInterface = None,
    again: Annotated[
        bool, typer.Option("--anew", help="Of a model: replace what is recorded about it.")
    ] = False,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Ask a few items under every view and print each reply; of a model, what it supports."""
    if _is_model(study):
        _refuse(ctx, OF_A_STUDY, f"'{study}' is a model")
        chosen = Model(study, base_url=base_url, key=key, interface=interface)
        say_supported(chosen, store, anew=again, as_json=as_json)
        return
    _refuse(ctx, OF_A_MODEL, f"'{study}' is a study")
    _refuse(ctx, ("limit",) if dry else ("item", "view"), f"--dry is {'' if dry else 'not '}given")
    found = study_of(study, changes, model, dataset, None, data_dir)
    if dry:
        prompts = found.show(item, views=view or [])
        finish(
            {"study": found.name, "item": item, "prompts": prompts.shown},
            *([] if as_json else prompts.tables()),
            as_json=as_json,
            steps=[with_study("try", study)],
        )
        return
    with resumable(Ledger(), store):
        trial = found.try_out(limit, store=store)
    doubts = [[*whose, why] for whose, why in trial.doubts.items()]
    finish(
        {"study": found.name, "replies": [*trial.rows()], "doubts": doubts},
        *([] if as_json else trial.tables()),
        as_json=as_json,
        steps=[] if trial.doubts else [with_study("plan", study)],
    )
    if trial.doubts:
        fail("some replies cannot be read as labels; see above", INCOMPLETE)


def _is_model(name: str) -> bool:
    """`family/name` is a model, unless it is a path: that of a file or folder, or of a YAML."""
    is_path = Path(name).suffix in {".yaml", ".yml"} or Path(name).exists()
    return re.match(r"[\w-]+/.", name) is not None and not is_path


def _refuse(ctx: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that this use of the verb does not have."""
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = next(one.opts[0] for one in ctx.command.params if one.name == name)
            raise Problem(f"{option} has no meaning here: {why}")
