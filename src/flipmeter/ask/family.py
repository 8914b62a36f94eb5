"""The one seam to the outside, and the registry of the families that open backends behind it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flipmeter.ask.sim import Worth
from flipmeter.ask.weights import Fetched
from flipmeter.errors import Problem
from flipmeter.redaction import literal_secret, name_secret
from flipmeter.registry import Registry, suggestion
from flipmeter.types import Caching, Decoding, Interface, Model, Reply, Request, Span


class Backend(Protocol):
    """A backend answers requests. `identity` is its name in every request key, never a secret.

    `is_reproducible` claims that equal greedy requests get equal replies, whatever came between.
    """

    @property
    def identity(self) -> str: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def is_reproducible(self) -> bool: ...

    async def ask(self, request: Request) -> Reply:
        """Answer once. Raise Retry for a transient error, Problem for a user-fixable one."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Capability:
    """Whether an endpoint has something (None: it could not be told), how we know, since when."""

    name: str
    is_there: bool | None
    how: str
    seen: str = ""


class LoggedBackend:
    """The backend of a model that another program called."""

    is_reproducible = False
    concurrency = 1
    parameters = frozenset({*vars(Decoding())})

    def __init__(self, identity: str) -> None:
        self.identity = identity

    async def ask(self, request: Request) -> Reply:
        return Reply(error="the log that this run was imported from has no reply to this request")

    async def close(self) -> None: ...


@dataclass(frozen=True)
class World:
    """The knowledge of simulated raters: latent scores of texts, and the names of classes.

    `worth` is how good every answer or option is, where items have some to choose from, `span` the
    range of decimal scores, where the scale is one.
    """

    latents: Mapping[str, float]
    names: tuple[str, ...]
    worth: Worth | None = None
    span: Span | None = None


class Family:
    """A kind of model, named before the slash of an address: `sim` in `sim/honest`.

    A new backend is a subclass with `open`, registered under its name; the rest has defaults.
    """

    about: str = ""
    """One line for `flipmeter list`."""
    pattern: str = "MODEL"
    """The form of the name after the slash, for `flipmeter list`; empty if `models` lists all."""
    is_in_process: bool = True
    """Answers in this process and free of charge. It scores the labels of every request."""
    is_on_cluster: bool = False
    """Is held by a Ray cluster already: the driver asks it by name, without actors of its own."""
    is_user_code: bool = False
    """Is given a question instead of a prompt."""
    is_simulated: bool = False
    """Needs to know the dataset (`World`)."""
    is_self_tested: bool = False
    """Claims to be reproducible and is believed after a self-test only."""
    takes_options: bool = False
    takes_key: bool = False
    capabilities: frozenset[str] | None = frozenset()
    """Those of `CAPABILITIES` that it has; None if each model must be examined."""
    lacks: frozenset[str] = frozenset()
    """Those that no model of an examined family has."""

    def open(self, model: Model, world: World | None, progress: Fetched | None) -> Backend:
        """Open what answers for a model; weights are fetched here, nothing is asked yet."""
        raise NotImplementedError(f"{type(self).__name__}.open")

    def identity_of(self, model: Model, world: World | None = None) -> str:
        """The model's name in every request key: it must change when replies may."""
        return model.address

    def former_identity_of(self, model: Model) -> str | None:
        """The identity under which replies were stored before, if it is another."""
        return None

    def interface_of(self, model: Model) -> Interface:
        return "chat"

    def concurrency_of(self, model: Model) -> int:
        """Default number of requests at a time."""
        return 1

    def can_be_reproducible(self, model: Model, decoding: Decoding) -> bool:
        """Whether equal requests may be expected to get equal replies."""
        return False

    def fields_of(self, model: Model) -> dict[str, Any]:
        """Fields of every request body beside those of `decoding`."""
        return {}

    def speak(self, model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a request body as this family wants them."""
        return dict(body)

    def logprob_fields_of(self, model: Model, interface: Interface) -> dict[str, Any]:
        """Fields that ask for log-probabilities; a backend also sees the labels to score."""
        return {}

    def caching_of(self, model: Model) -> Caching | None:
        """The prefix cache of a model and its prices, None if unknown."""
        return None

    def models(self) -> Mapping[str, str]:
        """Known models of this family with a line about each, for `flipmeter list`."""
        return {}


backends: Registry[Family] = Registry("backend")


def family_of(model: Model) -> Family:
    """The registered family of a model; refuses an address or settings that it cannot take."""
    if model.family == "litellm":
        raise Problem(
            f"no model '{model.address}': LiteLLM is asked through its proxy; use http/"
            f"{model.own_name} with its base_url"
        )
    if model.family not in backends or not model.own_name:
        near = suggestion(model.family, [*backends])
        raise Problem(f"no model '{model.address}': an address is family/name{near}")
    family = backends[model.family]
    if model.key and not family.takes_key:
        raise Problem(f"{model.address} takes no `key`; only models behind an endpoint do")
    if model.options and not family.takes_options:
        takers = [f"{name}/…" for name, one in backends.items() if one.takes_options]
        raise Problem(f"{model.address} takes no `options`; only {' and '.join(takers)} models do")
    return family


def refuse_secrets(fields: Mapping[str, Any]) -> None:
    """Refuse a secret in the settings of a model, without showing it: they are stored."""
    if (found := literal_secret(fields)) is not None:
        raise Problem(
            f"'{found}' contains a key, which would be stored and shared; put it into a variable, "
            f"and write `env:MY_KEY`, with the variable's name"
        )


def variables(names: Iterable[str], model: Model) -> dict[str, str]:
    """The values of the variables that fill the settings of a model."""
    found = {}
    for name in names:
        name_secret(name)
        found[name] = os.environ.get(name, "").strip()
        if not found[name]:
            raise Problem(f"{model.title} needs the secret in {name}; set the variable {name}")
    return found
