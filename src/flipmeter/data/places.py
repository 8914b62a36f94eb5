"""Declared fields and class names -> Places: what may change places, and what each class says."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any

from flipmeter.chance import n_shared
from flipmeter.data.labels import Labels, TaskSpec, label_key, shorten
from flipmeter.data.tables import Table
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import PlaceKind, Places, Rank, Scale, Task

Exchange = Sequence[str] | Mapping[str, Any]
"""Fields that may change places, or `{fields: [a, b], labels: {left wins: a}, noun: Response}`."""

Options = str | Sequence[str]
"""The columns with the options of a question, or the one with a list of them."""

_KEYS = ["fields", "labels", "noun"]
_PREFERS = re.compile(
    r"[<>]|\b(better|best|worse|worst|over|beats?|wins?|won|than|preferr?ed|stronger|weaker)\b",
    re.IGNORECASE,
)
_MUCH = re.compile(r"\b(much|far|strongly|significantly|clearly|definitely|a lot)\b", re.IGNORECASE)
_LITTLE = re.compile(r"\b(slightly|somewhat|marginally|a bit|a little)\b", re.IGNORECASE)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_TITLES = {"pair": "Pairwise Comparison", "candidates": "Comparison", "options": "Multiple Choice"}


def read_exchange(exchange: Exchange, scale: Scale, known: Collection[str]) -> Places:
    """Read which fields of an item may change places, and find them in the names of the classes."""
    told: Mapping[str, Any] = (
        exchange if isinstance(exchange, Mapping) else {"fields": list(exchange)}
    )
    for key in told:
        if key not in _KEYS:
            raise Problem(f"exchange has no '{key}'{suggestion(str(key), _KEYS)}")
    fields = tuple(map(str, told.get("fields") or ()))
    _check_fields(fields, known)
    kind: PlaceKind = "pair" if len(fields) == 2 else "candidates"
    noun = str(told.get("noun") or Places.noun)
    if scale.span is not None:  # how much better the first is, or the second
        if len(fields) > 2:
            raise Problem(
                f"exchange: a number can rank two fields, not {len(fields)}; "
                "list the classes: scale: {nominal: [a, b, c]}"
            )
        if told.get("labels"):
            raise Problem("exchange: labels are for classes, but the scale is a range of numbers")
        return Places(fields, (), ("A", "B"), "pair", noun)
    return replace(_find_places(fields, scale, told.get("labels") or {}), kind=kind, noun=noun)


def _check_fields(fields: Sequence[str], known: Collection[str]) -> None:
    if len(fields) < 2 or len(set(fields)) < len(fields):
        raise Problem(f"exchange lists {list(fields)}; it needs two or more fields, each once")
    for name in fields:
        if name not in known or name == "text":
            others = [field for field in known if field != "text"]
            raise Problem(
                f"exchange: no field named '{name}'{suggestion(name, others)} (map the columns: "
                "fields: {a: COLUMN, b: COLUMN})"
            )


def _find_places(fields: tuple[str, ...], scale: Scale, labels: Mapping[object, object]) -> Places:
    """Find the places in the names of the classes, in the first vocabulary in which all is said."""
    told = {label_key(name): str(form) for name, form in labels.items()}
    for name in told:
        if name not in map(label_key, scale.names):
            raise Problem(f"exchange: no class named '{name}'{suggestion(name, [*scale.names])}")
    said = [told.get(label_key(name), name) for name in scale.names]
    for words in _vocabularies(fields):
        forms = tuple(_mark_place_words(name, words) for name in said)
        found = [next(filter(None, map(_any_of([word]).search, said)), None) for word in words]
        spelled = (one[0] if one else word for one, word in zip(found, words, strict=True))
        places = Places(fields, forms, tuple(spelled))
        if _is_closed(places):
            return places
    raise Problem(
        f"cannot tell what the classes {', '.join(scale.names)} mean when {' and '.join(fields)} "
        "change places; assign each class to a field: exchange: "
        f"{{fields: [{', '.join(fields)}], labels: {{CLASS: {fields[0]}, ...}}}}"
    )


def _vocabularies(fields: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what classes may call the places: fields, what differs in them, letters, numbers."""
    yield fields
    parts = _without_start([name[::-1] for name in _without_start(fields)])
    if all(parts):
        yield tuple(part[::-1] for part in parts)
    n = len(fields)
    yield tuple(ascii_lowercase[:n])
    yield tuple(str(place) for place in range(1, n + 1))
    yield _ORDINALS[:n]
    yield ("left", "right")[:n]


def _without_start(names: Sequence[str]) -> list[str]:
    """Cut off what all names begin with."""
    start = min(n_shared(names[0], name) for name in names)
    return [name[start:] for name in names]


def _mark_place_words(name: str, words: tuple[str, ...]) -> str:
    """Put `{p}` for every word of a place."""
    places = {word.casefold(): place for place, word in enumerate(words)}
    return _any_of(words).sub(lambda found: f"{{{places[found[0].casefold()]}}}", name)


def _any_of(words: Sequence[str]) -> re.Pattern[str]:
    """Match words by themselves; letters and digits around one make another word."""
    listed = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])", re.IGNORECASE)


