"""Condition -> Condition: ask a model only what it has, as often as its engine calls for.

Two views are declared to agree where the sets of what they show are equal. That is computed from
the orders themselves and never taken from a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from flipmeter.ask.capabilities import (
    Examination,
    asked_as,
    check_scored,
    examine,
    learn_reproducible,
    needs,
    note_dialect,
    recall_dialect,
    recall_reproducible,
    stated,
    unsent,
)
from flipmeter.ask.dialect import DIALECT, corrections_of, told_corrections
from flipmeter.ask.family import Capability
from flipmeter.ask.http import HttpBackend
from flipmeter.ask.names import identity_of, is_tested, open_backend, without_logprobs
from flipmeter.ask.replicas import fleet_of
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.probes import base_view, order_demos, place_order, probes
from flipmeter.run.progress import Listener, Terms
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions, is_settled
from flipmeter.types import Condition, Dataset, Item, Model, Rater, View, canonical_json

AXES = ("label_order", "demo_order", "placement", "place_order")
"""The axes of a view that a probe moves."""


_REMOVED = {"polarity": "both", "answer_order": "both", "grouping": 0}
"""Fields that views once had: stored digests are of these too."""


def declares(condition: Condition, probe: str, item: Item) -> bool:
    """Whether a pipeline declares that all views of a probe agree on an item."""
    views = probes[probe].views(len(condition.task.scale))
    found = {orbits_of(replace(condition, view=view))(item) for view in views}
    return len(found) == 1 and "" not in found


def why_fixed(condition: Condition) -> str:
    """The reason why what the view of a condition moves cannot matter, as its pipeline declares."""
    view, traits = condition.view, open_pipeline(condition.rater.pipeline).traits
    base = base_view(len(view.label_order))
    moved = [axis for axis in AXES if getattr(view, axis) != getattr(base, axis)]
    reasons = [traits.why(axis) for axis in moved]
    return ", ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def orbits_of(condition: Condition) -> Callable[[Item], str]:
    """A function that finds an item's orbit: items that fill as many places are shown alike.

    It digests everything shown of such an item; "" if nothing is declared.
    """
    traits, places = open_pipeline(condition.rater.pipeline).traits, condition.task.places
    turns, known = traits.turns, dict[int, str]()
    if turns is None:
        return lambda item: ""

    def find(item: Item) -> str:
        size = 0 if places is None else places.n_filled(item)
        if size not in known:
            views = turns(condition.view, len(condition.demos), size)
            shown = {_prompt_content_key(view, condition, item) for view in views}
            known[size] = hashlib.sha256(" ".join(sorted(shown)).encode()).hexdigest()[:16]
        return known[size]

    return find


def _prompt_content_key(view: View, condition: Condition, item: Item) -> str:
    """The content of a prompt under a view, in order."""
    places = condition.task.places
    demos = order_demos(condition.demos, view.demo_order, condition.seed, view.demo_turn)
    moved = place_order(item, places, view.place_order, view.place_turn) if places else ()
    found = {
        **vars(view),
        **_REMOVED,
        "demo_order": [demo.id for demo in demos],
        "place_order": moved,
    }
    resolved = {"name", "repeat", "demo_turn", "place_turn"}  # by the two above, or no position
    return canonical_json({k: v for k, v in found.items() if k not in resolved})


Known = Mapping[Model, Mapping[str, Capability]]
"""The known capabilities of every model of a grid, by name, as far as the grid needs them."""


def recall(grid: Sequence[Condition], store: Store) -> dict[Model, dict[str, Capability]]:
    """The recorded capabilities; nothing is sent."""
    known = {
        model: _recall_capabilities(model, names, store)
        for model, names in _needed_capabilities(grid).items()
    }
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
        model.title: [_describe_dialect(some[DIALECT])]
        for model, some in now.items()
        if DIALECT not in known.get(model, {})
    }


def _recall_capabilities(model: Model, names: Sequence[str], store: Store) -> dict[str, Capability]:
    found = stated(model)
    if found is None:
        found = store.capabilities(identity_of(model), asked_as(model))
    return {name: found[name] for name in names if name in found}


async def learn(
    grid: Sequence[Condition], store: Store, terms: Terms
) -> dict[Model, dict[str, Capability]]:
    """The capabilities of the grid's models; unknown ones are examined and recorded."""
    known: dict[Model, dict[str, Capability]] = {}
    for model, names in _needed_capabilities(grid).items():
        known[model] = _recall_capabilities(model, names, store)
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


