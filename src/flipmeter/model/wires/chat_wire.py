"""OpenAI's chat completions and completions, which most servers speak."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import (
    TokenPaths,
    as_dict,
    as_list,
    clean_name,
    first_of,
    plain,
)
from flipmeter.model.wires.wire import Wire, turns_of
from flipmeter.types import Caching, Head, Reply, Request

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
        message = _message(choice)
        if message is None:
            return "the choice has no message"
        if choice.get("finish_reason") == "error":
            return "the answer broke off with an error"
        is_text = isinstance(message.get("content"), str | list | None)
        return "" if is_text else "the content is not text"

    def read(self, answer: Mapping[str, Any]) -> Reply:
        choice = first_of(answer["choices"])
        message = _message(choice) or {}
        text, refusal = _text(message.get("content")), _text(message.get("refusal"))
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
        told["prompt_cache_key"] = _digest(head)
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if is_shared else {}
    # A mark may not stand in what a model said.
    return told, turns_of(request, mark if has_marks and is_kept else None, kind, "assistant")


@lru_cache(maxsize=256)
def _digest(head: Head) -> str:
    return hashlib.sha256(head.text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


def _message(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message of a choice; the completions interface has only its text."""
    message = choice.get("message")
    if isinstance(message, dict):
        return message
    return {"content": choice["text"]} if "text" in choice else None


def _text(content: object) -> str:
    """A content that is a string, a list of parts, or nothing."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    return plain(content) if isinstance(content, str) else ""
