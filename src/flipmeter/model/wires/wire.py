"""One API as it is spoken: where a request goes, its body, and the reply in an answer."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import Trouble, trouble_in
from flipmeter.types import Caching, Reply, Request


@lru_cache(maxsize=1024)
def interface_in(params: str) -> str:
    """The interface that a request is for."""
    return str(json.loads(params).get("interface", "chat"))


class Wire(ABC):
    """The differences between the APIs of vendors, without state or keys."""

    vendor: str = "OpenAI"

    @abstractmethod
    def path(self, model: str) -> str:
        """The path of a request after the base URL."""

    @abstractmethod
    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        """The body of a request, for a model as its endpoint calls it.

        A head that `caching` keeps ends a block of its own, whoever else is asked; only the mark on
        it depends on whether the head `is_shared` by other requests.
        """

    @abstractmethod
    def flaw(self, answer: Mapping[str, Any]) -> str:
        """The reason why a response holds no reply, "" if it does: a stored reply is permanent."""

    @abstractmethod
    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        """The reply in an answer, with the scores of `answers` where it shows them."""

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a body under the names that this API has for them."""
        return dict(body)

    def auth(self, key: str) -> dict[str, str]:
        """The headers that show a key."""
        return {"Authorization": f"Bearer {key}"}

    def headers(self, params: str) -> dict[str, str]:
        """Further headers of a request."""
        return {}

    def trouble(self, status: int, answer: Mapping[str, Any], content: bytes) -> Trouble | None:
        """The error of a response, None if it is valid."""
        return trouble_in(status, answer, content, self.flaw)

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        """Number of alternatives to the first token, None without log-probabilities."""
        return None
