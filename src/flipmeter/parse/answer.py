"""Reply -> Answer: read the label, undo the order, name the fault."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from flipmeter.parse.decimals import read_scores
from flipmeter.parse.extraction import extract
from flipmeter.types import (
    LABEL_GAP,
    NO_CLASS,
    Answer,
    Extract,
    Fault,
    Prompt,
    Rank,
    Reply,
    Slot,
    Span,
    fold_label,
)

THOUGHTS = re.compile(
    r"<(think|thinking|thought|reasoning)>.*?</\1>|\[THINK\].*?\[/THINK\]",
    re.DOTALL | re.IGNORECASE,
)
# A template that opens the thought in the prompt leaves only its end in the reply.
END_OF_THOUGHT = re.compile(
    r"\A.*(</(think|thinking|thought|reasoning)>|\[/THINK\])", re.DOTALL | re.IGNORECASE
)
OPEN_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>|\[THINK\]", re.IGNORECASE)
REFUSAL = re.compile(
    r"\b(i('m| am) (sorry|unable|not able)|i (can('|’)?t|cannot|won('|’)?t|must decline)"
    r"|as an ai\b|not comfortable)",
    re.IGNORECASE,
)
DASHES = re.compile("[\u2010-\u2015\u2212]")
NEGATION = re.compile(
    r"\b(?:not|no|non|never|isn['’]t|neither|nor)\s+(?:an?\s+|the\s+)?$", re.IGNORECASE
)
PASSAGES = ("A", "B")
"""Short names of the two passages of a comparison."""
REFUSED = {"content_filter", "refusal", "safety"}


def parse(reply: Reply, prompt: Prompt, how: Extract | None = None) -> Answer:
    """Read a reply to a prompt; one in which no label can be read keeps its probabilities.

    Of a structured reply, `how` names the place of the label; its first words are not a label, so
    that it has no probabilities.
    """
    slot, fault = _read(reply, prompt, how)
    rank = _meant(slot, prompt)
    if reply.error or reply.scores is None or how is not None:
        return Answer(slot, rank, fault, ranks=prompt.ranks)
    weighed = _weighed(reply.scores, prompt.answers)
    return Answer(slot, rank, fault, *weighed, ranks=prompt.ranks)


def _meant(slot: Slot, prompt: Prompt) -> Rank:
    """The class that a slot means; on a range a slot is the score as it was written."""
    if prompt.span is None:
        return prompt.ranks[slot - 1] if slot else NO_CLASS
    return prompt.span.mirrored(slot) if prompt.is_mirrored else slot


def counted(answer: Answer, drawn: Sequence[Answer], prompt: Prompt) -> Answer:
    """An answer with the probabilities of the slots as drawn answers have them.

    They are smoothed by one draw more that is spread over all slots, so that none is 0; the share
    of draws in which a label could be read is what the labels have together.
    """
    slots = [one.slot for one in drawn if one.slot]
    if not slots:
        return replace(answer, probabilities=None, label_mass=0.0)
    n_slots = len(prompt.answers)
    shares = ((slots.count(s) + 1 / n_slots) / (len(slots) + 1) for s in range(1, n_slots + 1))
    return replace(answer, probabilities=tuple(shares), label_mass=len(slots) / len(drawn))


def _weighed(
    scores: tuple[float, ...], answers: tuple[str, ...]
) -> tuple[tuple[float, ...] | None, float]:
    """The probabilities of the slots among themselves, and what they have together.

    Scores stand in the order of the answers' texts, as they were asked for.
    """
    top = max(scores)
    if math.isinf(top):
        return None, 0.0
    weights = {a: math.exp(s - top) for a, s in zip(sorted(answers), scores, strict=True)}
    total = sum(weights.values())
    return tuple(weights[a] / total for a in answers), min(math.exp(top) * total, 1.0)


def _read(reply: Reply, prompt: Prompt, how: Extract | None) -> tuple[Slot, Fault | None]:
    """The slot a reply names, or its fault; why it ended is looked at before its text."""
    if reply.error:
        return 0, "error"
    if reply.finish in REFUSED:
        return 0, "refused"
    text = END_OF_THOUGHT.sub("", THOUGHTS.sub("", reply.text))
    was_cut = reply.finish == "length"
    if OPEN_THOUGHT.search(text):
        return 0, "truncated" if was_cut else "unparsed"
    if prompt.span is not None:
        return _scored(text, prompt.span, how, was_cut)
    if how is not None:
        return _extracted(text, prompt.answers, how, was_cut)
    found = read_slots(text, prompt.answers, only_first_line=was_cut)
    if not found and prompt.labels == "passages":
        found = read_slots(text, PASSAGES, only_first_line=was_cut)
    if len(found) == 1 and not (was_cut and _may_go_on(text, prompt.answers)):
        return found.pop(), None
    return 0, _fault(text, found, was_cut)


def _extracted(
    text: str, answers: tuple[str, ...], how: Extract, was_cut: bool
) -> tuple[Slot, Fault | None]:
    """Read a label from where it must stand; one that another goes on from may have been cut."""
    said = extract(text, how)
    found = {slot for one in said for slot in read_slots(one, answers)}
    is_whole = not (was_cut and said and text.endswith(said[-1]) and _may_go_on(said[-1], answers))
    if len(found) == 1 and is_whole:
        return found.pop(), None
    return 0, _fault(text, found, was_cut)


def _scored(text: str, span: Span, how: Extract | None, was_cut: bool) -> tuple[Slot, Fault | None]:
    """Read a score from where it must stand, or from anywhere; at the end of a cut it may go on."""
    if how is None:
        found = read_scores(text, span, only_first_line=was_cut)
    else:
        said = extract(text, how)
        found = {rank for one in said for rank in read_scores(one, span)}
        if was_cut and said and text.rstrip().endswith(said[-1]):
            found = set()
    if len(found) == 1:
        return found.pop(), None
    return 0, _fault(text, found, was_cut)


def _fault(text: str, found: set[Slot], was_cut: bool) -> Fault:
    if was_cut:
        return "truncated"
    if found:
        return "ambiguous"
    return "refused" if REFUSAL.search(text) else "unparsed"


def read_slots(text: str, answers: tuple[str, ...], *, only_first_line: bool = False) -> set[Slot]:
    """The slots whose label a text names: one is an answer, more are ambiguous.

    The first line decides when it names a label: a raw-text model goes on with another example.
    A reply that was cut must begin with its label; a label further on may be part of a thought.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return set()
    first = _slots_in(lines[0], answers)
    if only_first_line:
        return first if len(first) == 1 and _begins_with_label(lines[0], answers) else set()
    return first or _slots_in("\n".join(lines), answers)


