"""Condition -> Condition: ask of every model only what it has, and say what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote

from flipmeter.decide import open_pipeline
from flipmeter.model import (
    Capability,
    Examination,
    HttpBackend,
    Store,
    asked_as,
    check_scored,
    examine,
    fleet_of,
    identity_of,
    needs,
    note_dialect,
    open_backend,
    recall_dialect,
    stated,
    unsent,
    without_logprobs,
)
from flipmeter.model.wires.corrections import DIALECT, corrections_of, told_corrections
from flipmeter.run.interim import Terms
from flipmeter.types import Condition, Model, Problem, Rater

Known = Mapping[Model, Mapping[str, Capability]]
"""The known capabilities of every model of a grid, by name, as far as the grid needs them."""


def recall(grid: Sequence[Condition], store: Store) -> dict[Model, dict[str, Capability]]:
    """The recorded capabilities; nothing is sent."""
    known = {model: _recalled(model, names, store) for model, names in _needed(grid).items()}
    return _with_dialects(grid, known, store)


def _with_dialects(
    grid: Sequence[Condition], known: Mapping[Model, dict[str, Capability]], store: Store
) -> dict[Model, dict[str, Capability]]:
    """The known capabilities, with the dialects that endpoints taught."""
    found = {model: dict(some) for model, some in known.items()}
    for rater in dict.fromkeys(one.rater for one in grid):
        if dialect := recall_dialect(rater.model, rater.decoding, store):
            found.setdefault(rater.model, {})[DIALECT] = dialect
    return found


def learned_since(grid: Sequence[Condition], known: Known, store: Store) -> dict[str, list[str]]:
    """The dialects that endpoints taught during the run, by rater."""
    now = _with_dialects(grid, {}, store)
    return {
        model.title: [_told(some[DIALECT])]
        for model, some in now.items()
        if DIALECT not in known.get(model, {})
    }


def _recalled(model: Model, names: Sequence[str], store: Store) -> dict[str, Capability]:
    found = stated(model)
    if found is None:
        found = store.capabilities(identity_of(model), asked_as(model))
    return {name: found[name] for name in names if name in found}


async def learn(
    grid: Sequence[Condition], store: Store, terms: Terms
) -> dict[Model, dict[str, Capability]]:
    """The capabilities of the grid's models; unknown ones are examined and recorded."""
    known: dict[Model, dict[str, Capability]] = {}
    for model, names in _needed(grid).items():
        known[model] = _recalled(model, names, store)
        missing = [name for name in names if name not in known[model]]
        if missing:
            seen = await look(model, store, missing, terms)
            known[model] |= seen.found
    return _with_dialects(grid, known, store)


async def look(
    model: Model,
    store: Store,
    names: Sequence[str],
    terms: Terms,
) -> Examination:
    """Examine the endpoint of a model and record what is found."""
    opened = open_backend(model)
    backend = fleet_of(opened).replicas[0]
    if not isinstance(backend, HttpBackend):
        raise TypeError(f"{model.address} has no endpoint to examine")
    try:
        seen = await examine(model, backend, names, ledger=terms.ledger, budget=terms.budget)
    finally:
        await opened.close()
    lasting = [capability for capability in seen.found.values() if capability.seen]
    store.note_capabilities(backend.identity, asked_as(model), lasting)
    if seen.corrections:
        note_dialect(model, store, seen.corrections)
    return seen


def _needed(grid: Sequence[Condition]) -> dict[Model, list[str]]:
    wanted: dict[Model, dict[str, None]] = {}
    for rater in dict.fromkeys(c.rater for c in grid):
        names = needs(rater.model, rater.decoding, scored=rater.is_scored)
        if names:
            wanted.setdefault(rater.model, {}).update(dict.fromkeys(names))
    return {model: list(names) for model, names in wanted.items()}


def adapted(
    grid: Sequence[Condition], known: Known
) -> tuple[list[Condition], dict[str, list[str]]]:
    """The grid without the features that its models lack, and the changes by rater.

    What cannot be left out is a problem. What is not known is asked as the study says.
    """
    told: dict[str, list[str]] = {}
    fitted: dict[Rater, Rater] = {}
    for rater in dict.fromkeys(condition.rater for condition in grid):
        fitted[rater], sentences = _fit(rater, known.get(rater.model, {}))
        said = told.setdefault(rater.name, []) if sentences else []
        said.extend(sentence for sentence in sentences if sentence not in said)
    return [replace(condition, rater=fitted[condition.rater]) for condition in grid], told


def _fit(rater: Rater, found: Mapping[str, Capability]) -> tuple[Rater, list[str]]:
    """The rater with its fallbacks, and a sentence for each feature left out or unverified."""
    sentences = [*unsent(rater.model, rater.decoding)]
    if dialect := found.get(DIALECT):
        rater = replace(rater, model=replace(rater.model, corrections=corrections_of(found)))
        sentences.append(_told(dialect))
    for name in needs(rater.model, rater.decoding, scored=rater.is_scored):
        known = found.get(name)
        if known is None or known.is_there:
            continue
        if known.is_there is None:
            sentences.append(
                f"{_WORDS[name]} could not be verified and is sent as it is: {known.how}"
            )
        elif name == "seed":
            rater = replace(rater, decoding=replace(rater.decoding, seed=None))
            sentences.append(f"the seed is not sent: {known.how}")
        elif name == "logprobs":
            if open_pipeline(rater.pipeline).traits.needs_scores:
                check_scored(rater.model, found)
            rater = replace(rater, model=without_logprobs(rater.model), is_scored=False)
            sentences.append(f"log-probabilities are not asked for: {known.how}")
        else:
            raise Problem(_refusal(rater.model, known))
    return rater, sentences


def _told(dialect: Capability) -> str:
    taught = told_corrections(corrections_of({DIALECT: dialect}))
    return f"{taught}: the endpoint said so"


_WORDS = {
    "completions": "the completions interface",
    "reasoning": "the control of reasoning",
    "logprobs": "the field for log-probabilities",
    "seed": "the seed",
}


def _refusal(model: Model, known: Capability) -> str:
    if known.name == "completions":
        said = "has no completions interface", "set `interface: chat` in its entry"
    else:
        said = (
            "does not accept its control of reasoning",
            "change or remove `reasoning` (or `reasoning_effort`) in its entry",
        )
    url = model.base_url[0] if isinstance(model.base_url, tuple) else model.base_url
    where = f" --base-url {quote(url)}" if url else ""
    hint = f"; to examine it again: flipmeter try {quote(model.address)}{where} --anew"
    return (
        f"'{model.title}' {said[0]} ({known.how}); {said[1]}{hint if stated(model) is None else ''}"
    )
