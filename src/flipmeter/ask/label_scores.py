"""Tokens -> label probabilities: one definition for every engine.

The probability of a label is that of the reply beginning with it: the probabilities of the ways to
write it, with and without a space before it, summed. All ways of all labels form a tree of tokens.
A label that another one goes on from ("1" of "10") has the probability of its place in the tree
less that of the branches that lead to other labels. What an engine does not show is bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Token = TypeVar("Token", bound=Hashable)
Ids = tuple[int, ...]

ROUNDING = 1e-6
"""Largest deficit of probabilities from 1 by rounding alone."""
LEAST = -100.0
"""No label has a lower log-probability: a share that was rounded to 0 is not impossible."""


class Tree(Generic[Token]):
    """The ways to write some labels, token by token.

    `ends` says for each way which labels it stands for: one, or several that share it equally.
    """

    def __init__(self, n_labels: int, ends: Mapping[tuple[Token, ...], Collection[int]]) -> None:
        self._n_labels = n_labels
        self._ends = ends
        self._below: dict[tuple[Token, ...], dict[Token, set[int]]] = {}
        for way, labels in ends.items():
            for n, token in enumerate(way):
                self._below.setdefault(way[:n], {}).setdefault(token, set()).update(labels)

    def branches(self, place: tuple[Token, ...]) -> dict[Token, set[int]]:
        """The tokens that go on from a place to other labels than its own, with these."""
        own = {*self._ends.get(place, ())}
        below = self._below.get(place, {})
        return {token: labels for token, labels in below.items() if not labels <= own}

    def forks(self, place: tuple[Token, ...] = ()) -> Iterator[tuple[Token, ...]]:
        """Yield the places whose next token matters, each before those behind it."""
        if branches := self.branches(place):
            yield place
            for token in branches:
                yield from self.forks((*place, token))

    def scores(
        self, shown_after: Callable[[tuple[Token, ...]], Mapping[Token, float]]
    ) -> tuple[float, ...]:
        """The log-probability of each label, given that of the tokens shown at each fork.

        A label none of whose ways is shown has half of what an unseen token can have at most.
        """
        shown: list[list[float]] = [[] for _ in range(self._n_labels)]
        bounds: list[list[float]] = [[] for _ in range(self._n_labels)]
        for label, score, is_shown in self._weigh((), 0.0, shown_after):
            (shown if is_shown else bounds)[label].append(score)
        found = (
            log_sum(some) if some else max(unseen, default=LEAST)
            for some, unseen in zip(shown, bounds, strict=True)
        )
        return tuple(min(max(score, LEAST), 0.0) for score in found)

    def _weigh(
        self,
        place: tuple[Token, ...],
        score: float,
        shown_after: Callable[[tuple[Token, ...]], Mapping[Token, float]],
    ) -> Iterator[tuple[int, float, bool]]:
        """Yield labels with what a place and all behind it give them, and whether it is shown."""
        branches = self.branches(place)
        shown = shown_after(place) if branches else {}
        gone = 0.0
        for token, labels in branches.items():
            if token in shown:
                gone += math.exp(shown[token])
                yield from self._weigh((*place, token), score + shown[token], shown_after)
            else:
                yield from _split_score(labels, score + _unseen_token_bound(shown), is_shown=False)
        left = math.log1p(-min(gone, 1 - ROUNDING))
        yield from _split_score(self._ends.get(place, ()), score + left, is_shown=True)


def _split_score(
    labels: Collection[int], score: float, *, is_shown: bool
) -> Iterator[tuple[int, float, bool]]:
    for label in labels:
        yield label, score - math.log(len(labels)), is_shown


def _unseen_token_bound(shown: Mapping[Token, float]) -> float:
    """Half of what an unseen token can have: the least that is shown, or what is left."""
    shares = [math.exp(share) for share in shown.values()]
    most = min(min(shares, default=1.0), max(1 - sum(shares), ROUNDING))
    return math.log(most / 2) if most else LEAST


def log_sum(scores: Sequence[float]) -> float:
    """The logarithm of the sum of what these are logarithms of."""
    top = max(scores)
    return top + math.log(sum(math.exp(score - top) for score in scores))


# ---------------------------------------------------------------------- ways in token numbers


def ending(text: str) -> str:
    """The last word of a prompt with the white space before it: what follows joins that."""
    words = text.rstrip()
    if len(words) < len(text):
        return text[len(words) :]
    start = max((words.rfind(space) for space in " \n\t"), default=-1)
    return words[len(words[: start + 1].rstrip()) :]


def written(answers: Sequence[str], end: str, encode: Callable[[str], Sequence[int]]) -> Tree[int]:
    """The ways to write answers behind a prompt's end, by a tokenizer without additions.

    "1" and " 1" are different tokens, and either may be what the model says.
    """
    before = tuple(encode(end)) if end else ()
    ends: dict[Ids, set[int]] = {}
    for label, answer in enumerate(answers):
        for text in (answer, f" {answer}"):
            ids, n = tuple(encode(end + text)), len(before)
            joins = ids[:n] == before and len(ids) > n
            ends.setdefault(ids[n:] if joins else tuple(encode(text)), set()).add(label)
    return Tree(len(answers), ends)


# ---------------------------------------------------------------------- ways in an endpoint's words


@dataclass(frozen=True)
class Step:
    """A token of a reply, and the log-probabilities shown for its place, its own among them."""

    token: str
    shown: Mapping[str, float]


THOUGHT = re.compile(r".*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
OPENING = re.compile(r"(?:the\s+)?(?:label|answer)\b(?:\s+is\b)?", re.IGNORECASE)
SKIPPED = " \t\r\n*`'\"“”‘’([{:=#>"


def scores_along(steps: Sequence[Step], answers: Sequence[str]) -> tuple[float, ...] | None:
    """The log-probability of each answer at the place where a reply begins its label.

    Only what stands along the reply's own tokens is known. A token beside them that is an answer
    counts for it; one that only begins answers is shared among these equally, so that each is off
    by no more than the share of such tokens; an answer that no token begins is bounded as in any
    tree. Upper and lower case count as one, as when the reply is read, unless all answers are
    single letters.
    """
    if not (steps and answers):
        return None
    fold = str if all(len(one) == 1 and one.isalpha() for one in answers) else str.casefold
    names = [fold(answer) for answer in answers]
    trail = _label_trail(steps[_first_step(steps, names) :], names, fold)
    ends: dict[tuple[str, ...], Collection[int]] = {}
    for n, (place, said, step) in enumerate(trail, 1):
        for token in step.shown:
            text = fold((said + token).lstrip(SKIPPED))
            goes_on = token == step.token and n < len(trail)
            labels = _labels_begun(text, names) or (
                () if goes_on or not text else _labels_continuing(text, names)
            )
            if labels:
                ends[*place, token] = labels
    for label in {*range(len(names))}.difference(*ends.values()):
        texts = ((place, fold(said.lstrip(SKIPPED))) for place, said, _ in reversed(trail))
        nearest = next(place for place, text in texts if names[label].startswith(text))
        ends[*nearest, names[label]] = (label,)
    shown = {place: step.shown for place, _, step in trail}
    return Tree(len(names), ends).scores(shown.__getitem__)


def _label_trail(
    steps: Sequence[Step], names: Sequence[str], fold: Callable[[str], str]
) -> list[tuple[tuple[str, ...], str, Step]]:
    """The steps of a reply while it may become a label, each with what was said before."""
    trail: list[tuple[tuple[str, ...], str, Step]] = []
    place: tuple[str, ...] = ()
    for step in steps:
        trail.append((place, "".join(place), step))
        place = (*place, step.token)
        if not _labels_continuing(fold("".join(place).lstrip(SKIPPED)), names):
            break
    return trail


def _first_step(steps: Sequence[Step], names: Sequence[str]) -> int:
    """The number of the step in which the label begins, with one space before it."""
    text = "".join(step.token for step in steps)
    thought = THOUGHT.match(text)
    start = _skip_marks(text, thought.end() if thought else 0)
    if (opening := OPENING.match(text, start)) and not any(map(OPENING.match, names)):
        start = _skip_marks(text, opening.end())
    start -= text[:start].endswith(" ")
    for n, step in enumerate(steps):
        start -= len(step.token)
        if start < 0:
            return n
    return 0


def _skip_marks(text: str, start: int) -> int:
    return len(text) - len(text[start:].lstrip(SKIPPED))


def _labels_begun(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """The label that a text is, or begins with as a whole word."""
    found = [
        (len(name), label)
        for label, name in enumerate(names)
        if text.startswith(name) and not re.match(r"[\w-]", text[len(name) :])
    ]
    return (max(found)[1],) if found else ()


def _labels_continuing(text: str, names: Sequence[str]) -> tuple[int, ...]:
    """The labels that go on from a text."""
    return tuple(
        label for label, name in enumerate(names) if name.startswith(text) and name != text
    )
