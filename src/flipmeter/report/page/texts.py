"""Untrusted texts -> pieces that a page can show safely."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from flipmeter.report.findings import GAP
from flipmeter.report.format import visible

Kind = Literal["same", "differs", "gap"]
WORDS = re.compile(r"\s+|\w+|[^\w\s]")
LONGEST = 4_000
"""Number of characters of one text on a page."""
LONGEST_FRAME = 30_000
COMPARED = 400
"""Lines with more words than this are compared whole: matching words takes the square of them."""


@dataclass(frozen=True)
class Piece:
    """A part of a prompt: the same in both, different, or the gap for the text of an item."""

    kind: Kind
    text: str = ""


def clipped(text: str, longest: int = LONGEST) -> str:
    """The beginning of a text too long for a page, and the number of missing characters."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n… {len(text) - longest:,} characters left out"


def hollowed(text: str, longest: int = LONGEST_FRAME) -> str:
    """Both ends of a prompt too long for a page: the query is at one of them."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def excerpt(text: str, longest: int = 160) -> str:
    """A text on one line, cut at some length."""
    line = " ".join(visible(text[: 4 * longest]).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def compare(first: str, second: str, labels: Sequence[str] = ()) -> tuple[list[Piece], list[Piece]]:
    """Mark what differs between two prompts: whole lines first, then words of lines that answer
    each other. A label counts as one word."""
    words = _words_and(labels)
    a, b = (hollowed(text).splitlines(keepends=True) for text in (first, second))
    left: list[Piece] = []
    right: list[Piece] = []
    for tag, i, j, k, m in _stretches(a, b):
        if tag == "equal":
            left += _pieces("same", "".join(a[i:j]))
            right += _pieces("same", "".join(b[k:m]))
        elif j - i == m - k:
            for mine, theirs in zip(a[i:j], b[k:m], strict=True):
                left += _words(mine, theirs, words)
                right += _words(theirs, mine, words)
        else:
            left += _pieces("differs", "".join(a[i:j]))
            right += _pieces("differs", "".join(b[k:m]))
    return _joined(left), _joined(right)


def _stretches(a: Sequence[str], b: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """The lines that answer each other: each in its place, unless less differs if some moved.

    Otherwise "Label: 2" of one demonstration would be matched with that of the next, and mark the
    text between them, which both prompts have.
    """
    found = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    if len(a) == len(b):
        moved = sum(len("".join(a[i:j])) for tag, i, j, *_ in found if tag != "equal")
        if sum(len(x) for x, y in zip(a, b, strict=True) if x != y) <= moved:
            return [
                ("equal" if a[n] == b[n] else "replace", n, n + 1, n, n + 1) for n in range(len(a))
            ]
    return found


def _words_and(labels: Sequence[str]) -> re.Pattern[str]:
    """The tokens of a line: "very negative" is one label, not two words."""
    longest = sorted({label for label in labels if label.strip()}, key=len, reverse=True)
    if not longest:
        return WORDS
    either = "|".join(re.escape(label) for label in longest)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)|{WORDS.pattern}", re.IGNORECASE)


def _words(mine: str, theirs: str, words: re.Pattern[str]) -> Iterator[Piece]:
    own, other = words.findall(mine), words.findall(theirs)
    if max(len(own), len(other)) > COMPARED:
        yield from _pieces("differs", mine)
        return
    matcher = difflib.SequenceMatcher(None, own, other, autojunk=False)
    for tag, start, end, _, _ in matcher.get_opcodes():
        text = "".join(own[start:end])
        yield from _pieces("same" if tag == "equal" or not text.strip() else "differs", text)


def _pieces(kind: Kind, text: str) -> Iterator[Piece]:
    """Split a text at its gaps."""
    for place, part in enumerate(text.split(GAP)):
        if place:
            yield Piece("gap")
        if part:
            yield Piece(kind, part)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Put neighbours of one kind together."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.kind == found[-1].kind != "gap":
            found[-1] = Piece(piece.kind, found[-1].text + piece.text)
        else:
            found.append(piece)
    return found
