"""Model -> Dialect: which fields its endpoint takes, by name and by what refusals taught.

A reply store keeps corrections: what an endpoint taught in one run holds for all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flipmeter.ask.family import Capability
from flipmeter.ask.response import Trouble
from flipmeter.types import Corrections, Request, canonical_json

if TYPE_CHECKING:
    from flipmeter.ask.store import Store

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


DIALECT = "dialect"
"""The name under which a store keeps the corrections of an endpoint, beside its capabilities."""
REFUSALS = {400, 422}
CORRECTABLE = (
    *LIMITS,
    *SAMPLING,
    *("seed", "random_seed", "stop", "stop_sequences"),
    *("topP", "topK", "stopSequences"),
)
"""Fields that may go under another name or not at all: a study's own extra fields may not."""

_REFUSED = re.compile(
    r"unsupported|not supported|n.t support|deprecated|not permitted|not allowed|forbidden"
    r"|unknown|unrecogni[sz]ed|unexpected|cannot find field|only the default|may only be set"
    r"|not a valid (?:parameter|field)|cannot be (?:used|specified|set)|not available",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\buse\s+[`'\"]?(\w+)[`'\"]?\s+instead", re.IGNORECASE)


def correction_in(trouble: Trouble, body: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """The field that an endpoint complains of, and its other name, or None to leave it out.

    Nothing where the complaint is about something else: it is then the user's to repair.
    """
    said = " ".join((trouble.message, *sorted(trouble.kinds))).replace("_", " ")
    if trouble.status not in REFUSALS or not _REFUSED.search(said):
        return None
    field = _complained_of(trouble, [name for name in CORRECTABLE if name in body])
    if field is None:
        return None
    other = _INSTEAD.search(trouble.message)
    if other and other[1] != field and other[1] not in body:
        return field, other[1]
    return None if field in LIMITS else (field, None)


def _complained_of(trouble: Trouble, fields: Iterable[str]) -> str | None:
    """The field that the refusal names: as its parameter, in quotes, or anywhere."""
    known = list(fields)
    if trouble.param in known:
        return trouble.param
    for pattern in (r"[`'\"]{}[`'\"]", r"(?<![\w.]){}(?!\w)"):
        for name in known:
            if re.search(pattern.format(re.escape(name)), trouble.message):
                return name
    return None


def corrected_request(request: Request, corrections: Corrections) -> Request:
    """A request whose fields are as its endpoint wants them."""
    params = corrected_params(request.params, corrections)
    return request if params == request.params else replace(request, params=params)


@lru_cache(maxsize=1024)
def corrected_params(params: str, corrections: Corrections) -> str:
    return canonical_json(corrected(json.loads(params), corrections))


def corrected(body: Mapping[str, Any], corrections: Corrections) -> dict[str, Any]:
    """A body with what its endpoint taught: fields under other names, or left out (None)."""
    taught = dict(corrections)
    named = {name: taught.get(name, name) for name in body}
    return {new: body[name] for name, new in named.items() if new is not None}


def with_correction(known: Corrections, correction: tuple[str, str | None]) -> Corrections:
    """Corrections and one more, perhaps of the name that an earlier one gave to a field.

    A name that was refused already is not learned: an endpoint could send a field back and forth.
    """
    taught, (refused, other) = dict(known), correction
    if other in taught:
        return known
    renamed = [old for old, new in known if new == refused]
    for name in renamed or ([] if refused in taught else [refused]):
        taught[name] = other
    return tuple(taught.items())


def told_corrections(corrections: Corrections) -> str:
    """The corrections in words."""
    renamed = [f"{old} is sent as {new}" for old, new in corrections if new is not None]
    return "; ".join([*renamed, *(f"{old} is not sent" for old, new in corrections if not new)])


# --- in a store ------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def spoken_as(params: str) -> str:
    """The fields of a body that are not corrected; they can affect which fields are accepted."""
    told = json.loads(params)
    return canonical_json({k: told[k] for k in told if k not in (*CORRECTABLE, *LOGPROBS)})


def note_corrections(store: Store, identity: str, params: str, corrections: Corrections) -> None:
    """Record what an endpoint taught."""
    taught = canonical_json([list(pair) for pair in corrections])
    today = datetime.now(UTC).date().isoformat()
    store.note_capabilities(identity, spoken_as(params), [Capability(DIALECT, True, taught, today)])


def recall_corrections(store: Store, identity: str, params: str) -> Corrections:
    """The corrections that an endpoint taught earlier."""
    return corrections_of(store.capabilities(identity, spoken_as(params)))


def corrections_of(found: Mapping[str, Capability]) -> Corrections:
    known = found.get(DIALECT)
    if known is None:
        return ()
    return tuple(
        (str(old), None if new is None else str(new)) for old, new in json.loads(known.how)
    )
