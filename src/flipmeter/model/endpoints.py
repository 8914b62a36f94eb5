"""Model -> Endpoint: where it is asked, and whether its key may go there.

A vendor's key goes to the vendor's own address, or to the one that the user's environment names. A
key that a study names goes to no host but those that the user trusts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from yarl import URL

from flipmeter.base.consent import is_host_trusted
from flipmeter.model.backends.http import Endpoint
from flipmeter.types import Model, Problem

ALTERNATIVES = 20
"""How many tokens an endpoint is asked to show beside each token of a reply."""


@dataclass(frozen=True)
class Provider:
    """A family of endpoints: `{NAME}_BASE_URL` and `{NAME}_API_KEY` come from the environment.

    `concurrency` is the most that the limiter may grow to; a study's own number is kept as it is.
    `alternatives` is how many tokens the completions interface shows beside each token of a reply.
    One that `needs_key` is a vendor, whose key is for nobody else.
    """

    base_url: str | None
    needs_key: bool = False
    concurrency: int = 64
    alternatives: int = ALTERNATIVES


providers: dict[str, Provider] = {
    "openrouter": Provider("https://openrouter.ai/api/v1", needs_key=True, concurrency=256),
    "openai": Provider(
        "https://api.openai.com/v1", needs_key=True, concurrency=256, alternatives=5
    ),
    "vllm": Provider("http://127.0.0.1:8000/v1", concurrency=128),
    "ollama": Provider("http://127.0.0.1:11434/v1", concurrency=2),
    "http": Provider(None),
}


def replicas_of(model: Model) -> list[Model]:
    """A model at each of its addresses."""
    if not isinstance(model.base_url, tuple):
        return [model]
    urls = [url.rstrip("/") for url in model.base_url]
    repeated = [url for url in urls if urls.count(url) > 1]
    if not urls or repeated:
        said = f"{repeated[0]} twice" if repeated else "nothing"
        raise Problem(f"the base_url of {model.address} names {said}; name each replica once")
    return [replace(model, base_url=url) for url in urls]


def base_url_of(model: Model) -> str:
    """Where a model is asked: where the study says, else the environment, else as usual."""
    kind = _family(model)
    named = replicas_of(model)[0].base_url
    if named:
        return checked_address(str(named), "base_url").rstrip("/")
    variable = _address_variable(kind)
    if told := os.environ.get(variable):
        return checked_address(told, variable).rstrip("/")
    usual = providers[kind].base_url
    if not usual:
        raise Problem(f"{model.address} has no address; set base_url in the study or {variable}")
    return usual


def checked_address(url: str, where: str) -> str:
    """Refuse what is no address, and what may hold a key: a user, a query, a fragment."""
    parsed = _parsed(url)
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.raw_host:
        raise Problem(f"{where} is not an address; it must be http(s)://host")
    is_plain = not re.search(r"[\s\\@?#\x00-\x1f\x7f]", url)
    if not is_plain:
        raise Problem(
            f"{where} for {parsed.raw_host} has a user, a query (?) or a fragment (#); an address "
            "holds no key: put that into a variable, and its name under `key:`"
        )
    return url


def _parsed(url: str) -> URL | None:
    try:
        return URL(url)  # as aiohttp reads it
    except (ValueError, UnicodeError):
        return None


def endpoint_of(model: Model) -> Endpoint:
    """Where a model is asked, with its key if one is set and may go there."""
    url, variable = base_url_of(model), model.key or _key_variable(_family(model))
    key = os.environ.get(variable) or None
    may_go = key is None or _may_go(variable, url, model)
    return Endpoint(
        url,
        model.address.partition("/")[2],
        key if may_go else None,
        variable,
        model.timeout,
        is_withheld=not may_go,
    )


def keyed_endpoint(model: Model) -> Endpoint:
    """Where a model is asked; one that needs a key and has none is a problem."""
    endpoint = endpoint_of(model)
    if endpoint.key is None and (model.key or providers[_family(model)].needs_key):
        if not model.key and not _is_own(_family(model), endpoint.base_url):
            raise _stranger(endpoint.key_variable, endpoint.base_url)
        raise Problem(f"{model.address} needs a key; set the variable {endpoint.key_variable}")
    return endpoint


def _may_go(variable: str, url: str, model: Model) -> bool:
    """Whether a key may go to an address; False to ask without it, a vendor's is a problem."""
    owner = next((kind for kind in providers if variable == _key_variable(kind)), None)
    if owner is not None and _is_own(owner, url):
        return True
    if owner is not None and providers[owner].needs_key:
        raise _stranger(variable, url)
    name = URL(url).raw_host or ""
    if is_host_trusted(name, URL(url).port):
        return True
    if model.key:
        raise Problem(
            f"{model.title} would send the key in {variable} to {name}; if you trust that host: "
            f"--trust-host {name}, trust_hosts=['{name}'] in Python, or once for all: "
            f"flipmeter trust --host {name}"
        )
    return False


def _stranger(variable: str, url: str) -> Problem:
    kind, host = variable.removesuffix("_API_KEY").lower(), URL(url).raw_host
    own = URL(providers[kind].base_url or "").origin()
    return Problem(
        f"the key in {variable} is for {own} and is not sent to {URL(url).origin()}; if that is "
        f"where you want it, set {_address_variable(kind)}={url}; else give the model a key of its "
        f"own: `key: MY_KEY` in its entry, the key in the variable MY_KEY, and --trust-host {host}"
    )


def _is_own(kind: str, url: str) -> bool:
    """Whether an address is a family's own: the usual one, or that of the user's environment."""
    own = (providers[kind].base_url, os.environ.get(_address_variable(kind)))
    return _origin(url) in {_origin(one) for one in own if one and _parsed(one) is not None}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parsed = URL(url)
    return parsed.scheme, parsed.raw_host, parsed.port


def _family(model: Model) -> str:
    return model.address.partition("/")[0]


def _key_variable(kind: str) -> str:
    return f"{kind.upper()}_API_KEY"


def _address_variable(kind: str) -> str:
    return f"{kind.upper()}_BASE_URL"
