"""OpenAI's chat completions and completions, which most servers speak."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import flaw_in, logprobs_in, reply_in
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Head, Reply, Request

BREAK = "\n\n"


class ChatWire(Wire):
    """The chat completions interface."""

    def path(self, model: str) -> str:
        return "/chat/completions"

    def body(self, model: str, request: Request) -> bytes:
        fields, head = _fields(model, request.params), _messages(request.script.head)
        return f'{fields}, {head}{_inside(request.script.rest)}"}}]}}'.encode()

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

    def body(self, model: str, request: Request) -> bytes:
        fields, head = _fields(model, request.params), _prompt(request.script.head)
        return f'{fields}, {head}{_inside(request.script.rest)}"}}'.encode()


@lru_cache(maxsize=1024)
def _fields(model: str, params: str) -> str:
    """The start of a body: all that the requests of a run share."""
    fields = json.loads(params)
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
