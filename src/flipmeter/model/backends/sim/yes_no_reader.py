"""Prompt text -> YesNoPrompt: what a yes-no question is about, and when yes is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flipmeter.types import Problem, Rank

YES, NO = "yes", "no"
ASKED = re.compile(
    r"(?P<body>.*)\s(?P<asked>Is [^?]*\?) Answer (?P<first>yes|no) or (?P<second>yes|no)\."
    r"\s+Answer:?\s*\Z",
    re.DOTALL,
)
LAST_ANSWER = re.compile(r"\bAnswer:?\s+(yes|no)\s*\Z")
HEADS = (r"[^\n:]{1,40}: ", r"[^\n\t]{1,40}\t", r"\S+ ", r"\S+ \S+ ")
ALONE = re.compile(r"Is this (?:the|a) (right|wrong|good|bad) [^?]+\?")
LABEL = re.compile(r"Is '(.*)' the (right|wrong) label\?", re.DOTALL)
MEANS_YES = {"right": True, "good": True, "wrong": False, "bad": False}


@dataclass(frozen=True)
class YesNoPrompt:
    """A question in the words of the prompt: its answers as they are listed, and what yes means.

    `yes_for` are the classes for which yes is right. Of an option that stands alone it is None, and
    `is_good` says whether yes is for a right one. `body` is all that stands before the question.
    """

    body: str
    answers: tuple[str, str]
    yes_for: frozenset[Rank] | None
    is_good: bool = True


def read_yes_no(text: str, names: Sequence[str], poles: tuple[str, str]) -> YesNoPrompt | None:
    """The yes-no question of a prompt, None for any other prompt."""
    found = ASKED.fullmatch(text)
    if found is None:
        return None
    answers = (found["first"], found["second"])
    alone = ALONE.fullmatch(found["asked"])
    if alone is not None:
        return YesNoPrompt(found["body"], answers, None, MEANS_YES[alone[1]])
    return YesNoPrompt(found["body"], answers, _classes(found["asked"], tuple(names), poles))


@lru_cache(maxsize=1 << 10)
def _classes(asked: str, names: tuple[str, ...], poles: tuple[str, str]) -> frozenset[Rank]:
    """The classes for which yes is the right answer."""
    ranks = {name.casefold(): rank for rank, name in enumerate(names, 1)}
    label = LABEL.fullmatch(asked)
    if label is not None and label[1].casefold() in ranks:
        only = frozenset({ranks[label[1].casefold()]})
        return only if label[2] == "right" else frozenset(ranks.values()) - only
    some = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    low, high = (re.escape(pole) for pole in poles)
    for pattern, is_meant in _meanings(some, low, high):
        found = re.search(rf"\s{pattern}\?\Z", asked, re.IGNORECASE)
        if found:
            named = ranks[found[1].casefold()]
            return frozenset(rank for rank in ranks.values() if is_meant(rank, named))
    raise Problem(f"the question '{asked}' is about no class of {', '.join(names)}")


def _meanings(some: str, low: str, high: str) -> Iterator[tuple[str, Callable[[Rank, Rank], bool]]]:
    """The wordings of a cut of the scale, with the classes for which yes is right."""
    yield rf"({some}) or more {high}", lambda rank, named: rank >= named
    yield rf"({some}) or more {low}", lambda rank, named: rank <= named
    yield rf"more {high} than ({some})", lambda rank, named: rank > named
    yield rf"more {low} than ({some})", lambda rank, named: rank < named
    yield rf"at least ({some})", lambda rank, named: rank >= named
    yield rf"below ({some})", lambda rank, named: rank < named


def blocks(body: str) -> Iterator[tuple[str, str]]:
    """Yield what may be the text of the query, the shortest first, and the answer before it.

    A text may itself hold blank lines; who knows the texts takes the first that is one.
    """
    end = len(body)
    while (at := body.rfind("\n\n", 0, end)) >= 0:
        block, answered = body[at + 2 :], LAST_ANSWER.search(body[:at])
        for head in _heads(block):
            yield block[len(head) :], answered[1] if answered else ""
        end = at


def _heads(block: str) -> Iterator[str]:
    """The possible start of a block, as in "Sentence: "."""
    yield from (found[0] for head in HEADS if (found := re.match(head, block)))
