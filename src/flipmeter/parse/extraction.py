"""Reply text -> label text: find the label in a structured reply, by JSON path or by pattern."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from flipmeter.base.files.reading_limits import PATTERN_LENGTH, PATTERN_SECONDS
from flipmeter.types import Extract, Problem

Step = str | int

_STEP = re.compile(r"""\.?([^.\[\]'"$]+)|\[(-?\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_DECODER = json.JSONDecoder()
GROUP = "label"
"""The group of a pattern that is the label, if it has one of that name."""


def extract(text: str, how: Extract) -> list[str]:
    """The texts at the place of the label, each occurrence; nothing if there is none."""
    if how.regex:
        return [_group(match) for match in _matches(how.regex, text)]
    path = read_path(how.json)
    values = (_at(document, path) for document in _documents(text))
    return [said for said in map(_label, values) if said]


def check(how: Extract) -> None:
    """Refuse a path or a pattern that cannot be read."""
    if bool(how.json) == bool(how.regex):
        raise Problem("answer: set either json (a path such as $.label) or regex (a pattern)")
    if how.json:
        read_path(how.json)
    else:
        _pattern(how.regex)


def _matches(pattern: str, text: str) -> list[re.Match[str]]:
    """All matches in a reply; a pattern that tries far too many ways is refused."""
    try:
        return list(_pattern(pattern).finditer(text, timeout=PATTERN_SECONDS))
    except TimeoutError:
        raise Problem(
            f"answer: the pattern {pattern!r:.80} searches a reply for more than "
            f"{PATTERN_SECONDS:g} s; write one without repetitions inside repetitions"
        ) from None


@lru_cache(maxsize=64)
def _pattern(pattern: str) -> Any:
    if len(pattern) > PATTERN_LENGTH:
        raise Problem(f"answer: a pattern of more than {PATTERN_LENGTH:,} characters; shorten it")
    import regex  # which can stop in time; few studies have a pattern

    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):
            re.compile(pattern)  # in Python's own language, of which `regex` has more
            return regex.compile(pattern)
    except FutureWarning as doubt:
        raise Problem(
            f"answer: {pattern!r:.200} has brackets that may not mean what they seem to "
            f"({str(doubt).lower()}); put a backslash before each that means itself: "
            r"\[\[([AB])\]\]"
        ) from doubt
    except (re.error, regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise Problem(f"answer: {pattern!r:.200} is not a valid pattern: {error}") from error


def _group(match: re.Match[str]) -> str:
    if GROUP in match.re.groupindex:
        return match[GROUP] or ""
    return (match[1] if match.re.groups else match[0]) or ""


@lru_cache(maxsize=64)
def read_path(path: str) -> tuple[Step, ...]:
    """Read a JSON path: `$.label`, `$.answers[0].label`, `$['final label']`, `$[-1]`."""
    rest = path.strip().removeprefix("$")
    steps: list[Step] = []
    while rest:
        step = _STEP.match(rest)
        if step is None:
            raise Problem(
                f"answer: {path!r} is not a JSON path; write $.label or $.answers[0].label"
            )
        name, place, *quoted = step.groups()
        steps.append(int(place) if place else name or quoted[0] or quoted[1] or "")
        rest = rest[step.end() :]
    return tuple(steps)


def _documents(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text: the whole text, or every object and list inside."""
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    place = 0
    while (start := _next(text, place)) >= 0:
        try:
            document, place = _DECODER.raw_decode(text, start)
            yield document
        except (ValueError, RecursionError):
            place = start + 1


def _next(text: str, place: int) -> int:
    found = [at for at in (text.find("{", place), text.find("[", place)) if at >= 0]
    return min(found, default=-1)


def _at(document: Any, path: tuple[Step, ...]) -> Any:
    """The value at a path, None if there is none."""
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _label(value: Any) -> str:
    """A value as the text of a label, "" if it cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_text else ""
