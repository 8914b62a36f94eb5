"""Prompt text -> JudgePrompt: find what a judge chooses from, the order it stands in, the labels.

A simulated judge knows how good each answer to a question is, and nothing of positions: it must
find in the prompt which answer stands where.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import NormalDist

from flipmeter.model.backends.sim.tilts import SPREAD
from flipmeter.types import Item, Places, Problem, Rank, Task

Key = tuple[str, ...]
"""The choices, sorted: the same in every order."""

MOST_SPLITS = 2_000
SEPARATORS = (": ", "\t", " ")
_END = re.compile(r"\s*Label:?\s*\Z")
_LIST = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Worth:
    """The knowledge of a simulated judge: the quality of each text, by the set of choices.

    `leans[rank - 1]` says how much a class of a pair favours the answer in the first place, from -1
    to 1.
    """

    places: Places
    by_key: Mapping[Key, Mapping[str, float]]

    @property
    def leans(self) -> tuple[float, ...]:
        return leans(self.places)


def leans(places: Places) -> tuple[float, ...]:
    """The preference of each class of a pair for the first answer, from -1 to 1."""
    mirrored = places.meanings((1, 0))
    steps = max(len(mirrored) - 1, 1)
    signs = (1 if places.named(rank)[:1] == (0,) else -1 for rank in range(1, len(mirrored) + 1))
    apart = (abs(other - rank) for rank, other in enumerate(mirrored, 1))
    return tuple(sign * far / steps for sign, far in zip(signs, apart, strict=True))


def worth_of(items: Iterable[Item], task: Task, seed: int = 0, spread: float = SPREAD) -> Worth:
    """Say how good every answer or option is, from the item's class and the hash of its texts.

    A text without content stands in every place and is as good as itself.
    """
    assert task.places is not None
    places = task.places
    known: dict[Key, Mapping[str, float]] = {}
    for item in items:
        if item.role == "null":
            known[(squeeze(item.text),) * len(places.fields)] = {squeeze(item.text): 0.0}
            continue
        texts = [squeeze(item.fields[name]) for name in places.fields if item.fields.get(name)]
        key = tuple(sorted(texts))
        known[key] = _valued(key, texts, item.gold or 0, places, seed, spread)
    return Worth(places, known)


def _valued(
    key: Key, texts: Sequence[str], gold: Rank, places: Places, seed: int, spread: float
) -> dict[str, float]:
    named = places.named(gold) if gold else ()
    if places.kind == "pair" and len(texts) == 2:
        # In units of a lean: two classes of a scale of M are 2 / (M - 1) apart.
        step = 2 / max(len(places.forms) - 1, 1)
        lean = leans(places)[gold - 1] if gold else 0.0
        far = lean + spread * step * _normal("pair", seed, *key)
        return {texts[0]: far / 2, texts[1]: -far / 2}
    return {
        text: (0.5 if place in named else -0.5) + spread * _normal("option", seed, text, *key)
        for place, text in enumerate(texts)
    }


def _normal(*content: object) -> float:
    digest = hashlib.sha256("\x1f".join(map(str, content)).encode("utf-8", "surrogatepass"))
    uniform = ((int.from_bytes(digest.digest()[:8], "big") >> 11) + 0.5) / 2**53
    return round(NormalDist().inv_cdf(uniform), 9)


def squeeze(text: str) -> str:
    """A text with its white space made plain, for prompts that tidy it."""
    return " ".join(text.split())


@dataclass(frozen=True)
class JudgePrompt:
    """The texts that a prompt shows, by place, and its labels with the classes as shown."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]

    @property
    def key(self) -> Key:
        return tuple(sorted(self.texts))


def read_judge(text: str, known: Worth) -> JudgePrompt:
    """Find what a prompt lets choose from; its last block is the query."""
    for words in _families(known.places):
        for separator in SEPARATORS:
            found = _by_heads(text, known, words, separator)
            if found:
                return JudgePrompt(found, *_labels(text, known.places, words, len(found)))
    found = _by_texts(text, known)
    for words in _families(known.places):
        labels = _listed(text, known.places, words)
        if labels:
            return JudgePrompt(found, *labels)
    letters = next(iter(_families(known.places)))
    return JudgePrompt(found, *_labels(text, known.places, letters, len(found)))


def _families(places: Places) -> Iterator[tuple[str, ...]]:
    """Yield what a prompt may call its places, in the formats of labels."""
    n = len(places.fields)
    yield tuple(chr(ord("A") + place) for place in range(min(n, 26)))
    yield tuple(str(place + 1) for place in range(n))
    yield tuple(f"Option_{place + 1}" for place in range(n))
    yield tuple(str(place) for place in range(n))
    yield places.words


def _by_heads(
    text: str, known: Worth, words: Sequence[str], separator: str
) -> tuple[str, ...] | None:
    """Cut the last block at the headings of its places, the nearest to the end first."""
    noun = known.places.noun
    heads = [f"{noun} {word}".strip() + separator for word in words]
    body = _END.sub("", text)
    for n in range(len(heads), 1, -1):
        for texts in islice(_splits(body, heads[:n]), MOST_SPLITS):
            if tuple(sorted(texts)) in known.by_key:
                return texts
    return None


def _splits(text: str, heads: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the ways to cut a text; what is cut may itself hold what looks like a heading."""
    if not heads:
        yield ()
        return
    end = len(text)
    while (at := text.rfind(heads[-1], 0, end)) >= 0:
        if at == 0 or text[at - 1].isspace():
            last = squeeze(text[at + len(heads[-1]) :])
            yield from ((*before, last) for before in _splits(text[:at], heads[:-1]))
        end = at + len(heads[-1]) - 1


def _by_texts(text: str, known: Worth) -> tuple[str, ...]:
    """Find the known texts that stand together nearest to the end, in their order."""
    plain = squeeze(text)
    best: tuple[int, int, tuple[str, ...]] | None = None
    for key in known.by_key:
        at = [plain.rfind(one) for one in key]
        if min(at) >= 0 and len(set(at)) == len(at):
            shown = tuple(one for _, one in sorted(zip(at, key, strict=True)))
            best = max(best or (-1, 0, ()), (min(at), sum(map(len, key)), shown))
    if best is None:
        raise Problem(f"no known choice in the prompt '{text[:60]}'")
    return best[2]


def _labels(
    text: str, places: Places, words: Sequence[str], n_filled: int
) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """The labels of a prompt: those it lists, else one for each class that it offers."""
    listed = _listed(text, places, words)
    if listed:
        return listed
    ranks = places.offered(n_filled)
    return tuple(places.written(rank, words) for rank in ranks), ranks


def _listed(
    text: str, places: Places, words: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Rank, ...]] | None:
    ranks = {places.written(rank, words): rank for rank in range(1, len(places.forms) + 1)}
    for found in _LIST.finditer(text):
        labels = tuple(found[1].split(", "))
        if sorted(labels) == sorted(ranks):
            return labels, tuple(ranks[label] for label in labels)
    return None


def length_lean(texts: Sequence[str]) -> list[float]:
    """Log ratio of each text's length to the longest other one, at most 1."""
    found = []
    for place, text in enumerate(texts):
        others = [len(other) for at, other in enumerate(texts) if at != place]
        ratio = math.log(max(len(text), 1) / max(*others, 1))
        found.append(min(max(ratio, -1.0), 1.0))
    return found
