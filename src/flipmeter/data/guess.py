"""Table -> a guess: which column is the text, which the label, and how its classes are ordered.

Every guess is a list, best first: one entry is certain, several are a question, none means unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase

from flipmeter.data.labels import is_blank, label_key
from flipmeter.data.tables import Table

MOST_CLASSES = 11
"""More different values than on a scale from 0 to 10 are hardly classes."""

_TEXTS = (
    "text sentence review comment body content message tweet post document passage description "
    "utterance feedback ticket statement answer response"
)
_LABELS = (
    "label class gold target y rating star score grade sentiment severity priority quality level "
    "polarity toxicity rank importance urgency difficulty satisfaction relevance"
)
_IDS = "id key uuid guid identifier"
_NUMBER = re.compile(r"[+-]?\d{1,9}(\.\d*)?")
_LADDERS = (
    "never|rarely, seldom|sometimes, occasionally|often, frequently|usually|almost always|always",
    "none, no, info|very low, trivial, minimal|low, minor|medium, moderate, normal|high, major"
    "|very high, severe, urgent|critical, blocker",
    "debug|info|warning, warn|error|critical, fatal",
    "terrible, awful|very bad|bad, poor|fair, average, ok, okay, acceptable, neutral"
    "|good|very good|great, excellent|outstanding, perfect",
    "tiny, xs|small, s|medium, m|large, l|huge, xl|xxl",
    "beginner, novice|intermediate|advanced|expert",
    "no, false|maybe, unsure, partly|yes, true",
    "irrelevant, not relevant|partially relevant, somewhat relevant|relevant|highly relevant",
    "one|two|three|four|five",
)
_GRADES = "f|e|d|c|b|a"
_POLES = (
    "negative positive",
    "disagree agree",
    "dissatisfied satisfied",
    "unsatisfied satisfied",
    "unlikely likely",
    "unhelpful helpful",
    "unsafe safe",
    "unhappy happy",
    "sad happy",
    "bad good",
    "low high",
    "easy hard",
    "easy difficult",
    "weak strong",
    "cold hot",
    "slow fast",
    "small large",
    "bearish bullish",
)
_MIDDLE = (
    "neutral, mixed, medium, moderate, average, undecided, unsure, both, neither, okay, ok, fair, "
    "neither agree nor disagree, no opinion, so so"
)
_STRENGTHS = {
    "extremely": 4.0,
    "very": 3.0,
    "strongly": 3.0,
    "highly": 3.0,
    "mostly": 1.5,
    "somewhat": 0.5,
    "slightly": 0.5,
    "weakly": 0.5,
    "mildly": 0.5,
}
_NOT = re.compile(r"(?:non|not|no|un) ?(.+)")

Places = Mapping[str, float]
"""Classes by where they stand, lowest first; the numbers have no other meaning."""


def guess_text(table: Table, label: str | None = None) -> list[str]:
    """The columns that may hold the texts: by name, else by far the longest values."""
    found = {
        column: values
        for column, values in _iter_columns(table)
        if column != label and _is_read(column, values)
    }
    named = {column: values for column, values in found.items() if _is_called(column, _TEXTS)}
    if len(named) == 1:
        return list(named)
    lengths = {column: _mean_length(values) for column, values in (named or found).items()}
    longest = sorted(lengths, key=lambda column: -lengths[column])
    if len(longest) > 1 and lengths[longest[0]] >= 2 * lengths[longest[1]]:
        return longest[:1]
    return longest


def guess_label(table: Table, text: str | None = None) -> list[str]:
    """The columns that may hold the labels: few values, an order, a telling name."""
    found = {
        column: values
        for column, values in _iter_columns(table)
        if column != text and 2 <= len(_distinct_labels(values)) <= MOST_CLASSES
    }
    named = [column for column in found if _is_called(column, _LABELS)]
    repeated = [
        c for c, values in found.items() if 2 * len(_distinct_labels(values)) <= len(values)
    ]
    possible = named or repeated
    ordered = [column for column in possible if guess_order(_distinct_labels(found[column]))]
    return ordered if len(ordered) == 1 else possible


def label_names(table: Table) -> list[str]:
    """Columns that are called like labels and not empty."""
    return [
        column for column, values in _iter_columns(table) if values and _is_called(column, _LABELS)
    ]


def guess_id(table: Table, taken: Sequence[str]) -> str | None:
    """The column that names every row, if its name says so and no name comes twice."""
    n_rows = sum(not record.fault for record in table.records)
    found = [
        column
        for column, values in _iter_columns(table)
        if column not in taken
        and _is_called(column, _IDS)
        and all(isinstance(value, str | int) for value in values)
        and len({str(value) for value in values}) == len(values) == n_rows
    ]
    return min(found, key=len, default=None)


def usual_classes(table: Table, column: str) -> list[object]:
    """The different values of a column, without typing errors and strays: rare beside the others.

    Values whose order is known are all kept, however rare.
    """
    found = classes_in(table, column)
    if guess_order(found):
        return found
    counts = Counter(map(label_key, _column_values(table, column)))
    words = [word for word in counts if len(word) >= SHORTEST_WORD]
    errors = {
        word
        for word in words
        if not is_number(word)
        for other in words
        if counts[other] >= ODD * counts[word] and _is_one_edit(word, other)
    }
    kept = [value for value in found if label_key(value) not in errors]
    return next(_without_strays(kept, counts), kept)


def _without_strays(values: Sequence[object], counts: Mapping[str, int]) -> Iterator[list[object]]:
    """Yield values whose order is known once the rarest of them are left out, one by one."""
    most = max(counts.values(), default=0)
    rare = sorted(values, key=lambda value: counts[label_key(value)])
    rare = [value for value in rare if ODD * counts[label_key(value)] <= most]
    for n_left_out in range(len(rare) + 1):
        rest = [value for value in values if value not in rare[:n_left_out]]
        if len(rest) > 1 and guess_order(rest):
            yield rest


ODD = 5
"""Smallest ratio between the counts of a class and of a value that is not one."""
SHORTEST_WORD = 4


def _is_one_edit(word: str, other: str) -> bool:
    """Whether one letter more, less or other, or two letters in the other order, make the other."""
    while word and other and word[0] == other[0]:
        word, other = word[1:], other[1:]
    while word and other and word[-1] == other[-1]:
        word, other = word[:-1], other[:-1]
    is_letter = max(len(word), len(other)) == 1
    return is_letter or (len(word) == 2 and word == other[::-1])


def classes_in(table: Table, column: str) -> list[object]:
    """The different values of a column, as they are first written."""
    return _distinct_labels(_column_values(table, column))


def guess_order(values: Sequence[object]) -> list[object]:
    """Classes lowest first; empty if their words show no order."""
    keys = {}
    for value in values:
        key = label_key(value)
        words = " ".join(re.split(r"[\s_-]+", key)).strip()
        keys[key if _NUMBER.fullmatch(key) else words or key] = value
    for read in (_numeric_places, _on_a_ladder, _between_poles, _negated_pair_places):
        places = read(list(keys))
        if places and len({places[key] for key in keys}) == len(values):
            return [keys[key] for key in sorted(keys, key=lambda key: places[key])]
    return []


def is_number(value: object) -> bool:
    """Say whether a label is a number, or a number of stars."""
    return _NUMBER.fullmatch(label_key(value)) is not None


def is_bare_number(value: object) -> bool:
    """Say whether a label is a number and nothing else: not a number of stars."""
    return _NUMBER.fullmatch(str(value).strip()) is not None


_TWINS = re.compile(r"(?P<stem>.*?)[\s_-]*(?P<which>\d|[a-h]|first|second|left|right)")
_TIES = {"tie", "draw", "both", "neither", "equal"}
"""Common labels of a pair that name neither answer."""
MOST_APART = 2.0
"""Largest ratio between the text lengths of two twin columns."""


def guess_exchangeable(texts: Mapping[str, Sequence[object]]) -> list[str]:
    """Columns that look like answers a judge compares: names that differ in a letter or a number.

    Their texts are of about the same length. Nothing where there are no such columns.
    """
    read = {column: values for column, values in texts.items() if values}
    for columns in _twin_columns(name for name, values in read.items() if _is_read(name, values)):
        lengths = [_mean_length(texts[column]) for column in columns]
        if max(lengths) <= MOST_APART * min(lengths):
            return columns
    return []


def _twin_columns(columns: Iterable[str]) -> Iterator[list[str]]:
    """Groups of columns whose names differ in a letter, a number or a side."""
    by_stem: dict[str, list[str]] = {}
    for column in columns:
        if named := _TWINS.fullmatch(column.casefold()):
            by_stem.setdefault(named["stem"], []).append(column)
    return (group for group in by_stem.values() if len(group) > 1)


def _columns_named_by_values(texts: Mapping[str, Sequence[object]]) -> list[str]:
    """Columns that the values of another name: three or more twins, or texts, ties apart."""
    keys = {column: {*map(label_key, _distinct_labels(values))} for column, values in texts.items()}
    for group in _twin_columns(texts):
        names = {*map(label_key, group), *ascii_lowercase[: len(group)]}
        others = (keys[column] for column in texts if column not in group)
        if len(group) > 2 and any(len(said) > 1 and said <= names for said in others):
            return group
    named = {label_key(column): column for column in texts}
    for column, said in keys.items():
        found = [named[key] for key in named if key in said - _TIES and named[key] != column]
        if 2 <= len(said - _TIES) == len(found) and all(_is_read(one, texts[one]) for one in found):
            return found
    return []


def is_text_column(table: Table, column: str) -> bool:
    """Whether a column holds texts for people to read."""
    values = _column_values(table, column)
    return bool(values) and _is_read(column, values)


def exchangeable_columns(table: Table) -> list[str]:
    """Columns of a table that look like answers a judge compares, or options of a question."""
    texts = dict(_iter_columns(table))
    return guess_exchangeable(texts) or _columns_named_by_values(texts)


# --- columns ----------------------------------------------------------------------------------


def _iter_columns(table: Table) -> Iterator[tuple[str, list[object]]]:
    """Yield every column with its values."""
    return ((column, _column_values(table, column)) for column in table.columns)


def _column_values(table: Table, column: str) -> list[object]:
    """The values of a column, without empty cells and unreadable rows."""
    values = (record.values.get(column) for record in table.records)
    return [v for v in values if v is not None and not (isinstance(v, str) and is_blank(v))]


def _distinct_labels(values: Sequence[object]) -> list[object]:
    found: dict[str, object] = {}
    for value in values:
        if isinstance(value, str | int | float):
            found.setdefault(label_key(value), value)
    return list(found.values())


def _is_read(column: str, values: Sequence[object]) -> bool:
    """Say whether a column holds texts: not numbers, dates or codes, whatever its name."""
    texts = [value for value in values if isinstance(value, str)]
    if not texts or 2 * sum(map(is_number, texts)) >= len(values):
        return False
    n_like_text = sum(" " in text.strip() or not text.isascii() for text in texts)
    is_varied = len(set(texts)) > min(MOST_CLASSES, len(texts) / 2)
    return _is_called(column, _TEXTS) or (3 * n_like_text >= len(texts) and is_varied)


def _is_called(column: str, names: str) -> bool:
    """Say whether a column's name has one of some words in it, in the plural too."""
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column).lower())
    return not {*words, *(word.removesuffix("s") for word in words)}.isdisjoint(names.split())


