"""OpenAI's chat completions and completions, which most servers speak."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import flaw_in, logprobs_in, reply_in
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Caching, Head, Reply, Request, canonical_json

BREAK = "\n\n"
KEY_LENGTH = 32
"""Characters of the key that all requests behind one head share; OpenAI takes up to 64."""
FEWEST_CHARS_PER_TOKEN = 2


class ChatWire(Wire):
    """The chat completions interface."""

    def path(self, model: str) -> str:
        return "/chat/completions"

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        told = canonical_json(cache_fields(request, caching, is_shared))
        start, head = _fields(model, request.params, told), request.script.head
        if is_split(head, caching):
            messages = json.dumps(marked_messages(request, caching, is_shared, "text"))
            return f'{start}, "messages": {messages}}}'.encode()
        return f'{start}, {_messages(head)}{_inside(request.script.rest)}"}}]}}'.encode()

    def flaw(self, answer: Mapping[str, Any]) -> str:
        return flaw_in(answer)

    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        return reply_in(answer, seconds, answers)

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        return logprobs_in(answer)


class CompletionsWire(ChatWire):
    """The completions interface: raw text."""

    def path(self, model: str) -> str:
        return "/completions"

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        fields, head = _fields(model, request.params), _prompt(request.script.head)
        return f'{fields}, {head}{_inside(request.script.rest)}"}}'.encode()


def cache_fields(request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
    """The fields of a body for OpenAI's prefix cache, besides the marks in its messages.

    Where marks are known, a prompt without any is not written to the cache: it would be written
    whole, at a price of its own.
    """
    if caching is None:
        return {}
    is_kept = is_shared and caching.keeps(request.script.head)
    key = {"prompt_cache_key": _digest(request.script.head)} if is_kept else {}
    if caching.mark != "breakpoint" or not _may_be_kept(request, caching):
        return key
    return {"prompt_cache_options": {"mode": "explicit"}, **key}


def _may_be_kept(request: Request, caching: Caching) -> bool:
    """Whether a prompt can have so many tokens that it is kept: short ones, to be sure."""
    n_characters = len(request.script.head.text) + len(request.script.rest)
    return n_characters >= caching.least * FEWEST_CHARS_PER_TOKEN


def is_split(head: Head, caching: Caching | None) -> bool:
    """Whether the head ends a part of its own, for a mark at its end."""
    return caching is not None and caching.mark == "breakpoint" and caching.keeps(head)


def marked_messages(
    request: Request, caching: Caching | None, is_shared: bool, kind: str
) -> list[dict[str, Any]]:
    """The messages of a prompt, with the end of its head marked for OpenAI's prefix cache."""
    head, rest = request.script.head, request.script.rest
    turns: list[dict[str, Any]] = [
        {"role": one.role, "content": one.content} for one in request.script.messages
    ]
    if not is_split(head, caching):
        return turns
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if is_shared else {}
    if head.start.strip() and rest.strip():
        parts = [{"type": kind, "text": head.start, **mark}, {"type": kind, "text": rest}]
        turns[-1]["content"] = parts
    elif mark and not head.start.strip():
        # A mark may not stand in what a model said.
        for turn in [turn for turn in turns[:-1] if turn["role"] != "assistant"][-1:]:
            turn["content"] = [{"type": kind, "text": turn["content"], **mark}]
    return turns


@lru_cache(maxsize=256)
def _digest(head: Head) -> str:
    return hashlib.sha256(head.text.encode("utf-8", "replace")).hexdigest()[:KEY_LENGTH]


@lru_cache(maxsize=1024)
def _fields(model: str, params: str, more: str = "{}") -> str:
    """The start of a body: all that the requests of a run share, or those behind one head."""
    fields = json.loads(params) | json.loads(more)
    fields.pop("interface", None)
    return json.dumps({"model": model, **fields}).removesuffix("}")


@lru_cache(maxsize=256)
def _messages(head: Head) -> str:
    """The JSON of a head, up to where the rest of the last message goes on."""
    before = "".join(f"{json.dumps(vars(message))}, " for message in head.before)
    return f'"messages": [{before}{{"role": "{head.role}", "content": "{_inside(head.start)}'


@lru_cache(maxsize=256)
def _prompt(head: Head) -> str:
    texts = [*(message.content for message in head.before), head.start]
    return f'"prompt": "{_inside(BREAK.join(texts))}'


def _inside(text: str) -> str:
    """A text as it stands inside the quotes of a JSON string."""
    return json.dumps(text)[1:-1]
