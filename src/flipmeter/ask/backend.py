"""The one seam to the outside: a request goes in, a reply comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flipmeter.types import Decoding, Reply, Request


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
