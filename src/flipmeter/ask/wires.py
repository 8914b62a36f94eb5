"""One API as it is spoken: OpenAI's completions and responses, and those who speak the like.

Every body is settings and a prompt, every answer has a reply and perhaps tokens: a vendor's module
says how its API has these, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from flipmeter.ask.dialect import LIMITS, effort_in, without_reasoning
from flipmeter.ask.label_scores import Step, scores_along
from flipmeter.ask.response import (
    TokenPaths,
    Trouble,
    as_dict,
    as_list,
    clean_name,
    first_of,
    plain,
    trouble_in,
)
from flipmeter.types import Caching, Head, Reply, Request


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
        scores = scores_along(_steps_with_shares(self.tokens(answer)), answers) if answers else None
        return replace(self.read(answer), seconds=seconds, scores=scores)

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        """Number of alternatives to the first token, None without log-probabilities."""
        first = first_of(self.tokens(answer))
        return None if _token_share(first) is None else len(as_list(first.get("top_logprobs")))


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


def _steps_with_shares(rows: Sequence[Any]) -> list[Step]:
    """Tokens with what is shown beside them, up to one without a share."""
    steps: list[Step] = []
    for row in rows:
        alternatives = row.get("top_logprobs") if isinstance(row, dict) else None
        shares = dict(filter(None, map(_token_share, [*as_list(alternatives), row])))
        if _token_share(row) is None:
            break
        steps.append(Step(row["token"], shares))
    return steps


def _token_share(row: object) -> tuple[str, float] | None:
    """A token with its log-probability, None if this is none."""
    if not isinstance(row, dict) or not isinstance(row.get("token"), str):
        return None
    share = row.get("logprob")
    if isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return (row["token"], min(float(share), 0.0)) if -1e300 < share < 1e300 else None


KEY_LENGTH = 32
"""Characters of the key that all requests behind one head share; OpenAI takes up to 64."""
FEWEST_CHARS_PER_TOKEN = 2
COUNTS = TokenPaths(
    prompt=("prompt_tokens",),
    cached=("prompt_tokens_details", "cached_tokens"),
    completion=("completion_tokens",),
    reasoning=("completion_tokens_details", "reasoning_tokens"),
)


class ChatWire(Wire):
    """The chat completions interface."""

    def path(self, model: str) -> str:
        return "/chat/completions"

    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        told, turns = cached_turns(request, caching, is_shared, "text")
        return {**told, "messages": turns}

    def flaw(self, answer: Mapping[str, Any]) -> str:
        choice = first_of(answer.get("choices"))
        if not choice:
            return "the answer has no choices"
        message = _chat_message_json(choice)
        if message is None:
            return "the choice has no message"
        if choice.get("finish_reason") == "error":
            return "the answer broke off with an error"
        is_text = isinstance(message.get("content"), str | list | None)
        return "" if is_text else "the content is not text"

    def read(self, answer: Mapping[str, Any]) -> Reply:
        choice = first_of(answer["choices"])
        message = _chat_message_json(choice) or {}
        text, refusal = (
            _chat_content_text(message.get("content")),
            _chat_content_text(message.get("refusal")),
        )
        is_refusal = bool(refusal) and not text
        return Reply(
            text=text or refusal,
            finish="refusal" if is_refusal else clean_name(choice.get("finish_reason")),
            usage=COUNTS.read(answer.get("usage")),
            model=clean_name(answer.get("model")),
            provider=clean_name(answer.get("provider")),
            fingerprint=clean_name(answer.get("system_fingerprint")),
        )

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        """Rows of the chat interface; the completions interface has parallel lists instead."""
        found = as_dict(first_of(answer.get("choices")).get("logprobs"))
        if isinstance(rows := found.get("content"), list):
            return rows
        tokens, shares = as_list(found.get("tokens")), as_list(found.get("token_logprobs"))
        top = found.get("top_logprobs")
        # Together's one map is unambiguous for one token only.
        tops = [top] if isinstance(top, dict) and len(tokens) == 1 else as_list(top)
        tops += [None] * (len(tokens) - len(tops))
        return [
            {
                "token": token,
                "logprob": share,
                "top_logprobs": [
                    {"token": other, "logprob": its} for other, its in as_dict(top).items()
                ],
            }
            for token, share, top in zip(tokens, shares, tops, strict=False)
        ]


class CompletionsWire(ChatWire):
    """The completions interface: raw text."""

    def path(self, model: str) -> str:
        return "/completions"

    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        return {"prompt": request.script.text}


def cached_turns(
    request: Request, caching: Caching | None, is_shared: bool, kind: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The fields of a body for OpenAI's prefix cache, and the messages, marked for it.

    Where marks are known, a prompt without any is not written to the cache: it would be written
    whole, at a price of its own. Short ones are not kept, to be sure.
    """
    if caching is None:
        return {}, turns_of(request, None)
    head, told = request.script.head, dict[str, Any]()
    has_marks, is_kept = caching.mark == "breakpoint", caching.keeps(head)
    n_characters = len(head.text) + len(request.script.rest)
    if has_marks and n_characters >= caching.least * FEWEST_CHARS_PER_TOKEN:
        told["prompt_cache_options"] = {"mode": "explicit"}
    if is_kept and is_shared:
        told["prompt_cache_key"] = _chat_head_digest(head)
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if is_shared else {}
    # A mark may not stand in what a model said.
    return told, turns_of(request, mark if has_marks and is_kept else None, kind, "assistant")


