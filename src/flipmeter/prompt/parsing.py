"""Reply -> Answer: find the label or number, undo the order, name the fault."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from flipmeter.checks import NUMBER, read_number
from flipmeter.documents import PATTERN_LENGTH, PATTERN_SECONDS
from flipmeter.errors import Problem
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
    plain = _scale_statement_pattern(span).sub(r"\1 ", _BULLET.sub("", text) or text)
    found = _span_ranks((match[0] for match in _NUMBER.finditer(plain)), span)
    if len(found) < 2:
        return found
    said = _span_ranks((match[1] for match in _NAMED.finditer(plain)), span)
    return said if len(said) == 1 else found


def _span_ranks(numbers: Iterable[str], span: Span) -> set[Rank]:
    known = map(read_number, numbers)
    return {rank for number in known if number is not None and (rank := span.rank(number))}


def _is_whole(lines: list[str], span: Span) -> bool:
    match = _NUMBER.search(lines[0])
    if match is None or not _FRONT.match(lines[0][: match.start()]):
        return False
    return len(lines) > 1 or match.end() < len(lines[0].rstrip(".,"))


@lru_cache(maxsize=64)
def _scale_statement_pattern(span: Span) -> re.Pattern[str]:
    """Statements of the scale: "/10", "out of 10", "on a scale from 0 to 10"."""
    low, high = (_scale_end_pattern(end) for end in (span.low, span.high))
    scale = rf"(?:on|from|of)?\s*an?\s+scale\s+(?:of|from)?\s*{low}\s*(?:to|-|–)\s*{high}"
    range_ = rf"(?:from|between)\s+{low}\s+(?:to|and)\s+{high}"
    return re.compile(
        rf"(\d)\s*(?:points?|stars?)?\s*(?:/|out of)\s*{high}(?![\d.,]*\d)|(?:{scale}|{range_})\b",
        re.IGNORECASE,
    )


def _scale_end_pattern(end: float) -> str:
    """A pattern for an end of the scale, with or without decimals: 10, 10.0."""
    text = re.escape(f"{end:g}")
    return rf"{text}(?:[.,]0+)?" if float(end).is_integer() else text


Step = str | int

_STEP = re.compile(r"""\.?([^.\[\]'"$]+)|\[(-?\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_DECODER = json.JSONDecoder()
GROUP = "label"
"""The group of a pattern that is the label, if it has one of that name."""


def extract(text: str, how: Extract) -> list[str]:
    """The texts at the place of the label, each occurrence; nothing if there is none."""
    if how.regex:
        return [_matched_group(match) for match in _pattern_matches(how.regex, text)]
    path = read_path(how.json)
    values = (_value_at_path(document, path) for document in _iter_json_values(text))
    return [said for said in map(_value_as_label, values) if said]


def check(how: Extract) -> None:
    """Refuse a path or a pattern that cannot be read."""
    if bool(how.json) == bool(how.regex):
        raise Problem("answer: set either json (a path such as $.label) or regex (a pattern)")
    if how.json:
        read_path(how.json)
    else:
        _compiled(how.regex)


def _pattern_matches(pattern: str, text: str) -> list[re.Match[str]]:
    """All matches in a reply; a pattern that tries far too many ways is refused."""
    try:
        return list(_compiled(pattern).finditer(text, timeout=PATTERN_SECONDS))
    except TimeoutError:
        raise Problem(
            f"answer: the pattern {pattern!r:.80} searches a reply for more than "
            f"{PATTERN_SECONDS:g} s; write one without repetitions inside repetitions"
        ) from None


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> Any:
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


def _matched_group(match: re.Match[str]) -> str:
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


def _iter_json_values(text: str) -> Iterator[Any]:
    """Yield the JSON values in a text: the whole text, or every object and list inside."""
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    place = 0
    while (start := _next_json_start(text, place)) >= 0:
        try:
            document, place = _DECODER.raw_decode(text, start)
            yield document
        except (ValueError, RecursionError):
            place = start + 1


def _next_json_start(text: str, place: int) -> int:
    found = [at for at in (text.find("{", place), text.find("[", place)) if at >= 0]
    return min(found, default=-1)


def _value_at_path(document: Any, path: tuple[Step, ...]) -> Any:
    """The value at a path, None if there is none."""
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _value_as_label(value: Any) -> str:
    """A value as the text of a label, "" if it cannot be one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_text else ""


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
    slot, fault = _read_slot(reply, prompt, how)
    rank = _rank_of_slot(slot, prompt)
    if reply.error or reply.scores is None or how is not None:
        return Answer(slot, rank, fault, ranks=prompt.ranks)
    weighed = _slot_probabilities(reply.scores, prompt.answers)
    return Answer(slot, rank, fault, *weighed, ranks=prompt.ranks)


def _rank_of_slot(slot: Slot, prompt: Prompt) -> Rank:
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


def _slot_probabilities(
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


def _read_slot(reply: Reply, prompt: Prompt, how: Extract | None) -> tuple[Slot, Fault | None]:
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
        return _read_extracted_label(text, prompt.answers, how, was_cut)
    found = read_slots(text, prompt.answers, only_first_line=was_cut)
    if not found and prompt.labels == "passages":
        found = read_slots(text, PASSAGES, only_first_line=was_cut)
    if len(found) == 1 and not (was_cut and _may_go_on(text, prompt.answers)):
        return found.pop(), None
    return 0, _unread_fault(text, found, was_cut)


def _read_extracted_label(
    text: str, answers: tuple[str, ...], how: Extract, was_cut: bool
) -> tuple[Slot, Fault | None]:
    """Read a label from where it must stand; one that another goes on from may have been cut."""
    said = extract(text, how)
    found = {slot for one in said for slot in read_slots(one, answers)}
    is_whole = not (was_cut and said and text.endswith(said[-1]) and _may_go_on(said[-1], answers))
    if len(found) == 1 and is_whole:
        return found.pop(), None
    return 0, _unread_fault(text, found, was_cut)


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
    return 0, _unread_fault(text, found, was_cut)


def _unread_fault(text: str, found: set[Slot], was_cut: bool) -> Fault:
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
    exact = _by_folded(answers).get(_strip_label_prefix(text))
    if exact:
        return {exact}
    text = _out_of(answers).sub(r"\1", DASHES.sub("-", text))
    return {
        int(str(match.lastgroup)[1:])
        for match in _label_pattern(answers).finditer(text)
        if not NEGATION.search(text, 0, match.start())  # "not hate" names no class
    }


def _may_go_on(text: str, answers: tuple[str, ...]) -> bool:
    """Whether a reply was cut where another label goes on: "1" may have become "10"."""
    said = text.lstrip()
    return "\n" not in said and any(
        _fold_dashes(said).endswith(_fold_dashes(shorter))
        and _fold_dashes(longer).startswith(_fold_dashes(shorter))
        for shorter in answers
        for longer in answers
        if len(longer) > len(shorter)
    )


def _begins_with_label(line: str, answers: tuple[str, ...]) -> bool:
    match = _label_pattern(answers).search(line)
    if match is None:
        return False
    before = re.sub(r"^\W*label\b", "", line[: match.start()], flags=re.IGNORECASE)
    return re.search(r"\w", before) is None


@lru_cache(maxsize=512)
def _label_pattern(answers: tuple[str, ...]) -> re.Pattern[str]:
    """Compile the labels, longest first, as whole words; group s3 is the label of slot 3.

    "very negative" must win over "negative", "non-hate" over "hate", "10" over "1"; "4.5" is not
    a label; a lower-case "a" in a sentence is an article, also if "tie" is another label.
    """
    longest_first = sorted(enumerate(answers, 1), key=lambda pair: len(pair[1]), reverse=True)
    are_letters = all(map(_is_letter, answers))
    write = _flexible_pattern if are_letters else _word_label_pattern
    body = "|".join(f"(?P<s{slot}>{write(answer)})" for slot, answer in longest_first)
    flags = 0 if are_letters else re.IGNORECASE
    return re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{body})(?![\w-]|[.,]\d)", flags)


def _is_letter(answer: str) -> bool:
    return len(answer) == 1 and answer.isalpha()


def _word_label_pattern(answer: str) -> str:
    """The pattern of a label that stands beside words: a letter is a capital, or in brackets."""
    if not _is_letter(answer) or answer.upper() == answer.lower():
        return _flexible_pattern(answer)
    upper, lower = map(re.escape, (answer.upper(), answer.lower()))
    return rf"(?-i:{upper}|(?<=[(\['\"`*]){lower}(?=[)\]'\"`*]))"


def _flexible_pattern(answer: str) -> str:
    parts = LABEL_GAP.split(DASHES.sub("-", answer))
    return r"[\s_-]+".join(re.escape(part) for part in parts if part) or re.escape(answer)


@lru_cache(maxsize=512)
def _by_folded(answers: tuple[str, ...]) -> dict[str, Slot]:
    return {_fold_dashes(answer): slot for slot, answer in enumerate(answers, 1)}


@lru_cache(maxsize=512)
def _out_of(answers: tuple[str, ...]) -> re.Pattern[str]:
    """Match "4/5", "4 stars out of 5" and "4 (on a scale of 1 to 5)"; group 1 is the label."""
    numbers = [int(answer) for answer in answers if answer.isdecimal()] or [1, len(answers)]
    low, high = min(numbers), max(numbers)
    limit = rf"(?:/|out of)\s*{high}\b|\W*(?:on|from) a scale (?:of|from) {low} (?:to|-) {high}\b"
    return re.compile(rf"(\b\d+)\s*(?:stars?)?\s*(?:{limit})", re.IGNORECASE)


def _fold_dashes(label: str) -> str:
    return fold_label(DASHES.sub("-", label))


def _strip_label_prefix(text: str) -> str:
    text = re.sub(r"^\W*label\s*[:=]", "", text, flags=re.IGNORECASE)
    return _fold_dashes(text.strip(" \t*`'\"“”.!()[]:"))
