"""Anthropic's Messages API: system prompts, marks for its prompt cache, thinking."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from flipmeter.model.backends.response import TokenPaths, clean_name, plain
from flipmeter.model.wires.dialect import (
    LIMITS,
    SAMPLING,
    budget_in,
    effort_in,
    without_reasoning,
)
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Caching, Head, Message, Reply, Request, Usage

OLD_VERSION, VERSION = "2023-06-01", "2026-10-21"
"""The newer one has no sampling fields, for any model."""
FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
COUNTS = TokenPaths(
    prompt=("input_tokens",),
    cached=("cache_read_input_tokens",),
    completion=("output_tokens",),
    reasoning=("output_tokens_details", "thinking_tokens"),
)
_MARK = {"cache_control": {"type": "ephemeral"}}


class AnthropicWire(Wire):
    """Messages, with the shared part of a prompt as a block that the cache can keep."""

    vendor = "Anthropic"

    def path(self, model: str) -> str:
        return "/messages"

    def auth(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def headers(self, params: str) -> dict[str, str]:
        return {"anthropic-version": _version(params)}

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = {k: v for k, v in body.items() if k not in (*LIMITS, "stop")}
        limit = next((body[name] for name in LIMITS if name in body), None)
        if limit is not None:
            told["max_tokens"] = limit
        if "stop" in body:
            told["stop_sequences"] = body["stop"]
        return _with_thinking(told)

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        fields = json.loads(request.params)
        fields.pop("interface", None)
        head = request.script.head
        is_kept = caching is not None and caching.keeps(head)
        mark = _MARK if is_kept and is_shared else {}
        start = _started(head, bool(mark))
        content = _content(request, mark) if is_kept else request.script.messages[-1].content
        turns = [*start["messages"], {"role": start["role"], "content": content}]
        system = {"system": start["system"]} if start["system"] else {}
        return json.dumps({"model": model, **fields, **system, "messages": turns}).encode()

    def flaw(self, answer: Mapping[str, Any]) -> str:
        blocks = answer.get("content")
        if not isinstance(blocks, list):
            return "the answer has no content" if answer else "the answer is not a JSON object"
        return "" if all(map(_is_block, blocks)) else "a block of the content cannot be read"

    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        reason = clean_name(answer.get("stop_reason"))
        return Reply(
            text="".join(_texts(answer["content"])),
            finish=FINISHES.get(reason, reason),
            usage=_usage(answer.get("usage")),
            seconds=seconds,
            model=clean_name(answer.get("model")),
        )


@lru_cache(maxsize=1024)
def _version(params: str) -> str:
    return OLD_VERSION if any(name in json.loads(params) for name in SAMPLING) else VERSION


def _with_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body whose reasoning is said as thinking: a budget of tokens, an effort, or none."""
    budget, effort, rest = budget_in(body), effort_in(body), without_reasoning(body)
    if budget is None and effort is None:
        return _at_default_temperature(rest)
    if budget is not None:
        rest["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif effort == "none":
        rest["thinking"] = {"type": "disabled"}
    else:
        rest["thinking"] = {"type": "adaptive"}
        rest["output_config"] = {**rest.get("output_config", {}), "effort": effort}
    return _at_default_temperature(rest)


def _at_default_temperature(body: dict[str, Any]) -> dict[str, Any]:
    """A model that thinks takes no temperature but its own."""
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") == "disabled":
        return body
    return {k: v for k, v in body.items() if k not in ("temperature", "top_k")}


# --- messages ---------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _started(head: Head, is_marked: bool) -> dict[str, Any]:
    """The system prompt and the messages before the last one, marked where they end the head."""
    before = list(head.before)
    told = [one.content for one in before if one.role == "system"]
    system: list[dict[str, Any]] = [{"type": "text", "text": text} for text in told]
    turns: list[dict[str, Any]] = [_turn(one) for one in before if one.role != "system"]
    if is_marked and not head.start.strip():
        if turns:
            turns[-1]["content"] = [{"type": "text", "text": turns[-1]["content"], **_MARK}]
        elif system:
            system[-1] |= _MARK
    return {"system": system, "messages": turns, "role": _role(head.role)}


def _content(request: Request, mark: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """The last message, its shared start a block of its own."""
    start, rest = request.script.head.start, request.script.rest
    if not (start.strip() and rest.strip()):  # a block may not be empty, nor all white space
        return start + rest
    return [{"type": "text", "text": start, **mark}, {"type": "text", "text": rest}]


def _turn(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content}


def _role(role: str) -> str:
    return "user" if role == "system" else role


# --- answers ----------------------------------------------------------------------------------


def _is_block(block: object) -> bool:
    """Whether this is a block, with its text if it is one of text."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return False
    return block["type"] != "text" or isinstance(block.get("text"), str)


def _texts(blocks: Sequence[object]) -> Iterator[str]:
    """The texts of an answer; thinking is none."""
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "text":
            text = block.get("text")
            yield plain(text) if isinstance(text, str) else ""


def _usage(told: object) -> Usage:
    """Tokens as others count them: what was read from the cache or written to it is prompt too."""
    usage = COUNTS.read(told)
    if usage.prompt is None:
        return usage
    written = COUNTS.count(told, "cache_creation_input_tokens") or 0
    prompt = usage.prompt + (usage.cached or 0) + written
    return Usage(prompt, usage.cached, usage.completion, usage.reasoning)
