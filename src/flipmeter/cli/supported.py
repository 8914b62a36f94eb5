"""Capabilities of an endpoint, before a study relies on it: `try MODEL`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from flipmeter.base.run_sync import wait_for
from flipmeter.cli.consoles import say
from flipmeter.cli.output import print_json
from flipmeter.model import (
    CAPABILITIES,
    Capability,
    Examination,
    Store,
    asked_as,
    identity_of,
    is_tested,
    learn_reproducible,
    recall_dialect,
    stated,
)
from flipmeter.model.wires.corrections import DIALECT, corrections_of, told_corrections
from flipmeter.run.fallbacks import look
from flipmeter.run.interim import Terms
from flipmeter.types import Decoding, Model, Reply

WORDS = {True: "yes", False: "no", None: "unknown"}
STYLES = {True: "green", False: "red", None: "yellow"}
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
            found, reply = _examined(chosen, replies, anew=anew)
    known = {name: found[name] for name in ABOUT if name in found}
    if dialect := known.get(DIALECT):
        known[DIALECT] = replace(dialect, how=told_corrections(corrections_of(found)))
    said = {
        "model": reply.model,
        "provider": reply.provider,
        "system fingerprint": reply.fingerprint,
    }
    answered = {name: value for name, value in said.items() if value}
    if as_json:
        told = {
            name: {"is_there": one.is_there, "how": one.how, "seen": one.seen}
            for name, one in known.items()
        }
        asked = {"model": chosen.address, "asked_as": json.loads(asked_as(chosen))}
        print_json({**asked, "capabilities": told, "answered_by": answered})
        return
    table = Table(title=f"What {chosen.title} supports", title_justify="left")
    for name in ("capability", "supported", "evidence", "since"):
        table.add_column(name)
    for name, one in known.items():
        there = Text(WORDS[one.is_there], style=STYLES[one.is_there])
        table.add_row(f"{name}: {ABOUT[name]}", there, Text(one.how), one.seen)
    say(table)
    for name, value in answered.items():
        say(f"the {name} that answered: {value}")
    if stated(chosen) is None or is_tested(chosen):
        say(f"recorded in {store} for every run; --anew examines it again")


def _examined(model: Model, store: Store, *, anew: bool) -> tuple[dict[str, Capability], Reply]:
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
