"""Model -> Endpoint: where it is asked, and whether its key may go there.

A vendor's key goes to the vendor's own address, or to the one that the user's environment names. A
key that a study names goes to no host but those that the user trusts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from yarl import URL

from flipmeter.ask.dialect import ANTHROPIC, GEMINI, GROQ, MISTRAL, OPENAI, Table, dialect_of
from flipmeter.ask.family import Backend, Family, World, backends, family_of, variables
from flipmeter.ask.http import OPENAI_WIRES, Endpoint, HttpBackend, Wires
from flipmeter.ask.plan import (
    ANTHROPIC_CACHES,
    GEMINI_CACHES,
    OPENAI_CACHES,
    CacheTable,
    caching_in,
)
from flipmeter.ask.replicas import Fleet
from flipmeter.ask.vendor_wires import AnthropicWire, GeminiWire
from flipmeter.ask.weights import Fetched
from flipmeter.ask.wires import AZURE_WIRES, CHAT_WIRES, TOGETHER_WIRES
from flipmeter.consent import is_host_trusted
from flipmeter.errors import Problem
from flipmeter.redaction import (
    PLACEHOLDER,
    is_secret_name,
    looks_like_key,
    masked,
    name_secret,
    references,
)
from flipmeter.types import Caching, Interface, Model

ALTERNATIVES = 20
"""Number of alternatives requested for each token of a reply."""


@dataclass(frozen=True)
class Provider(Family):
    """A family of endpoints, with the environment variables that name its address and its key.

    `concurrency` is the most that the limiter may grow to; a study's own number is kept as it is.
    `alternatives` is how many tokens the completions interface shows beside each token of a reply.
    One that `needs_key` is a vendor, whose key is sent to no one else. `wires` are its interfaces,
    `table` lists the fields that a model takes, by its name, and `caches` its prefix caching.
    """

    base_url: str | None
    url_variable: str
    key_variable: str
    needs_key: bool = False
    concurrency: int = 64
    alternatives: int = ALTERNATIVES
    wires: Wires = field(default_factory=lambda: OPENAI_WIRES)
    table: Table = ()
    caches: CacheTable = ()
    lacks: frozenset[str] = frozenset()
    about: str = ""

    is_in_process = False
    takes_key = True
    capabilities = None

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        is_fleet = isinstance(model.base_url, tuple)
        clients = [
            HttpBackend(
                keyed_endpoint(one),
                self.identity_of(model),
                wires=self.wires,
                caching=self.caching_of(model),
                concurrency=model.concurrency or self.concurrency,
                is_adaptive=model.concurrency is None,
                is_replica=is_fleet,
            )
            for one in replicas_of(model)
        ]
        return Fleet(clients) if is_fleet else clients[0]

    def identity_of(self, model: Model, world: World | None = None) -> str:
        if isinstance(model.base_url, tuple):
            return f"{model.address} at replicas"
        url = base_url_of(model)
        return model.address if url == self.base_url else f"{model.address} at {url}"

    def concurrency_of(self, model: Model) -> int:
        return self.concurrency

    def caching_of(self, model: Model) -> Caching | None:
        return caching_in(self.caches, model.own_name)

    def speak(self, model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
        wire = self.wires.get(str(body["interface"]))
        if wire is None:
            raise Problem(
                f"{model.address} has no interface '{body['interface']}'; known: "
                f"{', '.join(self.wires)}"
            )
        dialect = dialect_of(self.table, model.own_name)
        room = dialect.room(body) if model.max_tokens is None else 0
        limit = {"max_tokens": body["max_tokens"] + room} if "max_tokens" in body else {}
        return wire.fields(dialect.speak({**body, **limit}))

    def logprob_fields_of(self, model: Model, interface: Interface) -> dict[str, Any]:
        if interface != "completions":
            return {"logprobs": True, "top_logprobs": ALTERNATIVES}
        return {"logprobs": self.alternatives}


def add_provider(name: str, base_url: str | None, **settings: Any) -> None:
    """Register a family of endpoints; `{NAME}_BASE_URL` and `{NAME}_API_KEY` are its variables."""
    stem = re.sub(r"\W", "_", name).upper()
    usual = {
        "url_variable": f"{stem}_BASE_URL",
        "key_variable": f"{stem}_API_KEY",
        "about": f"OpenAI-compatible, {base_url or f'set {stem}_BASE_URL or base_url'}",
    }
    backends.add(name, Provider(base_url, **usual | settings))


add_provider("openrouter", "https://openrouter.ai/api/v1", needs_key=True, concurrency=256)
add_provider(
    "openai",
    "https://api.openai.com/v1",
    needs_key=True,
    concurrency=256,
    alternatives=5,
    table=OPENAI,
    caches=OPENAI_CACHES,
)
add_provider(
    "azure",
    None,
    needs_key=True,
    wires=AZURE_WIRES,
    table=OPENAI,
    caches=OPENAI_CACHES,
    lacks=frozenset({"completions"}),
    about="OpenAI models of Azure, AZURE_BASE_URL=https://NAME.openai.azure.com/openai/v1",
)
add_provider(
    "anthropic",
    "https://api.anthropic.com/v1",
    needs_key=True,
    wires={"chat": AnthropicWire()},
    table=ANTHROPIC,
    caches=ANTHROPIC_CACHES,
    lacks=frozenset({"completions", "logprobs", "seed"}),
    about="Anthropic's Messages API",
)
add_provider(
    "gemini",
    "https://generativelanguage.googleapis.com/v1beta",
    needs_key=True,
    wires={"chat": GeminiWire()},
    table=GEMINI,
    caches=GEMINI_CACHES,
    lacks=frozenset({"completions"}),
    about="Google's Gemini API",
)
add_provider(
    "mistral",
    "https://api.mistral.ai/v1",
    needs_key=True,
    wires=CHAT_WIRES,
    table=MISTRAL,
    lacks=frozenset({"completions"}),
)
add_provider(
    "groq",
    "https://api.groq.com/openai/v1",
    needs_key=True,
    wires=CHAT_WIRES,
    table=GROQ,
    lacks=frozenset({"completions", "logprobs"}),
)
add_provider("together", "https://api.together.xyz/v1", needs_key=True, wires=TOGETHER_WIRES)
add_provider("vllm", "http://127.0.0.1:8000/v1", concurrency=128)
add_provider("ollama", "http://127.0.0.1:11434/v1", concurrency=2)
add_provider("http", None)


def has_endpoint(model: Model) -> bool:
    return isinstance(family_of(model), Provider)


def provider_of(model: Model) -> Provider:
    """The family of endpoints that a model belongs to."""
    family = family_of(model)
    if not isinstance(family, Provider):
        raise Problem(f"{model.address} has no endpoint; its backend is '{model.family}'")
    return family


def replicas_of(model: Model) -> list[Model]:
    """A model at each of its addresses."""
    if not isinstance(model.base_url, tuple):
        return [model]
    urls = [url.rstrip("/") for url in model.base_url]
    repeated = [url for url in urls if urls.count(url) > 1]
    if not urls or repeated:
        said = f"{repeated[0]} twice" if repeated else "nothing"
        raise Problem(f"the base_url of {model.address} lists {said}; list each replica once")
    return [replace(model, base_url=url) for url in urls]


def base_url_of(model: Model) -> str:
    """The address of a model: from the study, else the environment, else the default."""
    provider = provider_of(model)
    named = replicas_of(model)[0].base_url
    if named:
        return checked_address(str(named), "base_url").rstrip("/")
    variable = provider.url_variable
    if told := os.environ.get(variable):
        return checked_address(told, variable).rstrip("/")
    if not provider.base_url:
        raise Problem(f"{model.address} has no address; set base_url in the study or {variable}")
    return provider.base_url


def checked_address(url: str, where: str) -> str:
    """Refuse what is not an address, or may contain a key: a user, a query, a fragment, a path.

    A part of its path may be `{env:NAME}`, which is filled when something is sent.
    """
    parsed = _parse_url(PLACEHOLDER.sub("NAME", url))
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.raw_host:
        raise Problem(f"{where} is not an address; it must be http(s)://host")
    is_plain = not re.search(r"[\s\\@?#\x00-\x1f\x7f]", url)
    if not is_plain:
        raise Problem(
            f"{where} for {parsed.raw_host} has a user, a query (?) or a fragment (#); an "
            f"address must not contain a key: put the key into a variable, and the variable's "
            f"name under `key:`"
        )
    path = re.sub(r"^[a-z]+://[^/]*", "", url, flags=re.IGNORECASE)
    if "{" in PLACEHOLDER.sub("", url) or "{" in url.removesuffix(path):
        raise Problem(f"{where} has a brace; a part of its path may be {{env:NAME}}, as it is here")
    parts = re.split("[/;,&]", PLACEHOLDER.sub("", path))
    is_key = masked(url) != url
    for part in parts:  # a key, or with a name that means one
        name, _, value = unquote(part).rpartition("=")
        is_key |= looks_like_key(value) or (bool(value) and is_secret_name(name))
    if is_key:
        raise Problem(
            f"{where} for {masked(parsed.raw_host)} has what looks like a key in its path; put it "
            f"into a variable, and write {{env:MY_KEY}} in its place, with the variable's name"
        )
    return url


def _parse_url(url: str) -> URL | None:
    try:
        return URL(url)  # as aiohttp reads it
    except (ValueError, UnicodeError):
        return None


def endpoint_of(model: Model) -> Endpoint:
    """The endpoint of a model, with its key if one is set and allowed there."""
    url, variable = base_url_of(model), model.key or provider_of(model).key_variable
    name_secret(variable)
    key = os.environ.get(variable) or None
    may_go = key is None or _may_go(variable, url, model, is_chosen=bool(model.key))
    in_url, in_body = PLACEHOLDER.findall(url), [*references(model.extra)]
    secrets = variables([*in_url, *in_body], model)
    for name in [*(in_url if model.base_url else ()), *in_body]:
        _may_go(name, url, model, is_chosen=True)
    return Endpoint(
        url,
        model.own_name,
        key if may_go else None,
        variable,
        model.timeout,
        is_withheld=not may_go,
        secrets=secrets,
    )


def keyed_endpoint(model: Model) -> Endpoint:
    """The endpoint of a model; a missing key is a Problem."""
    endpoint, provider = endpoint_of(model), provider_of(model)
    if endpoint.key is None and (model.key or provider.needs_key):
        if not model.key and not _is_own(provider, endpoint.base_url):
            raise _foreign_host_problem(provider, endpoint.base_url)
        raise Problem(f"{model.address} needs a key; set the variable {endpoint.key_variable}")
    return endpoint


def providers() -> dict[str, Provider]:
    """The families of endpoints among the registered backends."""
    return {name: one for name, one in backends.items() if isinstance(one, Provider)}


def _may_go(variable: str, url: str, model: Model, *, is_chosen: bool) -> bool:
    """Whether a key may go to an address; False to ask without it.

    A vendor's is a problem at any other, and one that the study chose at one that is not trusted.
    """
    owners = [one for one in providers().values() if one.key_variable == variable]
    if any(_is_own(owner, url) for owner in owners):
        return True
    for vendor in (owner for owner in owners if owner.needs_key):
        raise _foreign_host_problem(vendor, url)
    name = URL(url).raw_host or ""
    if is_host_trusted(name, URL(url).port):
        return True
    if is_chosen:
        raise Problem(
            f"{model.title} would send the key in {variable} to {name}; if you trust that host: "
            f"--trust-host {name}, trust_hosts=['{name}'] in Python, or permanently: "
            f"flipmeter run --trust-host {name} --remember"
        )
    return False


def _foreign_host_problem(vendor: Provider, url: str) -> Problem:
    own = URL(vendor.base_url).origin() if vendor.base_url else f"the host of {vendor.url_variable}"
    host = URL(url).raw_host
    return Problem(
        f"the key in {vendor.key_variable} is for {own} and is not sent to {URL(url).origin()}; "
        f"to send it there, set {vendor.url_variable}={url}; else give the model a "
        f"key of its own: `key: MY_KEY` in its entry, the key in the variable MY_KEY, and "
        f"--trust-host {host}"
    )


def _is_own(provider: Provider, url: str) -> bool:
    """Whether an address is a family's own: the usual one, or that of the user's environment."""
    known = (provider.base_url, os.environ.get(provider.url_variable), url)
    *own, here = (_parse_url(one) if one else None for one in known)
    origins = {(one.scheme, one.raw_host, one.port) for one in own if one is not None}
    return here is not None and (here.scheme, here.raw_host, here.port) in origins
