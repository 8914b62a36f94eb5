"""Capabilities of an endpoint, before a study relies on it: `try MODEL`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from flipmeter.model.wires.corrections import told_corrections
from flipmeter.model.wires.learned import DIALECT, corrections_of
from flipmeter.report.table import Cell, Table, groups_of, word
from flipmeter.run.fallbacks import look
from flipmeter.types import Decoding, Model, Reply

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
            found, reply = _examined(chosen, replies, anew=anew)
    if as_json:
        print_json(_plain(chosen, found, reply))
        return
    say(_table(chosen, found))
    for name, value in _answered(reply).items():
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
    seen = wait_for(look(model, store, wanted)) if missing else Examination({})
    learned = recall_dialect(model, Decoding(), store)
    return {**known, **seen.found, **({DIALECT: learned} if learned else {})}, seen.reply


def _table(model: Model, found: Mapping[str, Capability]) -> Table:
    rows: Iterator[list[str | Cell]] = (
        [f"{name}: {ABOUT[name]}", word(WORDS[one.is_there]), one.how, one.seen]
        for name, one in _known(found).items()
    )
    heads = ("capability", "supported", "evidence", "since")
    return Table(f"What {model.title} supports", heads, groups_of(rows))


def _known(found: Mapping[str, Capability]) -> dict[str, Capability]:
    """The capabilities that were examined, in order and in words."""
    shown = {name: found[name] for name in ABOUT if name in found}
    if dialect := shown.get(DIALECT):
        shown[DIALECT] = replace(dialect, how=told_corrections(corrections_of(found)))
    return shown


def _answered(reply: Reply) -> dict[str, str]:
    """The endpoint's own description of the model."""
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
