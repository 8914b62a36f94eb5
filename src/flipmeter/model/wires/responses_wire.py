"""OpenAI's Responses API, asked for one answer that is not kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipmeter.model.backends.response import TokenPaths, as_dict, as_list, clean_name, plain
from flipmeter.model.wires.chat_wire import cached_turns
from flipmeter.model.wires.dialect import LIMITS, effort_in, without_reasoning
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Caching, Reply, Request

LEAST_TOKENS = 16
"""The API refuses a smaller limit."""
SHOWN = ["message.output_text.logprobs"]
FINISHES = {"max_output_tokens": "length", "content_filter": "content_filter"}
COUNTS = TokenPaths(
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
            "".join(plain(part[name]) for part in _parts(answer) if isinstance(part.get(name), str))
            for name in ("text", "refusal")
        )
        finish = "stop"
        if answer.get("status") == "incomplete":
            reason = as_dict(answer.get("incomplete_details")).get("reason", "")
            finish = FINISHES.get(str(reason), clean_name(reason))
        return Reply(
            text=said or refusal,
            finish="refusal" if refusal and not said else finish,
            usage=COUNTS.read(answer.get("usage")),
            model=clean_name(answer.get("model")),
        )

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        return [row for part in _parts(answer) for row in as_list(part.get("logprobs"))]


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


def _parts(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of the messages of an answer; reasoning is none."""
    items = [as_dict(item) for item in as_list(answer.get("output"))]
    messages = [item for item in items if item.get("type") == "message"]
    return [as_dict(part) for item in messages for part in as_list(item.get("content"))]
