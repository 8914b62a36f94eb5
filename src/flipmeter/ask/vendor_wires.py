"""Anthropic's Messages API and Google's Gemini API, with their own names for everything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flipmeter.ask.dialect import LIMITS, SAMPLING, budget_in, effort_in, without_reasoning
from flipmeter.ask.response import (
    TokenPaths,
    Trouble,
    as_dict,
    as_list,
    clean_name,
    first_of,
    plain,
)
from flipmeter.ask.wires import Wire, turns_of
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
        # The system prompt stands first, so a mark on it would leave the turns before the end out.
        has_turns = any(one.role != "system" for one in request.script.messages[:-1])
        unmarked = "system" if has_turns else ""
        *before, last = turns_of(request, mark if is_kept else None, unmarked=unmarked)
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


NAMES = {
    **dict.fromkeys(LIMITS, "maxOutputTokens"),
    "top_p": "topP",
    "top_k": "topK",
    "stop": "stopSequences",
}
OWN_PLACE = {
    *("safetySettings", "tools", "toolConfig", "cachedContent", "labels", "serviceTier", "store"),
    "generationConfig",
}
"""Fields that do not belong to the generation config."""
ROLES = {"user": "user", "assistant": "model"}
GEMINI_FINISHES = {"STOP": "stop", "MAX_TOKENS": "length"}
BLOCKED = {
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"),
}
GEMINI_COUNTS = TokenPaths(
    prompt=("promptTokenCount",),
    cached=("cachedContentTokenCount",),
    completion=("candidatesTokenCount",),
    reasoning=("thoughtsTokenCount",),
)
WRONG_KEY = "API_KEY_INVALID"


class GeminiWire(Wire):
    """One candidate; the vendor's cache finds equal prefixes by itself."""

    vendor = "Gemini"

    def path(self, model: str) -> str:
        return f"/models/{quote(model)}:generateContent"

    def auth(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}

    def fields(self, body: Mapping[str, Any]) -> dict[str, Any]:
        told = {NAMES.get(name, name): value for name, value in without_reasoning(body).items()}
        if told.pop("top_logprobs", None) is not None or told.get("logprobs") is True:
            told |= {"responseLogprobs": True, "logprobs": body.get("top_logprobs") or 1}
        budget, effort = budget_in(body), effort_in(body)
        if budget is not None or effort == "none":
            told["thinkingConfig"] = {"thinkingBudget": budget or 0}
        elif effort is not None:
            told["thinkingConfig"] = {"thinkingLevel": effort.upper()}
        return told

    def settings(self, model: str, fields: dict[str, Any]) -> dict[str, Any]:
        own = {k: v for k, v in fields.items() if k in OWN_PLACE}
        config = {k: v for k, v in fields.items() if k not in OWN_PLACE}
        return {**own, "generationConfig": {**config, **own.get("generationConfig", {})}}

    def prompt(self, request: Request, caching: Caching | None, is_shared: bool) -> dict[str, Any]:
        messages = request.script.messages
        system = [{"text": one.content} for one in messages if one.role == "system"]
        turns = [
            {"role": ROLES[one.role], "parts": [{"text": one.content}]}
            for one in messages
            if one.role != "system"
        ]
        told = {"systemInstruction": {"parts": system}} if system else {}
        return {**told, "contents": turns}

    def flaw(self, answer: Mapping[str, Any]) -> str:
        candidate = first_of(answer.get("candidates"))
        if candidate:
            return "" if _is_read(candidate) else "the content of the candidate cannot be read"
        return "" if _block_reason(answer) else "the answer has no candidates"

    def trouble(self, status: int, answer: Mapping[str, Any], content: bytes) -> Trouble | None:
        found = super().trouble(status, answer, content)
        if found is not None and WRONG_KEY in content.decode("utf-8", "replace"):
            return Trouble(401, found.message, found.kinds)  # it says 400, as for a wrong field
        return found

    def read(self, answer: Mapping[str, Any]) -> Reply:
        candidate = first_of(answer.get("candidates"))
        parts = map(as_dict, as_list(as_dict(candidate.get("content")).get("parts")))
        texts = [part.get("text") for part in parts if not part.get("thought")]
        reason = clean_name(candidate.get("finishReason"))
        is_blocked = reason in BLOCKED or (not candidate and bool(_block_reason(answer)))
        usage = GEMINI_COUNTS.read(answer.get("usageMetadata"))
        if usage.completion is not None or usage.reasoning is not None:
            # Others count thoughts as a part of the completion.
            completion = (usage.completion or 0) + (usage.reasoning or 0)
            usage = Usage(usage.prompt, usage.cached, completion, usage.reasoning)
        return Reply(
            text="".join(plain(text) for text in texts if isinstance(text, str)),
            finish="content_filter" if is_blocked else GEMINI_FINISHES.get(reason, reason.lower()),
            usage=usage,
            model=clean_name(answer.get("modelVersion")),
        )

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        found = as_dict(first_of(answer.get("candidates")).get("logprobsResult"))
        chosen, tops = as_list(found.get("chosenCandidates")), as_list(found.get("topCandidates"))
        tops += [None] * (len(chosen) - len(tops))
        return [
            {
                **_openai_token(one),
                "top_logprobs": [*map(_openai_token, as_list(as_dict(top).get("candidates")))],
            }
            for one, top in zip(chosen, tops, strict=False)
        ]


def _is_read(candidate: Mapping[str, Any]) -> bool:
    """Whether what a candidate says can be read; one that was stopped may say nothing."""
    content = candidate.get("content")
    if content is None:
        return isinstance(candidate.get("finishReason"), str)
    parts = content.get("parts", []) if isinstance(content, dict) else None
    return isinstance(parts, list) and all(
        isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in parts
    )


def _block_reason(answer: Mapping[str, Any]) -> str:
    return clean_name(as_dict(answer.get("promptFeedback")).get("blockReason"))


def _openai_token(row: object) -> dict[str, Any]:
    """A token as OpenAI writes it."""
    told = as_dict(row)
    return {"token": told.get("token"), "logprob": told.get("logProbability")}
