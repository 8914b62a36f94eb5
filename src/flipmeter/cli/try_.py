"""The verb try: prompts, the replies to a few items and how each is read, what a model supports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from flipmeter.api import STORE
from flipmeter.ask.capabilities import (
    CAPABILITIES,
    Examination,
    asked_as,
    learn_reproducible,
    recall_dialect,
    stated,
)
from flipmeter.ask.dialect import DIALECT, corrections_of, told_corrections
from flipmeter.ask.family import Capability
from flipmeter.ask.names import identity_of, is_tested
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.cli.asking import resumable
from flipmeter.cli.consoles import INCOMPLETE, fail, say
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
from flipmeter.cli.output import finish, print_json, with_study
from flipmeter.errors import Problem
from flipmeter.loops import wait_for
from flipmeter.run.conditions import look
from flipmeter.run.progress import Terms
from flipmeter.show.table import Cell, Table, groups_of, word
from flipmeter.types import Decoding, Interface, Model, Reply

WORDS = {True: "yes", False: "no", None: "unknown"}
ABOUT = {
    "logprobs": "log-probabilities of the answer's tokens",
    "seed": "a seed that makes sampling repeatable",
    "completions": "the completions interface (raw text)",
    "reasoning": "control of reasoning",
    "reproducible": "identical requests get bit-identical replies",
    DIALECT: "fields that are sent under another name or not at all",
}


def say_supported(chosen: Model, store: Path, *, anew: bool, as_json: bool) -> None:
    """Find out what a model supports, with a few small requests, record it and print it."""
    found, reply = stated(chosen), Reply()
    if found is None or is_tested(chosen):
        with Store(store) as replies:
            found, reply = _examine_capabilities(chosen, replies, anew=anew)
    if as_json:
        print_json(_capabilities_json(chosen, found, reply))
        return
    say(_capability_table(chosen, found))
    for name, value in _endpoint_self_report(reply).items():
        say(f"the {name} that answered: {value}")
    if stated(chosen) is None or is_tested(chosen):
        say(f"recorded in {store} for every run; --anew examines it again")


def _examine_capabilities(
    model: Model, store: Store, *, anew: bool
) -> tuple[dict[str, Capability], Reply]:
    """The recorded capabilities of a model, and those tested now."""
    if (found := stated(model)) is not None:
        tested = wait_for(learn_reproducible(model, store, anew=anew))
        return {**found, tested.name: tested}, Reply()
    identity = identity_of(model)
    known = {} if anew else store.capabilities(identity, asked_as(model))
    if not anew and (dialect := recall_dialect(model, Decoding(), store)):
        known |= {dialect.name: dialect}
    missing = [name for name in CAPABILITIES if name not in known]
    wanted = [DIALECT, *missing] if DIALECT not in known else missing
    seen = wait_for(look(model, store, wanted, Terms())) if missing else Examination({})
    learned = recall_dialect(model, Decoding(), store)
    return {**known, **seen.found, **({DIALECT: learned} if learned else {})}, seen.reply


def _capability_table(model: Model, found: Mapping[str, Capability]) -> Table:
    rows: Iterator[list[str | Cell]] = (
        [f"{name}: {ABOUT[name]}", word(WORDS[one.is_there]), one.how, one.seen]
        for name, one in _examined_capabilities(found).items()
    )
    heads = ("capability", "supported", "evidence", "since")
    return Table(f"What {model.title} supports", heads, groups_of(rows))


def _examined_capabilities(found: Mapping[str, Capability]) -> dict[str, Capability]:
    """The capabilities that were examined, in order and in words."""
    shown = {name: found[name] for name in ABOUT if name in found}
    if dialect := shown.get(DIALECT):
        shown[DIALECT] = replace(dialect, how=told_corrections(corrections_of(found)))
    return shown


def _endpoint_self_report(reply: Reply) -> dict[str, str]:
    """The endpoint's own description of the model."""
    named = {
        "model": reply.model,
        "provider": reply.provider,
        "system fingerprint": reply.fingerprint,
    }
    return {name: value for name, value in named.items() if value}


def _capabilities_json(
    model: Model, found: Mapping[str, Capability], reply: Reply
) -> dict[str, Any]:
    return {
        "model": model.address,
        "asked_as": json.loads(asked_as(model)),
        "capabilities": {
            name: {
                "is_there": one.is_there,
                "how": one.how,
                "seen": one.seen,
            }
            for name, one in _examined_capabilities(found).items()
        },
        "answered_by": _endpoint_self_report(reply),
    }


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
        _refuse_options(ctx, OF_A_STUDY, f"'{study}' is a model")
        chosen = Model(study, base_url=base_url, key=key, interface=interface)
        say_supported(chosen, store, anew=again, as_json=as_json)
        return
    _refuse_options(ctx, OF_A_MODEL, f"'{study}' is a study")
    _refuse_options(
        ctx, ("limit",) if dry else ("item", "view"), f"--dry is {'' if dry else 'not '}given"
    )
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


def _refuse_options(ctx: typer.Context, names: tuple[str, ...], why: str) -> None:
    """Refuse options that this use of the verb does not have."""
    for name in names:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = next(one.opts[0] for one in ctx.command.params if one.name == name)
            raise Problem(f"{option} has no meaning here: {why}")
