"""Anthropic's Messages API: system prompts, marks for its prompt cache, thinking."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flipmeter.model.backends.response import TokenPaths, clean_name, plain
from flipmeter.model.wires.dialect import (
    LIMITS,
    SAMPLING,
    budget_in,
    effort_in,
    without_reasoning,
)
from flipmeter.model.wires.wire import Wire, turns_of
from flipmeter.types import Caching, Reply, Request, Usage

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
        fields = json.loads(params)
        is_old = any(name in fields for name in SAMPLING)
        return {"anthropic-version": OLD_VERSION if is_old else VERSION}

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = {k: v for k, v in body.items() if k not in (*LIMITS, "stop")}
        limit = next((body[name] for name in LIMITS if name in body), None)
        if limit is not None:
            told["max_tokens"] = limit
        if "stop" in body:
            told["stop_sequences"] = body["stop"]
        return _with_thinking(told)

    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        is_kept = caching is not None and caching.keeps(request.script.head)
        mark = _MARK if is_shared else {}
        *before, last = turns_of(request, mark if is_kept else None)
        system: list[dict[str, Any]] = []
        for turn in before:
            if turn["role"] == "system":
                text = turn["content"]
                system += text if isinstance(text, list) else [{"type": "text", "text": text}]
        role = "user" if last["role"] == "system" else last["role"]
        turns = [turn for turn in before if turn["role"] != "system"]
        told = {"system": system} if system else {}
        return {**told, "messages": [*turns, {"role": role, "content": last["content"]}]}

    def flaw(self, answer: Mapping[str, Any]) -> str:
        blocks = answer.get("content")
        if not isinstance(blocks, list):
            return "the answer has no content"
        for block in blocks:
            if not isinstance(block, dict) or not isinstance(block.get("type"), str):
                return "a block of the content cannot be read"
            if block["type"] == "text" and not isinstance(block.get("text"), str):
                return "a block of the content cannot be read"
        return ""

    def read(self, answer: Mapping[str, Any]) -> Reply:
        blocks = [one for one in answer["content"] if isinstance(one, dict)]
        texts = [one.get("text") for one in blocks if one.get("type") == "text"]
        reason = clean_name(answer.get("stop_reason"))
        told = answer.get("usage")
        usage = COUNTS.read(told)
        if usage.prompt is not None:  # others count what is read from the cache or written to it
            written = COUNTS.count(told, "cache_creation_input_tokens") or 0
            prompt = usage.prompt + (usage.cached or 0) + written
            usage = Usage(prompt, usage.cached, usage.completion, usage.reasoning)
        return Reply(
            text="".join(plain(text) for text in texts if isinstance(text, str)),
            finish=FINISHES.get(reason, reason),
            usage=usage,
            model=clean_name(answer.get("model")),
        )


def _with_thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body whose reasoning is said as thinking: a budget of tokens, an effort, or none."""
    budget, effort, told = budget_in(body), effort_in(body), without_reasoning(body)
    if budget is not None:
        told["thinking"] = {"type": "enabled", "budget_tokens": budget}
    elif effort == "none":
        told["thinking"] = {"type": "disabled"}
    elif effort is not None:
        told["thinking"] = {"type": "adaptive"}
        told["output_config"] = {**told.get("output_config", {}), "effort": effort}
    thinking = told.get("thinking")
    if isinstance(thinking, Mapping) and thinking.get("type") != "disabled":
        # A model that thinks takes no temperature but its own.
        return {k: v for k, v in told.items() if k not in ("temperature", "top_k")}
    return told
