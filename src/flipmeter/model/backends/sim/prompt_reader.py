"""Prompt text -> ReadPrompt: find the label list, the demonstrations and the query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from flipmeter.types import Problem, Rank

BREAK = "\n\n"
TAIL = re.compile(r".*\sLabel(:?)(?:([ \t])[ \t]*[^\n]{1,60})?", re.DOTALL)
HEADS = {
    ":": (re.compile(r"[^\n:]{1,40}: "),),
    "\t": (re.compile(r"[^\n\t]{1,40}\t"),),
    " ": tuple(re.compile(rf"(?:\S+ ){{{n_words}}}") for n_words in (1, 2, 3)),
}


@dataclass(frozen=True)
class LabelledText:
    """A text with its label; the open one has none."""

    raw: str
    text: str
    value: str

    @property
    def is_open(self) -> bool:
        return not self.value


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt taken apart: the list, the blocks, and what stands before each of them."""

    labels: tuple[str, ...]
    ranks: tuple[Rank, ...]
    blocks: tuple[LabelledText, ...]
    glue: str


def read_prompt(text: str, head: str, names: tuple[str, ...]) -> ReadPrompt:
    """Take a prompt apart at its heads; without a list the labels and ranks are empty."""
    glue = BREAK + head
    header, *chunks = (BREAK + text.rstrip()).split(glue)
    labels, ranks = _read_list(header, names)
    blocks = _read_blocks(chunks, glue, labels or names, not labels)
    return ReadPrompt(labels, ranks, tuple(blocks), glue)


def find_heads(text: str) -> Iterator[str]:
    """Give what blocks may start with, a noun and a separator like "Sentence: ", best first."""
    segments = text.rstrip().split(BREAK)
    tails = [_tail(segment) for segment in segments]
    # A block starts where one has just ended; segments inside a text say nothing.
    after = [segment for segment, tail in zip(segments[1:], tails, strict=False) if tail]
    starts = after or segments[1:] or segments
    usual = _separators([tail for tail in tails if tail])
    for separator in usual:
        yield from _heads(separator, starts)
    # Texts full of blank lines and labels can outvote the blocks, but not the first of them.
    for separator in HEADS if usual else ():
        yield from _heads(separator, segments[1:2])


def _heads(separator: str, starts: list[str]) -> Iterator[str]:
    """Give the heads with this separator, the most frequent first, those of one word before two."""
    for pattern in HEADS[separator]:
        found = [match[0] for start in starts if (match := pattern.match(start))]
        yield from (head for head, _ in Counter(found).most_common(3))


@lru_cache(maxsize=1 << 14)
def _tail(segment: str) -> str:
    """The text after the last "Label" of a segment, "?" if that is empty; "" without a label."""
    found = TAIL.fullmatch(segment)
    if not found:
        return ""
    return (found[1] or found[2]) if found[2] else found[1] + "?"


def _separators(tails: list[str]) -> str:
    """The separators to try: the usual one, or those that an open label leaves possible."""
    if not tails:
        return ""
    closed = [tail for tail in tails if "?" not in tail]
    if closed:
        return Counter(closed).most_common(1)[0][0]
    return ":\t " if ":?" in tails else "\t "


@lru_cache(maxsize=1 << 10)
def _read_list(header: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[Rank, ...]]:
    """The labels of the list in a header with the ranks they stand for, by slot."""
    lists = re.findall(r"\[(.*)\]", header)
    for content in lists:
        entries = list(_entry(names).finditer(content))
        if sum(len(entry[0]) for entry in entries) + 2 * (len(entries) - 1) == len(content):
            folded = [name.casefold() for name in names]
            ranks = tuple(folded.index(entry[2].casefold()) + 1 for entry in entries)
            if sorted(ranks) == list(range(1, len(names) + 1)):
                return tuple(entry[1] or entry[2] for entry in entries), ranks
    if lists:
        raise Problem(f"the list '[{lists[-1]}]' does not show the classes {', '.join(names)} once")
    return (), ()


@lru_cache(maxsize=64)
def _entry(names: tuple[str, ...]) -> re.Pattern[str]:
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?:(\w+): )?({known})(?=, |$)", re.IGNORECASE)


def _read_blocks(
    chunks: list[str], glue: str, values: tuple[str, ...], is_guess: bool
) -> list[LabelledText]:
    """The blocks; a chunk without a label at its end goes on in the next one."""
    blocks: list[LabelledText] = []
    pending = ""
    for chunk in chunks:
        block = _read_block(pending + chunk, values, is_guess)
        pending = "" if block else pending + chunk + glue
        blocks += [block] if block else []
    if blocks and blocks[-1].is_open and any(block.is_open for block in blocks[:-1]):
        pending = blocks[-1].raw + glue
    # What follows the last demonstration asks again for the query above and shows no text.
    rest = pending.removesuffix(glue).rpartition(BREAK)[0]
    demo = _read_block(rest, values, is_guess)
    return [*blocks, demo] if demo and not demo.is_open else blocks


@lru_cache(maxsize=1 << 14)
def _read_block(chunk: str, values: tuple[str, ...], is_guess: bool) -> LabelledText | None:
    """The text and the label at the end of a chunk; without a list any word is a label."""
    found = _block_pattern(values, is_guess).fullmatch(chunk)
    return LabelledText(chunk, found[1].strip(), found[2] or "") if found else None


@lru_cache(maxsize=64)
def _block_pattern(values: tuple[str, ...], is_guess: bool) -> re.Pattern[str]:
    known = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
    value = "|".join([*known, r"\w+"] if is_guess else known)
    return re.compile(rf"(.*)\sLabel(?:(?::[ \t]*|[ \t]+)({value})|:?)\s*", re.DOTALL)


def join_blocks(blocks: Sequence[LabelledText], glue: str) -> LabelledText:
    """The one block that has been taken for several."""
    *parts, last = blocks
    if not parts:
        return last
    text = glue.join([*(part.raw for part in parts), last.text])
    return LabelledText(
        glue.join([*(part.raw for part in parts), last.raw]), text.strip(), last.value
    )


def all_labels(values: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """All labels of a format from some: 1..M, 0.., A.., Option_1.., or the class names."""
    folded = {name.casefold() for name in names}
    if all(value.casefold() in folded for value in values):
        return names
    for value in values:
        stem = value.rstrip("0123456789")
        if stem != value:
            first = 0 if f"{stem}0" in values else 1
            return tuple(f"{stem}{slot}" for slot in range(first, len(names) + first))
        if len(stem) == 1:
            return tuple(chr(ord("A") + slot) for slot in range(len(names)))
    raise Problem(f"the label '{values[0]}' is neither an identifier nor one of {', '.join(names)}")
