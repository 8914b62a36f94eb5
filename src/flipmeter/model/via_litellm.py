"""The `litellm/` family: every provider that LiteLLM routes to, with the keys that LiteLLM reads.

A study may not choose where a key goes: LiteLLM takes addresses and keys from the user's
environment alone, never from a study or from a `.env` file beside it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from flipmeter.base.redaction import masked, name_secret
from flipmeter.model.backends.backend import Retry
from flipmeter.model.backends.channel import Endpoint
from flipmeter.model.backends.family import World, backends
from flipmeter.model.backends.http import Exchanged
from flipmeter.model.backends.response import Trouble, shortened
from flipmeter.model.endpoints import checked_address
from flipmeter.model.forwarding import ForwardedBackend, Forwarding
from flipmeter.types import Model, Problem

FIELDS = {
    *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed"),
    *("logprobs", "top_logprobs", "logit_bias", "presence_penalty", "frequency_penalty"),
    *("reasoning_effort", "thinking", "response_format", "min_p", "repetition_penalty"),
}
"""Fields of a body that go to LiteLLM; among its others are addresses, keys and call-backs."""
SETTINGS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
"""Without them an import fetches a price list, and reads variables from the nearest `.env`."""
LATE = 10
"""Factor of LiteLLM's timeout over ours: it also counts time while stopped."""
USUAL = "LiteLLM"
"""The default server of a provider without an address in the environment."""
CLOSING = "litellm.llms.custom_httpx.async_client_cleanup"


class LiteLlmBackend(ForwardedBackend):
    """A client of LiteLLM, which raises the errors of its own and of the SDKs below it."""

    async def _send(self, body: dict[str, Any]) -> object:
        url, timeout = self._endpoint.base_url, self._endpoint.timeout
        body |= {"timeout": LATE * timeout, "num_retries": 0, "drop_params": False}
        if url != USUAL:  # not every provider has a variable for it
            body["api_base"] = url
        return await _litellm().acompletion(**body)

    def _failed(self, error: Exception) -> Exchanged:
        status = getattr(error, "status_code", None)
        said = shortened(masked(str(error)))
        if not isinstance(status, int) or type(error).__name__ == "APIConnectionError":
            raise Retry(said)
        names = (getattr(error, "code", None), getattr(error, "type", None))
        kinds = frozenset(str(name) for name in names if name)
        if type(error).__name__ == "ContentPolicyViolationError":
            kinds |= {"content_policy_violation"}
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        trouble = Trouble(status, said, kinds, str(getattr(error, "param", None) or ""))
        return Exchanged({}, trouble, dict(headers))

    async def close(self) -> None:
        if sys.modules.get("litellm") is not None:
            await import_module(CLOSING).close_litellm_async_clients()


class LiteLlm(Forwarding):
    """Providers without a family of their own, asked through the LiteLLM library."""

    about = "any provider of LiteLLM, with its variables: pip install 'flipmeter[litellm]'"
    pattern = "PROVIDER/MODEL"
    client = LiteLlmBackend

    def endpoint_of(self, model: Model) -> Endpoint:
        variable = f"{_provider(model)}_API_KEY"
        name_secret(variable)
        key = os.environ.get(variable)
        return Endpoint(_base_url(model) or USUAL, model.own_name, key, variable, model.timeout)

    def identity_of(self, model: Model, world: World | None = None) -> str:
        url = _base_url(model)
        return f"{model.address} at {url}" if url else model.address

    def speak(self, model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
        _check(model)
        for name in body:
            if name not in FIELDS | {"interface"}:
                known = ", ".join(sorted(FIELDS))
                raise Problem(
                    f"{model.address} does not support the field '{name}'; known: {known}"
                )
        return dict(body)


backends.add("litellm", LiteLlm())


def _litellm() -> Any:
    """The library, loaded when something is asked: it takes seconds."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        found: Any = import_module("litellm")
    except ImportError as error:
        raise Problem(
            f"litellm/… models need LiteLLM ({error}); pip install 'flipmeter[litellm]'"
        ) from error
    found.suppress_debug_info = True
    return found


def _check(model: Model) -> None:
    if model.base_url:
        variable = f"{_provider(model)}_API_BASE"
        raise Problem(
            f"{model.address} takes no base_url; set {variable} in your environment, or use "
            "http/MODEL for a server that speaks OpenAI's API"
        )
    if "://" in model.own_name or "/" not in model.own_name.strip("/"):
        raise Problem(
            f"no model '{model.address}': write a provider and its model after litellm/, as in "
            "litellm/cohere/command-r"
        )


def _provider(model: Model) -> str:
    return re.sub(r"\W", "_", model.own_name.partition("/")[0]).upper()


def _base_url(model: Model) -> str:
    """The address that the environment names for a provider, "" for its usual one."""
    for name in (f"{_provider(model)}_API_BASE", f"{_provider(model)}_BASE_URL"):
        if url := os.environ.get(name):
            return checked_address(url, name).rstrip("/")
    return ""
