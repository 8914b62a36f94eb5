"""Model names -> what answers, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from flipmeter.model.backends.backend import Backend
from flipmeter.model.backends.hf.hf import HfBackend, hf_spec
from flipmeter.model.backends.hf.presets import hf_models as hf_models
from flipmeter.model.backends.http import HttpBackend
from flipmeter.model.backends.llama import LlamaBackend, engine, file_digest
from flipmeter.model.backends.logged import LoggedBackend
from flipmeter.model.backends.python import PythonBackend, is_said_reproducible, python_identity
from flipmeter.model.backends.sim.judge_reader import Worth
from flipmeter.model.backends.sim.sim import SimRater, sim_spec
from flipmeter.model.backends.weights import Fetched
from flipmeter.model.backends.weights import local_models as local_models
from flipmeter.model.endpoints import (
    ALTERNATIVES,
    base_url_of,
    keyed_endpoint,
    providers,
    replicas_of,
)
from flipmeter.model.engine.replicas import Fleet
from flipmeter.registry import suggestion
from flipmeter.types import (
    Decoding,
    Interface,
    Model,
    Problem,
    Prompt,
    Request,
    canonical_json,
)

LOGPROBS = ("logprobs", "top_logprobs")
FAMILIES = ("local", "llamacpp", "hf", "sim", "python", "inspect", *providers)


@dataclass(frozen=True)
class World:
    """What simulated raters know: the latent score of every text, and the words of the scale.

    `worth` is how good every answer or option is, where items have some to choose from.
    """

    latents: Mapping[str, float]
    names: tuple[str, ...]
    poles: tuple[str, str] = ("negative", "positive")
    worth: Worth | None = None


def family(model: Model) -> str:
    """Return the part of an address before the first slash."""
    head, slash, rest = model.address.partition("/")
    if head not in FAMILIES or not (slash and rest):
        raise Problem(
            f"no model '{model.address}': an address is family/name{suggestion(head, [*FAMILIES])}"
        )
    if model.key and head not in providers:
        raise Problem(f"{model.address} takes no `key`; only models behind an endpoint do")
    if model.options and head not in ("hf", "python"):
        raise Problem(f"{model.address} takes no `options`; only hf/… and python/… models do")
    return head


def interface_of(model: Model) -> Interface:
    """Return how a model is asked: what the study says, else what suits the model."""
    if model.interface:
        return model.interface
    kind = family(model)
    if kind == "local":
        return local_models[_rest(model)].interface
    if kind == "hf":
        return hf_spec(model).interface
    return "completions" if kind == "llamacpp" else "chat"


def identity_of(model: Model, world: World | None = None) -> str:
    """Return what answers: the part of a request key that must change when the model does."""
    kind, name = family(model), _rest(model)
    if kind == "local":
        return f"{model.address}@sha256:{local_models[name].sha256[:16]} {engine()}"
    if kind == "llamacpp":
        path = Path(name)
        return f"llamacpp/{path.name}@sha256:{file_digest(path)[:16]} {engine(path)}"
    if kind == "hf":
        return hf_spec(model).identity
    if kind == "sim":
        return _sim(model, world).identity
    if kind == "python":
        return python_identity(model)
    if kind == "inspect":
        return model.address
    if isinstance(model.base_url, tuple):
        return f"{model.address} at replicas"
    url = base_url_of(model)
    return model.address if url == providers[kind].base_url else f"{model.address} at {url}"


def former_identity_of(model: Model) -> str | None:
    """What a model was called while it was computed otherwise, None where nothing has changed."""
    kind, name = family(model), _rest(model)
    if kind != "llamacpp":
        return None
    now = identity_of(model)
    before = now.replace(engine(Path(name)), engine())
    return before if before != now else None


def can_be_reproducible(model: Model, decoding: Decoding) -> bool:
    """Whether equal requests may get equal replies; an engine is held to it (`is_tested`)."""
    kind = family(model)
    if kind == "sim":
        return sim_spec(model.address).noise == 0
    if kind == "python":
        return is_said_reproducible(model)
    if kind == "hf":
        return decoding.is_greedy and hf_spec(model).is_reproducible
    return decoding.is_greedy and kind in ("local", "llamacpp")


def is_tested(model: Model) -> bool:
    """Whether a self-test must show that replies are reproducible: weights in this process."""
    return family(model) in ("local", "llamacpp", "hf") and can_be_reproducible(model, Decoding())


def is_in_process(model: Model) -> bool:
    """Say whether a model answers in this process: nobody charges for it."""
    return family(model) not in providers


def is_callable(model: Model) -> bool:
    """Say whether a model is a Python callable: it is given a question instead of a prompt."""
    return family(model) == "python"


def concurrency_of(model: Model) -> int:
    """Return how many requests one backend of a model takes at a time, at most."""
    kind = family(model)
    if model.concurrency is not None:
        return model.concurrency
    if kind in providers:
        return providers[kind].concurrency
    if kind == "hf":
        return hf_spec(model).options.batch_size
    if kind == "sim":
        return SimRater.concurrency
    return LlamaBackend.concurrency if kind in ("local", "llamacpp") else 1


def open_backend(
    model: Model, world: World | None = None, *, progress: Fetched | None = None
) -> Backend:
    """Return what answers for a model; weights are fetched here, nothing is asked yet."""
    kind, name = family(model), _rest(model)
    identity = identity_of(model, world)
    if kind == "local":
        return LlamaBackend(local_models[name].fetch(progress), identity)
    if kind == "llamacpp":
        return LlamaBackend(Path(name), identity)
    if kind == "hf":
        return HfBackend(hf_spec(model))
    if kind == "sim":
        return _sim(model, world)
    if kind == "python":
        return PythonBackend(model)
    if kind == "inspect":
        return LoggedBackend(identity)
    is_fleet = isinstance(model.base_url, tuple)
    clients = [
        HttpBackend(
            keyed_endpoint(one),
            identity,
            concurrency=concurrency_of(model),
            is_adaptive=model.concurrency is None,
            is_replica=is_fleet,
        )
        for one in replicas_of(model)
    ]
    return Fleet(clients) if is_fleet else clients[0]


def request_for(
    model: Model,
    identity: str,
    prompt: Prompt,
    decoding: Decoding,
    repeat: int,
    *,
    scored: bool = False,
) -> Request:
    """Return the request for a prompt: everything that can change the reply, and nothing else.

    An endpoint is asked for the log-probabilities of the labels only where they are wanted; an
    engine in this process always gives them, so that one reply serves whatever is made of it. The
    answers stand in the order of their texts: equal prompts are one request, whatever slots mean.
    """
    return Request(
        model=identity,
        script=prompt.script,
        params=params_for(model, decoding, repeat, scored),
        answers=tuple(sorted(prompt.answers)) if scored or is_in_process(model) else (),
        repeat=repeat,
    )


@lru_cache(maxsize=1024)
def params_for(model: Model, decoding: Decoding, repeat: int, scored: bool = False) -> str:
    """Return the body of a request but for model and messages, as canonical JSON.

    Two repeats never share a sampling seed: a fixed seed would make them one reply.
    """
    if is_callable(model):  # it draws its replies as it likes
        return canonical_json(dict(model.extra))
    interface = interface_of(model)
    body = decoding.body() | {"interface": interface}
    if family(model) == "hf":
        body |= hf_spec(model).fields
    if model.max_tokens is not None:
        body["max_tokens"] = model.max_tokens
    if decoding.seed is not None and not decoding.is_greedy:
        body["seed"] = decoding.seed + repeat
    if is_in_process(model):
        model = without_logprobs(model)
    elif scored:
        body |= asked_logprobs(model)
    return canonical_json(body | dict(model.extra))


def asked_logprobs(model: Model) -> dict[str, Any]:
    """Return the fields that ask an endpoint for log-probabilities."""
    if interface_of(model) == "chat":
        return {"logprobs": True, "top_logprobs": ALTERNATIVES}
    return {"logprobs": providers[family(model)].alternatives}


def without_logprobs(model: Model) -> Model:
    """Return a model that is not asked for log-probabilities."""
    return replace(model, extra={k: v for k, v in model.extra.items() if k not in LOGPROBS})


def _rest(model: Model) -> str:
    return model.address.partition("/")[2]


def _sim(model: Model, world: World | None) -> SimRater:
    spec = sim_spec(model.address)
    if world is None:
        raise Problem(f"{model.address} needs a dataset whose classes are known")
    return SimRater(spec, world.latents, world.names, world.poles, world.worth)
