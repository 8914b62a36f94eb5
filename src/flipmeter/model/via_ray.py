"""The `ray/` family: a Ray Serve deployment or a named actor that holds a user's own engine.

Its method takes the body of OpenAI's chat completions as a mapping and returns the response, as a
mapping or an object with `model_dump`. The run joins the cluster with --on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from flipmeter.base.listening import listening
from flipmeter.errors import Retry
from flipmeter.model.backends.channel import Endpoint
from flipmeter.model.backends.family import Family, World, backends
from flipmeter.model.backends.http import Exchanged, HttpBackend
from flipmeter.model.backends.response import Trouble, shortened
from flipmeter.model.backends.weights import Fetched
from flipmeter.model.endpoints import ALTERNATIVES
from flipmeter.model.wires.chat_wire import ChatWire
from flipmeter.types import Interface, Model, Problem, Request

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
        return _found(where.partition("/")[2], method or METHOD)

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
        _names(model.own_name)
        if strangers := sorted(set(model.options) - {"method"}):
            raise Problem(f"{model.address} takes no option '{strangers[0]}'; known: method")
        method = str(model.options.get("method", METHOD))
        return model.address if method == METHOD else f"{model.address} by {method}"


backends.add("ray", NamedOnRay())


def _names(own_name: str) -> tuple[str, tuple[str, ...]]:
    """Serve or actor, and the one or two names behind it."""
    kind, *names = own_name.split("/")
    if kind not in KINDS or not 1 <= len(names) <= 2 or not all(names):
        raise Problem(f"no model 'ray/{own_name}'; write ray/{NamedOnRay.pattern}")
    return kind, tuple(names)


def _found(own_name: str, method: str) -> Call:
    """The method of a deployment or an actor that the cluster knows by name."""
    kind, names = _names(own_name)
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