@lru_cache(maxsize=256)
def _chat_head_digest(head: Head) -> str:
    return hashlib.sha256(head.text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def _chat_message_json(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message of a choice; the completions interface has only its text."""
    message = choice.get("message")
    if isinstance(message, dict):
        return message
    return {"content": choice["text"]} if "text" in choice else None


def _chat_content_text(content: object) -> str:
    """A content that is a string, a list of parts, or nothing."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    return plain(content) if isinstance(content, str) else ""


LEAST_TOKENS = 16
"""The API refuses a smaller limit."""
SHOWN = ["message.output_text.logprobs"]
FINISHES = {"max_output_tokens": "length", "content_filter": "content_filter"}
RESPONSE_COUNTS = TokenPaths(
    prompt=("input_tokens",),
    cached=("input_tokens_details", "cached_tokens"),
    completion=("output_tokens",),
    reasoning=("output_tokens_details", "reasoning_tokens"),
)


class ResponsesWire(Wire):
    """`interface: responses`."""

    def path(self, model: str) -> str:
        return "/responses"

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = {k: v for k, v in body.items() if k not in (*LIMITS, "logprobs", "stop", "seed")}
        limit = next((body[name] for name in LIMITS if name in body), None)
        if limit is not None:
            told["max_output_tokens"] = max(LEAST_TOKENS, limit)
        if body.get("logprobs"):
            told["include"] = [*body.get("include", ()), *SHOWN]
        if (effort := effort_in(body)) is not None:
            told = {**without_reasoning(told), "reasoning": {"effort": effort}}
        return {"store": False, **told}

    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        told, turns = cached_turns(request, caching, is_shared, "input_text")
        return {**told, "input": turns}

    def flaw(self, answer: Mapping[str, Any]) -> str:
        if not isinstance(answer.get("output"), list):
            return "the answer has no output"
        if answer.get("status") in ("failed", "cancelled", "queued", "in_progress"):
            return f"the response is {answer['status']}"
        is_read = all(map(_is_item, answer["output"]))
        return "" if is_read else "an item of the output cannot be read"

    def read(self, answer: Mapping[str, Any]) -> Reply:
        said, refusal = (
            "".join(
                plain(part[name])
                for part in _message_parts(answer)
                if isinstance(part.get(name), str)
            )
            for name in ("text", "refusal")
        )
        finish = "stop"
        if answer.get("status") == "incomplete":
            reason = as_dict(answer.get("incomplete_details")).get("reason", "")
            finish = FINISHES.get(str(reason), clean_name(reason))
        return Reply(
            text=said or refusal,
            finish="refusal" if refusal and not said else finish,
            usage=RESPONSE_COUNTS.read(answer.get("usage")),
            model=clean_name(answer.get("model")),
        )

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        return [row for part in _message_parts(answer) for row in as_list(part.get("logprobs"))]


def _is_item(item: object) -> bool:
    """Whether this is an item of an output, with its texts if it is a message."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return False
    if item["type"] != "message":
        return True
    parts = item.get("content")
    return isinstance(parts, list) and all(
        isinstance(part, dict) and isinstance(part.get("text", part.get("refusal")), str)
        for part in parts
    )


def _message_parts(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of the messages of an answer; reasoning is none."""
    items = [as_dict(item) for item in as_list(answer.get("output"))]
    messages = [item for item in items if item.get("type") == "message"]
    return [as_dict(part) for item in messages for part in as_list(item.get("content"))]


class TogetherWire(ChatWire):
    """Together: log-probabilities are asked for by their number."""

    vendor = "Together"

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = dict(body)
        n_shown = told.pop("top_logprobs", None)
        if told.get("logprobs") is True:
            told["logprobs"] = n_shown or 1
        return told


class _KeyHeader:
    """Azure: the key has a header of its own."""

    vendor = "Azure"

    def auth(self, key: str) -> dict[str, str]:
        return {"api-key": key}


class AzureChatWire(_KeyHeader, ChatWire):
    """Azure's chat completions, version 1 of its API."""


class AzureResponsesWire(_KeyHeader, ResponsesWire):
    """Azure's Responses API."""


TOGETHER_WIRES: Mapping[str, Wire] = {"chat": TogetherWire(), "completions": CompletionsWire()}
AZURE_WIRES: Mapping[str, Wire] = {"chat": AzureChatWire(), "responses": AzureResponsesWire()}
CHAT_WIRES: Mapping[str, Wire] = {"chat": ChatWire()}
