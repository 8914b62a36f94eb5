"""One API as it is spoken: where a request goes, its body, and the reply in an answer.

Every body is settings and a prompt, every answer has a reply and perhaps tokens: a vendor's module
says how its API has these, and nothing else.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import Trouble, as_list, first_of, trouble_in
from flipmeter.model.label_scores import Step, scores_along
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
    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        """The fields of a body that hold its messages.

        A head that `caching` keeps ends a block of its own, whoever else is asked; only the mark on
        it depends on whether the head `is_shared` by other requests.
        """

    @abstractmethod
    def flaw(self, answer: Mapping[str, Any]) -> str:
        """The reason why a response holds no reply, "" if it does: a stored reply is permanent."""

    @abstractmethod
    def read(self, answer: Mapping[str, Any]) -> Reply:
        """The reply in an answer, without its scores."""

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        """The tokens of a reply with their log-probabilities, as OpenAI's chat interface has them.

        An answer may hold anything in their place.
        """
        return []

    def settings(self, model: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of a body besides its messages, for a model as its endpoint calls it."""
        return {"model": model, **fields}

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a body under the names that this API has for them."""
        return dict(body)

    def auth(self, key: str) -> dict[str, str]:
        """The headers that show a key."""
        return {"Authorization": f"Bearer {key}"}

    def headers(self, params: str) -> dict[str, str]:
        """Further headers of a request."""
        return {}

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        """The body of a request."""
        fields = json.loads(request.params)
        fields.pop("interface", None)
        told = self.settings(model, fields) | self.prompt(request, caching, is_shared)
        return json.dumps(told).encode()

    def trouble(self, status: int, answer: Mapping[str, Any], content: bytes) -> Trouble | None:
        """The error of a response, None if it is valid."""
        return trouble_in(status, answer, content, self.flaw)

    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        """The reply in an answer, with the scores of `answers` where it shows them."""
        scores = scores_along(_steps(self.tokens(answer)), answers) if answers else None
        return replace(self.read(answer), seconds=seconds, scores=scores)

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        """Number of alternatives to the first token, None without log-probabilities."""
        first = first_of(self.tokens(answer))
        return None if first.get("logprob") is None else len(as_list(first.get("top_logprobs")))


def turns_of(
    request: Request, mark: Mapping[str, Any] | None, kind: str = "text", unmarked: str = ""
) -> list[dict[str, Any]]:
    """The messages of a prompt; unless the mark is None, the head ends a part of its own.

    That part has the mark, or the message before it if the head ends there, but none of the role
    `unmarked`.
    """
    start, rest = request.script.head.start, request.script.rest
    turns: list[dict[str, Any]] = [
        {"role": one.role, "content": one.content} for one in request.script.messages
    ]
    if mark is None:
        return turns
    if start.strip() and rest.strip():  # a part may not be empty, nor all white space
        turns[-1]["content"] = [
            {"type": kind, "text": start, **mark},
            {"type": kind, "text": rest},
        ]
    elif mark and not start.strip():
        for turn in [turn for turn in turns[:-1] if turn["role"] != unmarked][-1:]:
            turn["content"] = [{"type": kind, "text": turn["content"], **mark}]
    return turns


def _steps(rows: Sequence[Any]) -> list[Step]:
    """Tokens with what is shown beside them, up to one without a share."""
    steps: list[Step] = []
    for row in rows:
        alternatives = row.get("top_logprobs") if isinstance(row, dict) else None
        shares = dict(filter(None, map(_share, [*as_list(alternatives), row])))
        if _share(row) is None:
            break
        steps.append(Step(row["token"], shares))
    return steps


def _share(row: object) -> tuple[str, float] | None:
    """A token with its log-probability, None if this is none."""
    if not isinstance(row, dict) or not isinstance(row.get("token"), str):
        return None
    share = row.get("logprob")
    if isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return (row["token"], min(float(share), 0.0)) if -1e300 < share < 1e300 else None
