"""The one seam to the outside: a request goes in, a reply comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flipmeter.model.label_scores import Step
from flipmeter.types import Problem, Reply, Request


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


@dataclass(frozen=True)
class Spoken(Reply):
    """A reply with its tokens, for requests of their log-probabilities."""

    steps: tuple[Step, ...] = ()


def n_alternatives(body: dict[str, Any]) -> int | None:
    """Take out of a body how many alternatives to each token it wants to see, None for none.

    The chat interface says `logprobs: true, top_logprobs: 5`, the completions interface
    `logprobs: 5`.
    """
    asked, top = body.pop("logprobs", None), body.pop("top_logprobs", None)
    if asked is None or asked is False:
        return None
    n = top or 0 if asked is True else asked
    if not isinstance(n, int) or n < 0:
        raise Problem(f"{n!r} alternatives to a token were requested; use 0 or more")
    return n