def _slots_in(text: str, answers: tuple[str, ...]) -> set[Slot]:
    exact = _by_folded(answers).get(_bare(text))
    if exact:
        return {exact}
    text = _out_of(answers).sub(r"\1", DASHES.sub("-", text))
    return {
        int(str(match.lastgroup)[1:])
        for match in _pattern(answers).finditer(text)
        if not NEGATION.search(text, 0, match.start())  # "not hate" names no class
    }


def _may_go_on(text: str, answers: tuple[str, ...]) -> bool:
    """Whether a reply was cut where another label goes on: "1" may have become "10"."""
    said = text.lstrip()
    return "\n" not in said and any(
        _fold(said).endswith(_fold(shorter)) and _fold(longer).startswith(_fold(shorter))
        for shorter in answers
        for longer in answers
        if len(longer) > len(shorter)
    )


def _begins_with_label(line: str, answers: tuple[str, ...]) -> bool:
    match = _pattern(answers).search(line)
    if match is None:
        return False
    before = re.sub(r"^\W*label\b", "", line[: match.start()], flags=re.IGNORECASE)
    return re.search(r"\w", before) is None


@lru_cache(maxsize=512)
def _pattern(answers: tuple[str, ...]) -> re.Pattern[str]:
    """Compile the labels, longest first, as whole words; group s3 is the label of slot 3.

    "very negative" must win over "negative", "non-hate" over "hate", "10" over "1"; "4.5" is not
    a label; a lower-case "a" in a sentence is an article, also if "tie" is another label.
    """
    longest_first = sorted(enumerate(answers, 1), key=lambda pair: len(pair[1]), reverse=True)
    are_letters = all(map(_is_letter, answers))
    write = _flexible if are_letters else _worded
    body = "|".join(f"(?P<s{slot}>{write(answer)})" for slot, answer in longest_first)
    flags = 0 if are_letters else re.IGNORECASE
    return re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{body})(?![\w-]|[.,]\d)", flags)


def _is_letter(answer: str) -> bool:
    return len(answer) == 1 and answer.isalpha()


def _worded(answer: str) -> str:
    """The pattern of a label that stands beside words: a letter is a capital, or in brackets."""
    if not _is_letter(answer) or answer.upper() == answer.lower():
        return _flexible(answer)
    upper, lower = map(re.escape, (answer.upper(), answer.lower()))
    return rf"(?-i:{upper}|(?<=[(\['\"`*]){lower}(?=[)\]'\"`*]))"


def _flexible(answer: str) -> str:
    parts = LABEL_GAP.split(DASHES.sub("-", answer))
    return r"[\s_-]+".join(re.escape(part) for part in parts if part) or re.escape(answer)


@lru_cache(maxsize=512)
def _by_folded(answers: tuple[str, ...]) -> dict[str, Slot]:
    return {_fold(answer): slot for slot, answer in enumerate(answers, 1)}


@lru_cache(maxsize=512)
def _out_of(answers: tuple[str, ...]) -> re.Pattern[str]:
    """Match "4/5", "4 stars out of 5" and "4 (on a scale of 1 to 5)"; group 1 is the label."""
    numbers = [int(answer) for answer in answers if answer.isdecimal()] or [1, len(answers)]
    low, high = min(numbers), max(numbers)
    limit = rf"(?:/|out of)\s*{high}\b|\W*(?:on|from) a scale (?:of|from) {low} (?:to|-) {high}\b"
    return re.compile(rf"(\b\d+)\s*(?:stars?)?\s*(?:{limit})", re.IGNORECASE)


def _fold(label: str) -> str:
    return fold_label(DASHES.sub("-", label))


def _bare(text: str) -> str:
    text = re.sub(r"^\W*label\s*[:=]", "", text, flags=re.IGNORECASE)
    return _fold(text.strip(" \t*`'\"“”.!()[]:"))
