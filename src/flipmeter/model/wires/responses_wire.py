"""OpenAI's Responses API, asked for one answer that is not kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flipmeter.model.backends.response import TokenPaths, clean_name, plain, steps_of
from flipmeter.model.label_scores import scores_along
from flipmeter.model.wires.chat_wire import cache_fields, marked_messages
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

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        fields = json.loads(request.params)
        fields.pop("interface", None)
        fields |= cache_fields(request, caching, is_shared)
        turns = marked_messages(request, caching, is_shared, "input_text")
        return json.dumps({"model": model, **fields, "input": turns}).encode()

    def flaw(self, answer: Mapping[str, Any]) -> str:
        if not isinstance(answer.get("output"), list):
            return "the answer has no output" if answer else "the answer is not a JSON object"
        if answer.get("status") in ("failed", "cancelled", "queued", "in_progress"):
            return f"the response is {answer['status']}"
        return (
            "" if all(map(_is_item, answer["output"])) else "an item of the output cannot be read"
        )

    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        parts = list(_parts(answer))
        said = "".join(_text(part, "text") for part in parts)
        refusal = "".join(_text(part, "refusal") for part in parts)
        is_refusal = bool(refusal) and not said
        shown = [row for part in parts for row in _listed(part.get("logprobs"))]
        return Reply(
            text=said or refusal,
            finish="refusal" if is_refusal else _finish(answer),
            scores=scores_along(steps_of(shown), answers) if answers else None,
            usage=COUNTS.read(answer.get("usage")),
            seconds=seconds,
            model=clean_name(answer.get("model")),
        )

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        shown = [row for part in _parts(answer) for row in _listed(part.get("logprobs"))]
        first = shown[0] if shown and isinstance(shown[0], dict) else {}
        return len(_listed(first.get("top_logprobs"))) if "logprob" in first else None


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


def _parts(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts of the messages of an answer; reasoning is none."""
    for item in _listed(answer.get("output")):
        if isinstance(item, dict) and item.get("type") == "message":
            yield from (part for part in _listed(item.get("content")) if isinstance(part, dict))


def _finish(answer: Mapping[str, Any]) -> str:
    if answer.get("status") != "incomplete":
        return "stop"
    why = answer.get("incomplete_details")
    reason = why.get("reason") if isinstance(why, dict) else ""
    return FINISHES.get(str(reason), clean_name(reason))


def _text(part: Mapping[str, Any], name: str) -> str:
    found = part.get(name)
    return plain(found) if isinstance(found, str) else ""


def _listed(value: object) -> list[Any]:
    return [*value] if isinstance(value, list) else []
