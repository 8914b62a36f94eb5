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

from flipmeter.printed import about_time
from flipmeter.redaction import all_masked
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
        return as_dict(json.loads(content))
    except (ValueError, RecursionError):
        return {}


def as_dict(value: object) -> dict[str, Any]:
    """An object of an answer, an empty one where there is anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """A list of an answer, an empty one where there is anything else."""
    return [*value] if isinstance(value, list) else []


def first_of(values: object) -> dict[str, Any]:
    """The first object of a list, an empty one if there is none."""
    return as_dict(next(iter(as_list(values)), None))


Flaw = Callable[[Mapping[str, Any]], str]
"""Says why an answer holds no reply, "" if it does."""


def trouble_in(
    status: int, answer: Mapping[str, Any], content: bytes, flaw_in: Flaw
) -> Trouble | None:
    """The error of a response, None if it is valid; `flaw_in` looks for the reply of an API."""
    # OpenRouter reports an upstream failure inside an answer of status 200, or inside its choice.
    error = answer.get("error") or first_of(answer.get("choices")).get("error")
    whole = content.decode("utf-8", "replace")
    if status // 100 != 2:
        if whole.lstrip().startswith("<"):  # an error page, as proxies show them
            whole = unescape(_TAG.sub(" ", whole[:LONGEST_PAGE]))
        error = error or answer.get("message") or answer.get("detail") or whole
    elif error:
        code = str(as_dict(error).get("code"))
        is_status = len(code) == 3 and code.isdecimal() and code >= "400"
        status = int(code) if is_status else 200
    else:
        flaw = flaw_in(answer) if answer else "the answer is not a JSON object"
        return Trouble(status, f"{flaw}: {shortened(whole)}") if flaw else None
    return Trouble(status, _error_text(error), _error_kinds(error), _error_field(error))


def _error_kinds(error: object) -> frozenset[str]:
    """The names an endpoint has for an error."""
    if not isinstance(error, dict):
        return frozenset()
    about = as_dict(error.get("metadata"))
    names = {str(x) for x in (error.get("code"), error.get("type"), about.get("error_type"))}
    if about.get("flagged_input"):
        names.add("content_filter")
    said = str(error.get("message"))
    return frozenset(names | {kind for words, kind in WORDED.items() if words in said})


def _error_field(error: object) -> str:
    """The field that an error names: as OpenAI does, or as servers with pydantic do."""
    first = error[0] if isinstance(error, list) and error else error
    if not isinstance(first, dict):
        return ""
    place = first.get("loc")
    named = place[-1] if isinstance(place, list) and place else first.get("param")
    return named if isinstance(named, str) else _error_field(_provider_error(first))


def _error_text(error: object) -> str:
    said = str(error.get("message") or error if isinstance(error, dict) else error)
    cause = _provider_error(error)
    return shortened(said if cause is None else f"{said}: {_error_text(cause)}")


def _provider_error(error: object) -> object:
    """The error of the provider behind OpenRouter, None if there is none."""
    raw = as_dict(as_dict(error).get("metadata")).get("raw")
    if not isinstance(raw, str) or not raw.strip():
        return None
    return decoded(raw.encode("utf-8", "replace")).get("error") or raw


def shortened(said: str) -> str:
    return " ".join(plain(said).split())[:200] or "an empty answer"


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


def told_pause(headers: Mapping[str, str]) -> float | None:
    """The seconds that an endpoint asks to wait, as a number or as a date."""
    for name, unit in (("Retry-After-Ms", 1e-3), ("Retry-After", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    until = _parse_http_date(headers.get("Retry-After"))
    # Against the endpoint's own clock, which may differ from ours.
    now = _parse_http_date(headers.get("Date")) or datetime.now(UTC)
    return None if until is None else max(0.0, (until - now).total_seconds())


def moment_after(seconds: float) -> str:
    """The end of a pause, as a local time and counted from now."""
    if seconds > A_YEAR:
        return "in more than a year"
    end = datetime.now().astimezone() + timedelta(seconds=seconds)
    return f"after {end:%Y-%m-%d %H:%M %Z} (in {about_time(seconds)})"


def _parse_http_date(date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(date or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
