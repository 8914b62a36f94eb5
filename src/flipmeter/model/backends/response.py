"""An endpoint's answer -> Reply, or what it says instead of one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from html import unescape
from typing import Any

from flipmeter.base.printed import about_time
from flipmeter.base.redaction import all_masked
from flipmeter.model.label_scores import Step, scores_along
from flipmeter.types import Reply, Usage


@dataclass(frozen=True)
class Trouble:
    """An endpoint's error instead of a response."""

    status: int
    message: str
    kinds: frozenset[str] = frozenset()
    param: str = ""


WORDED = {
    "not a valid model": "model_not_found",
    "credit balance is too low": "insufficient_quota",
}
"""Errors that vendors tell apart in words alone."""
LONGEST_PAGE = 20_000
REPLY_TEXTS = ("text", "finish", "model", "provider", "fingerprint", "error")
A_YEAR = 366 * 86_400
_TAG = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^<>]*>", re.DOTALL | re.IGNORECASE)


def without_secrets(reply: Reply) -> Reply:
    """A reply as it may be read, stored and shown."""
    texts = tuple(getattr(reply, name) for name in REPLY_TEXTS)
    clean: tuple[Any, ...] = all_masked(*texts)
    return reply if clean == texts else replace(reply, **dict(zip(REPLY_TEXTS, clean, strict=True)))


def decoded(content: bytes) -> dict[str, Any]:
    """The answer as an object, an empty one if it is anything else."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


Flaw = Callable[[Mapping[str, Any]], str]
"""Says why an answer holds no reply, "" if it does."""


def trouble_in(
    status: int, answer: Mapping[str, Any], content: bytes, flaw_in: Flaw
) -> Trouble | None:
    """The error of a response, None if it is valid; `flaw_in` looks for the reply of an API."""
    # OpenRouter reports an upstream failure inside an answer of status 200, or inside its choice.
    error = answer.get("error") or _first(answer.get("choices")).get("error")
    whole = content.decode("utf-8", "replace")
    if status // 100 == 2 and error:
        return Trouble(_status_in(error), _words(error), _kinds(error), _param(error))
    if status // 100 == 2:
        flaw = flaw_in(answer)
        return Trouble(status, f"{flaw}: {shortened(whole)}") if flaw else None
    error = error or answer.get("message") or answer.get("detail") or _without_tags(whole)
    return Trouble(status, _words(error), _kinds(error), _param(error))


def _first(choices: object) -> dict[str, Any]:
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _status_in(error: object) -> int:
    """The status that an error inside a good answer has by its code, 200 if by none."""
    code = error.get("code") if isinstance(error, dict) else None
    text = str(code)
    return int(text) if len(text) == 3 and text.isdecimal() and text >= "400" else 200


def _kinds(error: object) -> frozenset[str]:
    """The names an endpoint has for an error."""
    if not isinstance(error, dict):
        return frozenset()
    about = error.get("metadata")
    about = about if isinstance(about, dict) else {}
    names = {str(x) for x in (error.get("code"), error.get("type"), about.get("error_type"))}
    if about.get("flagged_input"):
        names.add("content_filter")
    said = str(error.get("message"))
    return frozenset(names | {kind for words, kind in WORDED.items() if words in said})


def _param(error: object) -> str:
    """The field that an error names: as OpenAI does, or as servers with pydantic do."""
    first = error[0] if isinstance(error, list) and error else error
    if not isinstance(first, dict):
        return ""
    place = first.get("loc")
    named = place[-1] if isinstance(place, list) and place else first.get("param")
    return named if isinstance(named, str) else _param(_cause(first))


def _words(error: object) -> str:
    said = str(error.get("message") or error if isinstance(error, dict) else error)
    cause = _cause(error)
    return shortened(said if cause is None else f"{said}: {_words(cause)}")


def _cause(error: object) -> object:
    """The error of the provider behind OpenRouter, None if there is none."""
    about = error.get("metadata") if isinstance(error, dict) else None
    raw = about.get("raw") if isinstance(about, dict) else None
    if not isinstance(raw, str) or not raw.strip():
        return None
    return decoded(raw.encode("utf-8", "replace")).get("error") or raw


def _without_tags(page: str) -> str:
    """The text of an error page, as proxies show them."""
    return unescape(_TAG.sub(" ", page[:LONGEST_PAGE])) if page.lstrip().startswith("<") else page


def flaw_in(answer: Mapping[str, Any]) -> str:
    """The reason why a response holds no reply, "" if it does; a stored reply is permanent."""
    choice = _first(answer.get("choices"))
    if not choice:
        return "the answer has no choices" if answer else "the answer is not a JSON object"
    message = _message(choice)
    if message is None:
        return "the choice has no message"
    if choice.get("finish_reason") == "error":
        return "the answer broke off with an error"
    return (
        "" if isinstance(message.get("content"), str | list | None) else "the content is not text"
    )


def shortened(said: str) -> str:
    return " ".join(plain(said).split())[:200] or "an empty answer"


def reply_in(answer: Mapping[str, Any], seconds: float, answers: Sequence[str] = ()) -> Reply:
    """The reply in an answer, with the scores of the answers if it shows them."""
    choice = _first(answer["choices"])
    message = _message(choice) or {}
    text, refusal = _text(message.get("content")), _text(message.get("refusal"))
    is_refusal = bool(refusal) and not text
    return Reply(
        text=text or refusal,
        finish="refusal" if is_refusal else clean_name(choice.get("finish_reason")),
        scores=scores_along(steps_in(choice), answers) if answers else None,
        usage=COUNTS.read(answer.get("usage")),
        seconds=seconds,
        model=clean_name(answer.get("model")),
        provider=clean_name(answer.get("provider")),
        fingerprint=clean_name(answer.get("system_fingerprint")),
    )


def logprobs_in(answer: Mapping[str, Any]) -> int | None:
    """Number of alternatives to the first token with log-probabilities, None for none.

    The chat interface lists tokens under `content`, the completions interface in parallel lists.
    """
    found = _first(answer.get("choices")).get("logprobs")
    found = found if isinstance(found, dict) else {}
    if isinstance(tokens := found.get("content"), list) and tokens:
        token = tokens[0] if isinstance(tokens[0], dict) else {}
        return len(_listed(token.get("top_logprobs"))) if "logprob" in token else None
    if isinstance(found.get("token_logprobs"), list) and found["token_logprobs"]:
        shown = _tops(found, len(found["token_logprobs"]))[0]
        return len(shown) if isinstance(shown, dict) else 0
    return None


def steps_in(choice: Mapping[str, Any]) -> list[Step]:
    """The tokens of a choice with what is shown beside them, up to one without a share."""
    found = choice.get("logprobs")
    found = found if isinstance(found, dict) else {}
    rows = found.get("content")
    return steps_of(rows if isinstance(rows, list) else _rows(found))


def steps_of(rows: Sequence[Any]) -> list[Step]:
    """Tokens with what is shown beside them, from rows as OpenAI's chat interface writes them."""
    steps: list[Step] = []
    for row in rows:
        alternatives = row.get("top_logprobs") if isinstance(row, dict) else None
        shares = dict(filter(None, map(_share, [*_listed(alternatives), row])))
        if _share(row) is None:
            break
        steps.append(Step(row["token"], shares))
    return steps


