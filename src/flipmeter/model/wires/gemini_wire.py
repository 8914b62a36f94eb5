"""Google's Gemini API: generateContent, with its own names for everything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from flipmeter.model.backends.response import TokenPaths, Trouble, clean_name, plain, steps_of
from flipmeter.model.label_scores import Step, scores_along
from flipmeter.model.wires.dialect import LIMITS, budget_in, effort_in, without_reasoning
from flipmeter.model.wires.wire import Wire
from flipmeter.types import Caching, Message, Reply, Request, Usage

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
        thinking = _thinking(body)
        return told | ({"thinkingConfig": thinking} if thinking else {})

    def body(
        self,
        model: str,
        request: Request,
        caching: Caching | None = None,
        is_shared: bool = False,
    ) -> bytes:
        fields = json.loads(request.params)
        fields.pop("interface", None)
        settings = {k: v for k, v in fields.items() if k not in OWN_PLACE}
        content = {k: v for k, v in fields.items() if k in OWN_PLACE}
        content["generationConfig"] = {**settings, **content.get("generationConfig", {})}
        messages = request.script.messages
        system = [{"text": one.content} for one in messages if one.role == "system"]
        if system:
            content["systemInstruction"] = {"parts": system}
        content["contents"] = [_turn(one) for one in messages if one.role != "system"]
        return json.dumps(content).encode()

    def flaw(self, answer: Mapping[str, Any]) -> str:
        candidate = _candidate(answer)
        if candidate:
            return "" if _is_read(candidate) else "the content of the candidate cannot be read"
        if _blocked(answer):
            return ""
        return "the answer has no candidates" if answer else "the answer is not a JSON object"

    def trouble(self, status: int, answer: Mapping[str, Any], content: bytes) -> Trouble | None:
        found = super().trouble(status, answer, content)
        if found is not None and WRONG_KEY in content.decode("utf-8", "replace"):
            return Trouble(401, found.message, found.kinds)  # it says 400, as for a wrong field
        return found

    def reply(
        self, answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()
    ) -> Reply:
        candidate = _candidate(answer)
        return Reply(
            text="".join(_texts(candidate)),
            finish=_finish(answer, candidate),
            scores=scores_along(_steps(candidate), answers) if answers else None,
            usage=_usage(answer.get("usageMetadata")),
            seconds=seconds,
            model=clean_name(answer.get("modelVersion")),
        )

    def n_alternatives(self, answer: Mapping[str, Any]) -> int | None:
        steps = _steps(_candidate(answer))
        return len(steps[0].shown) if steps else None


def _thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """The reasoning settings of a body: a token budget, or a level."""
    if (budget := budget_in(body)) is not None:
        return {"thinkingBudget": budget}
    effort = effort_in(body)
    if effort == "none":
        return {"thinkingBudget": 0}
    return {} if effort is None else {"thinkingLevel": effort.upper()}


def _turn(message: Message) -> dict[str, Any]:
    return {"role": ROLES[message.role], "parts": [{"text": message.content}]}


def _candidate(answer: Mapping[str, Any]) -> dict[str, Any]:
    found = answer.get("candidates")
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, dict) else {}


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
    feedback = answer.get("promptFeedback")
    return clean_name(feedback.get("blockReason")) if isinstance(feedback, dict) else ""


def _finish(answer: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    reason = clean_name(candidate.get("finishReason"))
    if reason in BLOCKED or (_blocked(answer) and not candidate):
        return "content_filter"
    return FINISHES.get(reason, reason.lower())


def _texts(candidate: Mapping[str, Any]) -> Iterator[str]:
    """The texts of a candidate; thoughts are none."""
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    for part in parts if isinstance(parts, list) else []:
        if isinstance(part, dict) and isinstance(part.get("text"), str) and not part.get("thought"):
            yield plain(part["text"])


def _steps(candidate: Mapping[str, Any]) -> list[Step]:
    """The tokens of a candidate with what is shown beside them."""
    found = candidate.get("logprobsResult")
    found = found if isinstance(found, dict) else {}
    chosen, tops = _listed(found.get("chosenCandidates")), _listed(found.get("topCandidates"))
    tops += [None] * (len(chosen) - len(tops))
    rows = [
        {**_token(one), "top_logprobs": [*map(_token, _beside(top))]}
        for one, top in zip(chosen, tops, strict=False)
    ]
    return steps_of(rows)


def _beside(top: object) -> list[Any]:
    return _listed(top.get("candidates")) if isinstance(top, dict) else []


def _token(row: object) -> dict[str, Any]:
    """A token as OpenAI writes it."""
    told = row if isinstance(row, dict) else {}
    return {"token": told.get("token"), "logprob": told.get("logProbability")}


def _listed(value: object) -> list[Any]:
    return [*value] if isinstance(value, list) else []


def _usage(told: object) -> Usage:
    """Tokens as others count them: thoughts are part of the completion."""
    usage = COUNTS.read(told)
    if usage.completion is None and usage.reasoning is None:
        return usage
    completion = (usage.completion or 0) + (usage.reasoning or 0)
    return Usage(usage.prompt, usage.cached, completion, usage.reasoning)
