"""Prompt text -> ComparisonPrompt: parse a prompt that compares an item with others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PAIR = re.compile(
    r"\nPassage A: (?P<both>.*)\nWhich Passage is more (?P<pole>[^\n]+) in terms of its "
    r"[^\n]+\?\nOutput Passage A or Passage B:\s*\Z",
    re.DOTALL,
)
SECOND = re.compile(r"\nPassage B: ")
PLACE = re.compile(
    r"return only its position \(1-(?P<n>\d+)[^\n]*\)\.\n\n(?P<shown>.*)\n\n"
    r"(?P<noun>[^\n:]+): (?P<query>.*)\nPosition:\s*\Z",
    re.DOTALL,
)
CLOSEST = re.compile(
    r"\n\nGiven (?P<n>\d+) reference passages [^\n]+:\n\n(?P<shown>.*)"
    r"\n\nNew passage: (?P<query>.*)"
    r"\n\nWhich reference \(1-\d+\) is closest [^\n]+\nAnswer with ONLY [^\n]+\s*\Z",
    re.DOTALL,
)
REFERENCE = re.compile(r"(?:\A|\n)[^\n:]+: (.*?)\nLabel: (\w+)(?=\n|\Z)", re.DOTALL)

Known = Callable[[str], bool]
"""Whether a text is one that the reader knows."""


@dataclass(frozen=True)
class ComparisonPrompt:
    """The choices of a prompt by slot: a label and its text.

    Two passages are asked about by a `pole`, anything longer by a `query`.
    """

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    query: str = ""
    pole: str = ""


def read_comparison(text: str, is_known: Known) -> ComparisonPrompt | None:
    """The comparison in a prompt, None for any other prompt."""
    for found in (_pair(text, is_known), _place(text), _closest(text)):
        if found is not None:
            return found
    return None


def _pair(text: str, is_known: Known) -> ComparisonPrompt | None:
    found = PAIR.search(text)
    if not found:
        return None
    splits = list(_splits(found["both"]))
    if not splits:
        return None
    texts = next((pair for pair in splits if all(map(is_known, pair))), splits[0])
    return ComparisonPrompt(("Passage A", "Passage B"), texts, pole=found["pole"])


def _splits(both: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to cut in two; a text may itself hold what looks like the next passage."""
    for cut in SECOND.finditer(both):
        yield both[: cut.start()], both[cut.end() :]


def _place(text: str) -> ComparisonPrompt | None:
    found = PLACE.search(text)
    if not found:
        return None
    noun = f"{found['noun']}: "
    shown = found["shown"].removeprefix(noun).split(f"\n{noun}")
    labels = tuple(str(place) for place in range(1, int(found["n"]) + 1))
    return ComparisonPrompt(labels, tuple(shown), found["query"])


def _closest(text: str) -> ComparisonPrompt | None:
    found = CLOSEST.search(text)
    if not found:
        return None
    shown = REFERENCE.findall(found["shown"])
    return ComparisonPrompt(
        tuple(label for _, label in shown), tuple(each for each, _ in shown), found["query"]
    )
