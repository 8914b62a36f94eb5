"""Model names -> what answers, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from flipmeter.model import endpoints, in_process, via_ray  # noqa: F401 - register
from flipmeter.model.backends.backend import Backend
from flipmeter.model.backends.family import World, backends, family_of, refuse_secrets
from flipmeter.model.backends.weights import Fetched
from flipmeter.model.wires.corrections import corrected
from flipmeter.model.wires.dialect import LOGPROBS
from flipmeter.types import Caching, Decoding, Interface, Model, Prompt, Request, canonical_json


def interface_of(model: Model) -> Interface:
    """The interface of a model: from the study, else its default."""
    return model.interface or family_of(model).interface_of(model)


def identity_of(model: Model, world: World | None = None) -> str:
    """The identity of a model: the part of a request key that changes with it."""
    return family_of(model).identity_of(model, world)


def former_identity_of(model: Model) -> str | None:
    """The former identity of a model with other settings, None if nothing has changed."""
    return family_of(model).former_identity_of(model)


def can_be_reproducible(model: Model, decoding: Decoding) -> bool:
    """Whether equal requests may get equal replies; an engine is tested for it (`is_tested`)."""
    return family_of(model).can_be_reproducible(model, decoding)


def is_tested(model: Model) -> bool:
    """Whether a self-test must show that replies are reproducible: weights in this process."""
    return family_of(model).is_self_tested and can_be_reproducible(model, Decoding())


def is_in_process(model: Model) -> bool:
    """Whether a model answers in this process, free of charge."""
    return family_of(model).is_in_process


def is_on_cluster(model: Model) -> bool:
    """Whether a Ray cluster holds a model already, by a name."""
    return family_of(model).is_on_cluster


def is_callable(model: Model) -> bool:
    """Whether a model is a Python callable: it is given a question instead of a prompt."""
    return family_of(model).is_user_code


def is_simulated(model: Model) -> bool:
    """Whether a model is a simulated rater, which must know the dataset."""
    return family_of(model).is_simulated


def without_world(identity: str) -> str:
    """An identity without the table that a simulated rater has for each dataset."""
    kind = identity.partition("/")[0]
    is_table = kind in backends and backends[kind].is_simulated
    return identity.partition("@")[0] if is_table else identity


def caching_of(model: Model) -> Caching | None:
    """The vendor's prefix cache of a model, None if unknown."""
    return family_of(model).caching_of(model)


def concurrency_of(model: Model) -> int:
    """Largest number of requests that one backend of a model takes at a time."""
    family = family_of(model)
    return family.concurrency_of(model) if model.concurrency is None else model.concurrency


def open_backend(
    model: Model, world: World | None = None, *, progress: Fetched | None = None
) -> Backend:
    """Open what answers for a model; weights are fetched here, nothing is asked yet."""
    refuse_secrets({**model.extra, "options": model.options})
    return family_of(model).open(model, world, progress)


def request_for(
    model: Model,
    identity: str,
    prompt: Prompt,
    decoding: Decoding,
    repeat: int,
    *,
    scored: bool = False,
) -> Request:
    """The request for a prompt: everything that can change the reply, and nothing else."""
    return requests_for(model, identity, decoding, scored=scored)(prompt, repeat)


def requests_for(
    model: Model, identity: str, decoding: Decoding, *, scored: bool = False
) -> Callable[[Prompt, int], Request]:
    """The factory of a model's requests, each for a prompt and a repeat.

    An endpoint is asked for the log-probabilities of the labels only where they are wanted; an
    engine in this process always gives them, so that one reply serves whatever is made of it. The
    answers stand in the order of their texts: equal prompts are one request, whatever slots mean.
    """
    are_scored = scored or is_in_process(model)
    params: dict[int, str] = {}

    def request(prompt: Prompt, repeat: int) -> Request:
        if repeat not in params:
            params[repeat] = params_for(model, decoding, repeat, scored)
        answers = tuple(sorted(prompt.answers)) if are_scored else ()
        return Request(identity, prompt.script, params[repeat], answers, repeat, prompt.question)

    return request


@lru_cache(maxsize=1024)
def params_for(model: Model, decoding: Decoding, repeat: int, scored: bool = False) -> str:
    """The body of a request without model and messages, as canonical JSON.

    Two repeats never share a sampling seed: a fixed seed would make them one reply.
    """
    if is_callable(model):  # it draws its replies as it likes
        return canonical_json(dict(model.extra))
    interface = interface_of(model)
    family = family_of(model)
    body = decoding.body() | {"interface": interface} | family.fields_of(model)
    if model.max_tokens is not None:
        body["max_tokens"] = model.max_tokens
    if decoding.seed is not None and not decoding.is_greedy:
        body["seed"] = decoding.seed + repeat
    if family.is_in_process:
        model = without_logprobs(model)
    elif scored:
        body |= family.logprob_fields_of(model, interface)
    told = {name: value for name, value in (body | dict(model.extra)).items() if value is not None}
    return canonical_json(corrected(family.speak(model, told), model.corrections))


def without_logprobs(model: Model) -> Model:
    """The model without any request for log-probabilities."""
    return replace(model, extra={k: v for k, v in model.extra.items() if k not in LOGPROBS})