def _needed_capabilities(grid: Sequence[Condition]) -> dict[Model, list[str]]:
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
        fitted[rater], sentences = _fit_rater(rater, known.get(rater.model, {}))
        said = told.setdefault(rater.name, []) if sentences else []
        said.extend(sentence for sentence in sentences if sentence not in said)
    return [replace(condition, rater=fitted[condition.rater]) for condition in grid], told


def _fit_rater(rater: Rater, found: Mapping[str, Capability]) -> tuple[Rater, list[str]]:
    """The rater with its fallbacks, and a sentence for each feature left out or unverified."""
    sentences = [*unsent(rater.model, rater.decoding)]
    if dialect := found.get(DIALECT):
        rater = replace(rater, model=replace(rater.model, corrections=corrections_of(found)))
        sentences.append(_describe_dialect(dialect))
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
            raise Problem(_refusal_message(rater.model, known))
    return rater, sentences


def _describe_dialect(dialect: Capability) -> str:
    taught = told_corrections(corrections_of({DIALECT: dialect}))
    return f"{taught}: the endpoint said so"


_WORDS = {
    "completions": "the completions interface",
    "reasoning": "the control of reasoning",
    "logprobs": "the field for log-probabilities",
    "seed": "the seed",
}


def _refusal_message(model: Model, known: Capability) -> str:
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


Tested = Mapping[Model, Capability]
"""The known reproducibility of the engines in this process."""


@dataclass(frozen=True)
class LaidOut:
    """A grid, and what is known of the engines that answer it."""

    grid: Sequence[Condition]
    tested: Tested

    @property
    def reproducible(self) -> list[str]:
        """The names of the raters whose replies are shown, or stated, to be reproducible."""
        shown = _shown_reproducible(self.tested)
        return sorted({one.rater.name for one in self.grid if is_settled(one.rater, shown)})

    @property
    def warnings(self) -> dict[str, list[str]]:
        """By rater, that its engine failed the self-test."""
        return {
            one.rater.name: [f"replies are not reproducible ({self.tested[one.rater.model].how})"]
            for one in self.grid
            if one.rater.model in self.tested and not self.tested[one.rater.model].is_there
        }


def lay_out(
    study: Study, datasets: Sequence[Dataset], tested: Tested, given: Sequence[Condition] = ()
) -> LaidOut:
    """The grid of a study, or one that is given, beside what is known of its engines."""
    return LaidOut(given or conditions(study, datasets, _shown_reproducible(tested)), tested)


def recall_settled(raters: Sequence[Rater], store: Store) -> dict[Model, Capability]:
    """The known reproducibility of some raters' engines; no weights are loaded."""
    return {model: recall_reproducible(model, store) for model in _testable_models(raters)}


async def learn_settled(
    raters: Sequence[Rater], store: Store, listener: Listener
) -> dict[Model, Capability]:
    """The reproducibility of some raters' engines; those not tested yet are tested now."""
    return {
        model: await learn_reproducible(
            model, store, progress=listener.on_fetch, on_test=listener.on_test
        )
        for model in _testable_models(raters)
    }


def _testable_models(raters: Sequence[Rater]) -> Iterator[Model]:
    """The models that may be reproducible as they are asked, each once."""
    asked = (r.model for r in raters if r.decoding.is_greedy and not r.n_draws)
    return filter(is_tested, dict.fromkeys(asked))


def _shown_reproducible(tested: Tested) -> set[Model]:
    return {model for model, found in tested.items() if found.is_there}
