"""The verb examine: what an endpoint has, before a study relies on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from flipmeter.api import STORE
from flipmeter.base.run_sync import wait_for
from flipmeter.cli.consoles import say
from flipmeter.cli.options import (
    AsJson,
    StorePath,
    TrustCode,
    TrustHosts,
    verb,
)
from flipmeter.model import (
    CAPABILITIES,
    Capability,
    Examination,
    Store,
    asked_as,
    identity_of,
    is_tested,
    learn_reproducible,
    stated,
)
from flipmeter.run.fallbacks import look
from flipmeter.types import Interface, Model, Reply

app = verb()

WORDS = {True: "yes", False: "no", None: "cannot be told"}
STYLES = {True: "green", False: "red", None: "yellow"}
ABOUT = {
    "logprobs": "log-probabilities of the answer's tokens",
    "seed": "a seed that makes sampling repeatable",
    "completions": "the completions interface (raw text)",
    "reasoning": "control of reasoning",
    "reproducible": "equal requests get equal replies, to the last bit",
}


@app.command()
def examine(
    model: Annotated[str, typer.Argument(help="A model: openrouter/..., http/NAME, local/....")],
    base_url: Annotated[
        str | None, typer.Option("--base-url", help="Where it is asked, if not where usual.")
    ] = None,
    key: Annotated[
        str, typer.Option(metavar="NAME", help="The variable with its key, if not the usual one.")
    ] = "",
    interface: Annotated[
        Interface | None, typer.Option(help="How it is asked, if not as usual.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Look anew, whatever is recorded.")
    ] = False,
    store: StorePath = STORE,
    as_json: AsJson = False,
    trust: TrustCode = False,
    trust_host: TrustHosts = None,
) -> None:
    """Find out what a model has, by a few small requests or a self-test, and record it."""
    chosen = Model(model, base_url=base_url, key=key, interface=interface)
    found, reply = stated(chosen), Reply()
    if found is None or is_tested(chosen):
        with Store(store) as replies:
            found, reply = _examined(chosen, replies, again=again)
    if as_json:
        typer.echo(json.dumps(_plain(chosen, found, reply), ensure_ascii=False))
        return
    say(_table(chosen, found))
    for name, value in _answered(reply).items():
        say(f"the {name} that answered: {value}")
    if stated(chosen) is None or is_tested(chosen):
        say(f"recorded in {store} for every run; --again looks anew")


def _examined(model: Model, store: Store, *, again: bool) -> tuple[dict[str, Capability], Reply]:
    """Return what is known, with what was not known looked at now."""
    if (found := stated(model)) is not None:
        tested = wait_for(learn_reproducible(model, store, anew=again))
        return {**found, tested.name: tested}, Reply()
    identity = identity_of(model)
    known = {} if again else store.capabilities(identity, asked_as(model))
    missing = [name for name in CAPABILITIES if name not in known]
    seen = wait_for(look(model, store, missing)) if missing else Examination({})
    return {**known, **seen.found}, seen.reply


def _table(model: Model, found: Mapping[str, Capability]) -> Table:
    table = Table(title=f"What {model.title} has", title_justify="left")
    for name in ("capability", "is it there?", "how we know", "since"):
        table.add_column(name)
    for name, one in _known(found).items():
        there = Text(WORDS[one.is_there], style=STYLES[one.is_there])
        table.add_row(f"{name}: {ABOUT[name]}", there, Text(one.how), one.seen)
    return table


def _known(found: Mapping[str, Capability]) -> dict[str, Capability]:
    """What was looked for, in the order in which it is shown."""
    return {name: found[name] for name in ABOUT if name in found}


def _answered(reply: Reply) -> dict[str, str]:
    """Return what the endpoint says about itself."""
    named = {
        "model": reply.model,
        "provider": reply.provider,
        "system fingerprint": reply.fingerprint,
    }
    return {name: value for name, value in named.items() if value}


def _plain(model: Model, found: Mapping[str, Capability], reply: Reply) -> dict[str, Any]:
    return {
        "model": model.address,
        "asked_as": json.loads(asked_as(model)),
        "capabilities": {
            name: {
                "is_there": one.is_there,
                "how": one.how,
                "seen": one.seen,
            }
            for name, one in _known(found).items()
        },
        "answered_by": _answered(reply),
    }
