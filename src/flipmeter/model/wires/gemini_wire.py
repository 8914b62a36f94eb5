"""Google's Gemini API: generateContent, with its own names for everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from flipmeter.model.backends.response import (
    TokenPaths,
    Trouble,
    as_dict,
    as_list,
    clean_name,
    first_of,
    plain,
)
from flipmeter.model.wires.dialect import LIMITS, budget_in, effort_in, without_reasoning
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Caching, Reply, Request, Usage

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
FINISHES = {"STOP": "stop", "MAX_TOKENS": "length"}
BLOCKED = {
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE"),
}
COUNTS = TokenPaths(
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
        return "" if _blocked(answer) else "the answer has no candidates"

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
        is_blocked = reason in BLOCKED or (not candidate and bool(_blocked(answer)))
        usage = COUNTS.read(answer.get("usageMetadata"))
        if usage.completion is not None or usage.reasoning is not None:
            # Others count thoughts as a part of the completion.
            completion = (usage.completion or 0) + (usage.reasoning or 0)
            usage = Usage(usage.prompt, usage.cached, completion, usage.reasoning)
        return Reply(
            text="".join(plain(text) for text in texts if isinstance(text, str)),
            finish="content_filter" if is_blocked else FINISHES.get(reason, reason.lower()),
            usage=usage,
            model=clean_name(answer.get("modelVersion")),
        )

    def tokens(self, answer: Mapping[str, Any]) -> list[Any]:
        found = as_dict(first_of(answer.get("candidates")).get("logprobsResult"))
        chosen, tops = as_list(found.get("chosenCandidates")), as_list(found.get("topCandidates"))
        tops += [None] * (len(chosen) - len(tops))
        return [
            {**_token(one), "top_logprobs": [*map(_token, as_list(as_dict(top).get("candidates")))]}
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


def _blocked(answer: Mapping[str, Any]) -> str:
    return clean_name(as_dict(answer.get("promptFeedback")).get("blockReason"))


def _token(row: object) -> dict[str, Any]:
    """A token as OpenAI writes it."""
    told = as_dict(row)
    return {"token": told.get("token"), "logprob": told.get("logProbability")}