def _rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parallel lists of the completions interface as those of the chat interface."""
    tokens, shares = _listed(found.get("tokens")), _listed(found.get("token_logprobs"))
    tops = _tops(found, len(tokens))
    return [
        {
            "token": token,
            "logprob": share,
            "top_logprobs": [
                {"token": other, "logprob": its} for other, its in (top or {}).items()
            ],
        }
        for token, share, top in zip(tokens, shares, tops, strict=False)
        if isinstance(top, dict | None)
    ]


def _tops(found: Mapping[str, Any], n_tokens: int) -> list[Any]:
    """The alternatives to each token; Together's one map is unambiguous for one token only."""
    top = found.get("top_logprobs")
    tops = [top] if isinstance(top, dict) and n_tokens == 1 else _listed(top)
    return tops + [None] * (n_tokens - len(tops))


def _listed(value: object) -> list[Any]:
    return [*value] if isinstance(value, list) else []


def _share(row: object) -> tuple[str, float] | None:
    """A token with its log-probability, None if this is none."""
    if not isinstance(row, dict) or not isinstance(row.get("token"), str):
        return None
    share = row.get("logprob")
    if isinstance(share, bool) or not isinstance(share, int | float):
        return None
    return (row["token"], min(float(share), 0.0)) if -1e300 < share < 1e300 else None


def _message(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message of a choice; the completions interface has only its text."""
    message = choice.get("message")
    if isinstance(message, dict):
        return message
    return {"content": choice["text"]} if "text" in choice else None


def _text(content: object) -> str:
    """A content that is a string, a list of parts, or nothing."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    return plain(content) if isinstance(content, str) else ""


def plain(text: str) -> str:
    """Replace halves of surrogate pairs: JSON can hold them, no file can."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_name(value: object) -> str:
    """A name on one line; the store keeps several names apart by a control character."""
    if not isinstance(value, str):
        return ""
    return value if value.isprintable() else "".join(filter(str.isprintable, value))


@dataclass(frozen=True)
class TokenPaths:
    """The paths of token counts in an API's responses."""

    prompt: Sequence[str]
    cached: Sequence[str]
    completion: Sequence[str]
    reasoning: Sequence[str]

    def read(self, usage: object) -> Usage:
        found = {name: self.count(usage, *path) for name, path in vars(self).items()}
        return Usage(**found)

    @staticmethod
    def count(found: object, *path: str) -> int | None:
        """The number of tokens at a place, None where there is no such number."""
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if found is None or isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return int(found) if 0 <= found < 2**53 else None


COUNTS = TokenPaths(
    prompt=("prompt_tokens",),
    cached=("prompt_tokens_details", "cached_tokens"),
    completion=("completion_tokens",),
    reasoning=("completion_tokens_details", "reasoning_tokens"),
)


def told_pause(headers: Mapping[str, str]) -> float | None:
    """The seconds that an endpoint asks to wait, as a number or as a date."""
    for name, unit in (("Retry-After-Ms", 1e-3), ("Retry-After", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    until = _moment(headers.get("Retry-After"))
    # Against the endpoint's own clock, which may differ from ours.
    now = _moment(headers.get("Date")) or datetime.now(UTC)
    return None if until is None else max(0.0, (until - now).total_seconds())


def moment_after(seconds: float) -> str:
    """The end of a pause, as a local time and counted from now."""
    if seconds > A_YEAR:
        return "in more than a year"
    end = datetime.now().astimezone() + timedelta(seconds=seconds)
    return f"after {end:%Y-%m-%d %H:%M %Z} (in {about_time(seconds)})"


def _moment(date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
