"""Reply text -> the number it names, on a range of decimal scores."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from flipmeter.base.numbers import NUMBER, read_number
from flipmeter.types import Rank, Span

_SIGNS = re.compile("[\u2010-\u2015\u2212](?=\\d)")
_NUMBER = re.compile(rf"(?<![\w.,%$€£#]){NUMBER}(?!\w|%|[.,]?\d)")
_BULLET = re.compile(r"^\s*(?:[-*•]\s+)?\d{1,2}[.)]\s+(?=\S)", re.MULTILINE)
_NAMED = re.compile(
    rf"\b(?:score|rating|label|grade|verdict|answer|total|overall)\b[^\d\n+-]{{0,40}}({NUMBER})(?!\w)",
    re.IGNORECASE,
)
_FRONT = re.compile(r"^\W*(?:label|score|rating)?\W*$", re.IGNORECASE)


def read_scores(text: str, span: Span, *, only_first_line: bool = False) -> set[Rank]:
    """The scores that a text names, as ranks: one is an answer, more are ambiguous.

    The first line decides when it names one. A reply that was cut must begin with its score, and go
    on after it: "7" may have become "7.5".
    """
    lines = [line.strip() for line in _SIGNS.sub("-", text).splitlines() if line.strip()]
    if not lines:
        return set()
    first = _named_in(lines[0], span)
    if only_first_line:
        return first if len(first) == 1 and _is_whole(lines, span) else set()
    return first or _named_in("\n".join(lines), span)


def _named_in(text: str, span: Span) -> set[Rank]:
    """The numbers of the range in a text; one that is called the score counts before others."""
    plain = _ends(span).sub(r"\1 ", _BULLET.sub("", text) or text)
    found = _ranks((match[0] for match in _NUMBER.finditer(plain)), span)
    if len(found) < 2:
        return found
    said = _ranks((match[1] for match in _NAMED.finditer(plain)), span)
    return said if len(said) == 1 else found


def _ranks(numbers: Iterable[str], span: Span) -> set[Rank]:
    known = map(read_number, numbers)
    return {rank for number in known if number is not None and (rank := span.rank(number))}


def _is_whole(lines: list[str], span: Span) -> bool:
    match = _NUMBER.search(lines[0])
    if match is None or not _FRONT.match(lines[0][: match.start()]):
        return False
    return len(lines) > 1 or match.end() < len(lines[0].rstrip(".,"))


@lru_cache(maxsize=64)
def _ends(span: Span) -> re.Pattern[str]:
    """Statements of the scale: "/10", "out of 10", "on a scale from 0 to 10"."""
    low, high = (_written(end) for end in (span.low, span.high))
    scale = rf"(?:on|from|of)?\s*an?\s+scale\s+(?:of|from)?\s*{low}\s*(?:to|-|–)\s*{high}"
    range_ = rf"(?:from|between)\s+{low}\s+(?:to|and)\s+{high}"
    return re.compile(
        rf"(\d)\s*(?:points?|stars?)?\s*(?:/|out of)\s*{high}(?![\d.,]*\d)|(?:{scale}|{range_})\b",
        re.IGNORECASE,
    )


def _written(end: float) -> str:
    """A pattern for an end of the scale, with or without decimals: 10, 10.0."""
    text = re.escape(f"{end:g}")
    return rf"{text}(?:[.,]0+)?" if float(end).is_integer() else text