def _mean_length(values: Sequence[object]) -> float:
    return sum(len(str(value)) for value in values) / len(values)


# --- orders -----------------------------------------------------------------------------------


def _numeric_places(keys: Sequence[str]) -> Places | None:
    if not all(_NUMBER.fullmatch(key) for key in keys):
        return None
    return {key: float(key) for key in keys}


def _rung_places(ladder: str) -> Places:
    rungs = ladder.split("|")
    return {word: place for place, rung in enumerate(rungs) for word in rung.split(", ")}


def _on_a_ladder(keys: Sequence[str]) -> Places | None:
    """Read school grades too. A to D alone may be the options of a question, without order."""
    ladders = map(_rung_places, (*_LADDERS, *([_GRADES] if "f" in keys else [])))
    return next((ladder for ladder in ladders if ladder.keys() >= set(keys)), None)


def _between_poles(keys: Sequence[str]) -> Places | None:
    for low, high in (poles.split() for poles in _POLES):
        places = {key: _distance_from_middle(key, low, high) for key in keys}
        known = {key: place for key, place in places.items() if place is not None}
        if len(known) == len(keys) and any(known.values()):
            return known
    return None


def _distance_from_middle(key: str, low: str, high: str) -> float | None:
    """The distance of a class from the middle: "very negative" is at -3."""
    if key in _MIDDLE.split(", "):
        return 0.0
    strength, _, rest = key.rpartition(" ")
    if rest not in (low, high) or (strength and strength not in _STRENGTHS):
        return None
    away = _STRENGTHS.get(strength, 1.0)
    return away if rest == high else -away


def _negated_pair_places(keys: Sequence[str]) -> Places | None:
    """Read "not toxic" and "toxic"."""
    for key in keys:
        found = _NOT.fullmatch(key)
        if found and len(keys) == 2 and found[1] in keys:
            return {key: 0.0, found[1]: 1.0}
    return None
