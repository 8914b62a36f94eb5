"""Models that other software asks for us: a chat body goes to it, and its response comes back."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from flipmeter.base.listening import listening
from flipmeter.model.backends.backend import Retry
from flipmeter.model.backends.channel import Endpoint
from flipmeter.model.backends.family import Family, World
from flipmeter.model.backends.http import Exchanged, HttpBackend
from flipmeter.model.backends.weights import Fetched
from flipmeter.model.endpoints import ALTERNATIVES
from flipmeter.model.wires.chat_wire import ChatWire
from flipmeter.types import Interface, Model, Problem, Request

CONCURRENCY = 64


class ForwardedBackend(HttpBackend):
    """A client that leaves the sending to others; refusals are sorted as for any endpoint."""

    @abstractmethod
    async def _send(self, body: dict[str, Any]) -> object:
        """Send a body, and wait for the response: a mapping, or an object with `model_dump`."""

    @abstractmethod
    def _failed(self, error: Exception) -> Exchanged:
        """A refusal; an error that may pass is a Retry."""

    async def _exchange(self, request: Request) -> Exchanged:
        asked = json.loads(ChatWire().body(self._endpoint.model, request))
        where, timeout = self._endpoint.base_url, self._endpoint.timeout
        try:
            async with listening(timeout):
                answer = await self._send(asked)
        except TimeoutError:
            raise Retry(f"no answer from {where} within {timeout:g} s") from None
        except Problem:
            raise
        except Exception as error:
            failure = error
        else:
            found = _plain(answer)
            trouble = self._wire(request).trouble(200, found, json.dumps(found).encode())
            return Exchanged(found, trouble, {})
        # Not inside the handler: some errors hold the request's headers, and so the key.
        return self._failed(failure)

    async def listing(self) -> dict[str, Any]:
        return {}


class Forwarding(Family):
    """A family of such models: chat only, with label probabilities where the response has them."""

    is_in_process = False
    capabilities = None
    lacks = frozenset({"completions"})
    client: ClassVar[type[ForwardedBackend]]

    @abstractmethod
    def endpoint_of(self, model: Model) -> Endpoint:
        """Name and time limit of a model, and its key if we know it."""

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> ForwardedBackend:
        return self.client(
            self.endpoint_of(model),
            self.identity_of(model),
            wires={"chat": ChatWire()},
            concurrency=model.concurrency or CONCURRENCY,
            is_adaptive=model.concurrency is None,
        )

    def concurrency_of(self, model: Model) -> int:
        return CONCURRENCY

    def logprob_fields_of(self, model: Model, interface: Interface) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": ALTERNATIVES}


def _plain(answer: object) -> dict[str, Any]:
    """A response as a mapping; anything else holds no reply, which its trouble says."""
    dump = getattr(answer, "model_dump", None)
    found = dump() if dump is not None else answer
    return dict(found) if isinstance(found, Mapping) else {}