def _is_closed(places: Places) -> bool:
    """Say whether every place is named, and every exchange of two turns classes into classes."""
    n, ranks = len(places.fields), range(1, len(places.forms) + 1)
    named = {place for rank in ranks for place in places.named(rank)}
    if named != set(range(n)) or len(set(places.forms)) < len(places.forms):
        return False
    swaps = [[*range(p), p + 1, p, *range(p + 2, n)] for p in range(n - 1)]
    moved = ((r, places.written(r, [f"{{{p}}}" for p in swap])) for swap in swaps for r in ranks)
    # A class that names all places and prefers none, as "A=B" does, stays as it is.
    even = [
        r for r in ranks if len(places.named(r)) == n and not _PREFERS.search(places.forms[r - 1])
    ]
    return all(form in places.forms or rank in even for rank, form in moved)


def by_lean(places: Places, classes: Sequence[str]) -> list[str]:
    """Classes from what is best for the last field to what is best for the first."""
    rank_of = {name: rank for rank, name in enumerate(classes, 1)}
    return sorted(classes, key=lambda name: lean_of(places, rank_of[name]))


def lean_of(places: Places, rank: Rank) -> float:
    """The preference of a class for the first field: 0 for a tie, more for a stronger grade."""
    own = places.favoured(rank)
    if own is None:
        return 0.0
    middle = (len(places.fields) - 1) / 2
    form = places.forms[rank - 1]
    marks = max(1, sum(form.count(mark) for mark in "<>"))  # "A>>B" is stronger than "A>B"
    grade = 2.0 if _MUCH.search(form) else 0.5 if _LITTLE.search(form) else 1.0
    return (middle - own) * marks * grade


def option_places(fields: Sequence[str], scale: Scale) -> Places:
    """Places whose classes are the fields themselves: the options of a question."""
    if scale.span is not None:
        raise Problem("options: an answer names an option; leave out `scale: {from: ...}`")
    if [label_key(name) for name in scale.names] != [label_key(name) for name in fields]:
        raise Problem(
            f"options: the classes are {', '.join(scale.names)} and the options "
            f"{', '.join(fields)}; leave out `scale`, or map the labels: labels: "
            f"{{1: {fields[0]}}}"
        )
    forms = tuple(f"{{{place}}}" for place in range(len(fields)))
    return Places(tuple(fields), forms, tuple(fields), "options", "")


def with_places(labels: Labels, places: Places, words: TaskSpec | None) -> Labels:
    """Tell a task its places, and word it for them but for what the study words itself."""
    task = labels.task
    if not isinstance(words, Task):
        own = {"title": _TITLES[places.kind], "noun": "Question", "aspect": "quality"}
        said = {**own, **{key: text for key, text in (words or {}).items() if key in own}}
        task = Task(task.scale, said["title"], said["noun"], said["aspect"], task.criteria)
    ranks = dict(labels.ranks)
    if places.kind == "options":
        letters = zip(ascii_lowercase, range(1, len(places.fields) + 1), strict=False)
        ranks = {**dict(letters), **ranks}
    return Labels(replace(task, places=places), ranks)


def spread_options(tables: Sequence[Table], column: str) -> tuple[tuple[str, ...], list[Table]]:
    """Give each option of a column of lists a column of its own, called by a letter."""
    lists = [record.values.get(column) for table in tables for record in table.records]
    longest = max((len(one) for one in lists if isinstance(one, list)), default=0)
    if not 2 <= longest <= len(ascii_lowercase):
        raise Problem(
            f"options: the column '{column}' of {tables[0].file} contains no list of 2 to 26 "
            f"options; "
            "give one column per option: options: [a, b, c, d]"
        )
    names = tuple(ascii_lowercase[:longest])
    for table in tables:
        taken = [name for name in names if name in table.columns]
        if taken:
            raise Problem(f"{table.file} already has a column '{taken[0]}'; rename it")
    spread = []
    for table in tables:
        records = []
        for record in table.records:
            listed = record.values.get(column)
            if isinstance(listed, list):
                texts = (str(one) if isinstance(one, int | float) else one for one in listed)
                own = {**record.values, **dict(zip(names, texts, strict=False))}
                records.append(replace(record, values=own))
            else:
                fault = record.fault or f"the field '{column}' is not a list of options"
                records.append(replace(record, fault=fault))
        spread.append(replace(table, columns=(*table.columns, *names), records=tuple(records)))
    return names, spread


def place_fault(
    values: Mapping[str, object], columns: Mapping[str, str], places: Places, gold: Rank
) -> tuple[str, str] | None:
    """The reason and the message if a row leaves out an option that it needs."""
    told = [values.get(columns[name]) for name in places.fields]
    filled = [one is not None and bool(str(one).strip()) for one in told]
    n_filled = sum(filled)
    if n_filled < 2 or not all(filled[:n_filled]):
        gap = columns[places.fields[filled.index(False)]]
        return "empty", f"the option '{gap}' is empty; only the last options may be, after two"
    if any(place >= n_filled for place in places.named(gold)):
        name = columns[places.fields[places.named(gold)[0]]]
        return "no such option", f"the label names {shorten(name)}, but this option is empty"
    return None
