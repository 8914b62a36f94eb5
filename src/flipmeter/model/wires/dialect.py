"""Model name -> Dialect: which fields a model of a vendor takes, and what it calls them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
LOGPROBS = ("logprobs", "top_logprobs")
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
NO_REASONING = ("none", "minimal")
ROOM = 4096
"""Tokens added to the limit of a reply where a model reasons before it answers."""


@dataclass(frozen=True)
class Dialect:
    """A model's version of the fields of a request body, which are named as in OpenAI's first API.

    `names` are other names of fields, `refused` those it never takes. Fields that are `quiet_only`
    it takes where a study says that it must not reason (`reasoning_effort: none`). A model that
    `reasons` is true for a model that reasons by default, None if unknown.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    quiet_only: frozenset[str] = frozenset()
    reasons: bool | None = None

    def speak(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body as the model wants it."""
        dropped = self.dropped(body)
        return {self.names.get(k, k): value for k, value in body.items() if k not in dropped}

    def dropped(self, body: Mapping[str, Any]) -> list[str]:
        """The fields of a body that the model would refuse."""
        hushed = frozenset() if effort_in(body) == "none" else self.quiet_only
        return [name for name in body if name in self.refused | hushed]

    def room(self, body: Mapping[str, Any]) -> int:
        """Number of tokens that a reply may spend on reasoning."""
        if self.reasons is None:
            return 0
        if budget := budget_in(body):
            return budget
        effort = effort_in(body)
        is_reasoning = self.reasons if effort is None else effort not in NO_REASONING
        return ROOM if is_reasoning else 0


PLAIN = Dialect()
Table = Sequence[tuple[str, Dialect]]
"""Patterns of model names, the first that matches counts."""


def dialect_of(table: Table, model: str) -> Dialect:
    """The dialect of a model by its name, which may have an owner before it."""
    name = model.rpartition("/")[2].casefold()
    return next((one for pattern, one in table if re.match(pattern, name)), PLAIN)


def effort_in(body: Mapping[str, Any]) -> str | None:
    """The reasoning effort in a body, None if not set."""
    told = body.get("reasoning_effort")
    reasoning = body.get("reasoning")
    if told is None and isinstance(reasoning, Mapping):
        told = "none" if reasoning.get("enabled") is False else reasoning.get("effort")
    return str(told) if told is not None else None


def budget_in(body: Mapping[str, Any]) -> int | None:
    """The reasoning budget in a body, in tokens, None if not set."""
    reasoning = body.get("reasoning")
    told = reasoning.get("max_tokens") if isinstance(reasoning, Mapping) else None
    return told if isinstance(told, int) and told > 0 else None


def without_reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """A body without what it says about reasoning."""
    return {k: v for k, v in body.items() if k not in ("reasoning", "reasoning_effort")}


# --- the tables -------------------------------------------------------------------------------

_LONGER = {"max_tokens": "max_completion_tokens"}
_PENALTIES = frozenset({"top_k", "min_p", "repetition_penalty"})
"""Fields that servers of open weights take and OpenAI never did."""
_ALWAYS_REASONS = Dialect(
    names=_LONGER,
    refused=frozenset({*SAMPLING, *LOGPROBS, "stop"}),
    reasons=True,
)
_MAY_REASON = Dialect(
    names=_LONGER,
    refused=_PENALTIES | {"stop"},
    quiet_only=frozenset({"temperature", "top_p", *LOGPROBS}),
    reasons=False,
)
OPENAI: Table = (
    (r"o\d", _ALWAYS_REASONS),
    (r"gpt-5(\.\d+)?-chat|chat-latest", PLAIN),
    (r"gpt-5\.\d+.*-pro|gpt-5.*codex", _ALWAYS_REASONS),
    (r"gpt-5(-|$)", _ALWAYS_REASONS),
    (r"gpt-(5\.|[6-9]|\d\d)", _MAY_REASON),
)
"""OpenAI, and the deployments of Azure that are called like its models."""

GROQ: Table = ((r"", Dialect(refused=_PENALTIES | {*LOGPROBS})),)
MISTRAL: Table = ((r"", Dialect(names={"seed": "random_seed"}, refused=frozenset({"min_p"}))),)

_CLAUDE = Dialect(
    refused=frozenset({"seed", "min_p", "repetition_penalty", *LOGPROBS}), reasons=False
)
ANTHROPIC: Table = (
    # Sampling fields ended with Opus 4.7, thinking by default began with the fifth generation.
    (r"claude-(instant|[123])", _CLAUDE),
    (r"claude-(opus|sonnet|haiku)-4(-[0-6])?([-@]20\d{6}|-latest)?$", _CLAUDE),
    (r"claude-(opus|sonnet|haiku)-4", replace(_CLAUDE, refused=_CLAUDE.refused | {*SAMPLING})),
    (r"", replace(_CLAUDE, refused=_CLAUDE.refused | {*SAMPLING}, reasons=True)),
)

_GEMINI = Dialect(refused=frozenset({"min_p", "repetition_penalty"}), reasons=False)
GEMINI: Table = (
    (r"gemini-(1|2\.0|2\.5-flash-lite)|gemma|learnlm", _GEMINI),
    (r"", replace(_GEMINI, reasons=True)),
)
