"""Raw label -> Rank: words, numbers and stars as places on a scale; scales that are ranges."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flipmeter.checks import read_number
from flipmeter.errors import Problem
from flipmeter.registry import suggestion
from flipmeter.types import NO_CLASS, Item, Rank, Scale, Span, Task, canonical_json

_INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")


def is_blank(text: str) -> bool:
    """Say whether a reader would see nothing: white space, control and zero-width characters."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def content_key(item: Item) -> str:
    """The content of an item; items share it if they differ only in case and white space."""
    return canonical_json(
        {name: " ".join(value.casefold().split()) for name, value in item.fields.items()}
    )


def content_digest(item: Item) -> bytes:
    """16 bytes for an item's content: what is kept of every item of a large file is small."""
    return hashlib.sha256(content_key(item).encode()).digest()[:16]


def item_digest(item: Item) -> str:
    """12 hex digits of the SHA-256 of an item's content, which tell items of a dataset apart."""
    return content_digest(item).hex()[:12]


def unit_digests(item: Item) -> set[str]:
    """Digests of an item and of its cluster: what shares one with it is not independent of it."""
    cluster = hashlib.sha256(f"cluster {item.cluster}".encode()).hexdigest()[:12]
    return {item_digest(item), *([cluster] if item.cluster else [])}


def dataset_digest(scale: Scale, pool: Sequence[Item], test: Sequence[Item]) -> str:
    """The SHA-256 of the classes and of all items' fields and gold, in order; not of ids."""
    digest = hashlib.sha256(canonical_json(list(scale.names)).encode())
    if scale.nominal:
        digest.update(b"\nnominal")
    if scale.span is not None:
        digest.update(f"\nfrom {scale.span.low} to {scale.span.high}".encode())
    for name, items in (("pool", pool), ("test", test)):
        digest.update(f"\n{name} {len(items)}".encode())
        for item in items:
            digest.update(b"\n" + canonical_json([dict(item.fields), item.gold]).encode())
    return digest.hexdigest()


FROM, TO, WITHIN = "from", "to", "within"
_KEYS = [FROM, TO, WITHIN]


def read_span(scale: object) -> Span | None:
    """The range of a scale that is one, None for a scale of classes."""
    if isinstance(scale, Scale):
        return scale.span
    if not isinstance(scale, Mapping) or FROM not in scale:
        return None
    for key in scale:
        if key not in _KEYS:
            raise Problem(f"a scale with `from` has no '{key}'{suggestion(str(key), _KEYS)}")
    if TO not in scale:
        raise Problem(f"the scale begins at {scale[FROM]!r} and has no end; add `to:`")
    return Span(
        _read_scale_end(scale, FROM), _read_scale_end(scale, TO), _read_scale_end(scale, WITHIN)
    )


def _read_scale_end(scale: Mapping[Any, Any], key: str) -> float:
    found = read_number(scale.get(key) or 0)
    if found is None:
        raise Problem(f"scale: {key} is {scale[key]!r:.60}; it must be a number")
    return found


def with_tolerance(scale: object, within: object) -> dict[Any, Any]:
    """A range with what counts as the same, where a dataset names that beside its scale."""
    span = read_span(scale)
    if span is None:
        raise Problem(
            "`within` is a tolerance for scores, but the scale has classes; write "
            "scale: {from: 0, to: 10}"
        )
    return {**span_spec(span), WITHIN: within}


def span_spec(span: Span) -> dict[Any, Any]:
    """A range as a study file writes it."""
    return {FROM: span.low, TO: span.high, WITHIN: span.within}


def parse_span(text: str) -> dict[str, float] | None:
    """The range that "0..10" on a command line means, None for names of classes."""
    low, dots, high = text.partition("..")
    ends = read_number(low), read_number(high.strip("."))
    if not dots or ends[0] is None or ends[1] is None:
        return None
    return {FROM: ends[0], TO: ends[1]}


ScaleSpec = Scale | Sequence[object] | Mapping[object, object] | str
NOMINAL = "nominal"
"""Classes without an order: `scale: nominal`, or `scale: {nominal: [red, blue]}`."""
TaskSpec = Task | Mapping[str, str]

_WHOLE = re.compile(r"[+-]?\d{1,9}(\.0*)?")
_STARS = re.compile(r"(\d{1,2}(?:\.0*)?)[ -]?stars?")
_GLYPHS = re.compile(r"([★⭐]+)[☆✩]*")
_TASK_KEYS = ["title", "noun", "aspect", "low", "high"]
MOST_NOMINAL = 1000
"""More labels than these are texts or numbers, not the names of classes."""
_PLAIN_COLUMNS = ("label", "labels", "class", "gold", "target", "y")
_ANY_SPAN = Scale((), "low", "high", span=Span(0, 1))


@dataclass(frozen=True)
class Labels:
    """A task's scale together with every spelling of a label that stands for one of its classes.

    On a range of numbers a label is its number.
    """

    task: Task
    ranks: Mapping[str, Rank]

    def rank(self, raw: object) -> Rank:
        """The rank that a raw value means, or NO_CLASS."""
        span = self.task.scale.span
        if span is None:
            return self.ranks.get(label_key(raw), NO_CLASS)
        number = read_number(raw)
        return NO_CLASS if number is None else span.rank(number)

    def complaint(self, raw: object) -> str:
        """The message for a raw value that is not a class, with the way out."""
        names = list(self.task.scale.names)
        text = f"the label {shorten(raw)} is not on the scale"
        if (span := self.task.scale.span) is not None:
            return f"{text}; it must be a number from {span.low:g} to {span.high:g}"
        if label_key(raw) == "0" and "1" in self.ranks:
            pairs = ", ".join(f"{place}: {name}" for place, name in enumerate(names))
            return f"{text}; if labels count from 0, write scale: {{{pairs}}}"
        return f"{text}{suggestion(label_key(raw), names)} (or map it: labels: {{value: class}})"


def read_labels(
    scale: ScaleSpec | None,
    labels: Mapping[object, object] | None = None,
    task: TaskSpec | None = None,
    column: str = "label",
    found: Sequence[object] = (),
) -> Labels:
    """Build the reader of a file's labels from a scale and, where values need it, a mapping.

    A scale is a list of names, lowest first, or `{value: name}` in that order; classes without an
    order are `{nominal: [...]}`, or `nominal` for those `found` in the file; decimal scores have
    `{from: 0, to: 10, within: 0.5}`. A name wins over a
    rank: with the scale 0..10 the label 1 is the class named "1". Whole numbers count as ranks
    1..M only where no name is a number and there is no mapping.
    """
    spelled = dict(labels or {})
    if scale is None and isinstance(task, Task):
        scale = task.scale
    if scale is None:
        raise Problem(
            "no scale given; list the classes from lowest to highest: scale: [low, high], or "
            "scale: nominal if they have no order"
        )
    if (span := read_span(scale)) is not None:
        if spelled:
            raise Problem("labels maps values to classes, but the scale is a range of numbers")
        given = scale if isinstance(scale, Scale) else Scale((), "low", "high", span=span)
        return Labels(make_task(given, task, column), {})
    scale, is_nominal = _nominal_classes(scale, found, spelled)
    values: tuple[str, ...] = ()
    if isinstance(scale, Mapping):
        spelled = {**scale, **spelled}
        values = tuple(_class_name(value) for value in scale)
        scale = list(scale.values())
    named = make_task(scale, task, column)
    own = values if values != named.scale.names else ()
    told = {"values": own or named.scale.values, "nominal": is_nominal or named.scale.nominal}
    named = replace(named, scale=replace(named.scale, **told))  # type: ignore[arg-type]
    ranks = {label_key(name): rank for rank, name in enumerate(named.scale.names, start=1)}
    counts = not any(_WHOLE.fullmatch(name) for name in ranks)
    numbers = {str(rank): rank for rank in named.scale.ranks} if counts else {}
    targets = {**numbers, **ranks}
    if not spelled:
        return Labels(named, targets)
    mapped = {label_key(raw): _target_rank(raw, value, targets) for raw, value in spelled.items()}
    return Labels(named, {**ranks, **mapped})


def _nominal_classes(
    scale: ScaleSpec, found: Sequence[object], spelled: Mapping[object, object]
) -> tuple[ScaleSpec, bool]:
    """The classes of a scale that says it is nominal, and whether it does."""
    if isinstance(scale, Mapping) and [*scale] == [NOMINAL]:
        named = scale[NOMINAL]
        if isinstance(named, Mapping | Sequence) and not isinstance(named, str):
            return named, True
    if scale != NOMINAL:
        return scale, False
    mapped = {label_key(raw): name for raw, name in spelled.items()}
    seen = {label_key(raw): raw for raw in reversed(found) if raw is not None and str(raw).strip()}
    names = {label_key(mapped.get(key, raw)): mapped.get(key, raw) for key, raw in seen.items()}
    if len(names) > MOST_NOMINAL:
        raise Problem(
            f"scale: nominal treats every label as a class, and there are {len(names):,} of them; "
            f"list the classes: scale: {{nominal: [{shorten(next(iter(names.values())))}, ...]}}"
        )
    if len(names) < 2:
        raise Problem(
            f"scale: nominal found {len(names)} class in the labels; two are needed, or list "
            "them: scale: {nominal: [red, green]}"
        )
    numbers = {key: int(key) for key in names if _WHOLE.fullmatch(key)}
    order = sorted(names, key=lambda key: (numbers.get(key, MOST_NOMINAL), key))
    return [names[key] for key in order], True


def _target_rank(raw: object, value: object, targets: Mapping[str, Rank]) -> Rank:
    if label_key(value) not in targets:
        raise Problem(
            f"labels maps {shorten(raw)} to {shorten(value)}, which is not a class"
            f"{suggestion(label_key(value), list(targets))}"
        )
    return targets[label_key(value)]


def label_key(raw: object) -> str:
    """One spelling for equal labels: " High", "high"; 4, 4.0, "4 stars", "★★★★"."""
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    text = " ".join(str(raw).casefold().split()).replace("\ufe0f", "")
    if stars := _GLYPHS.fullmatch(text):
        return str(len(stars[1]))
    if stars := _STARS.fullmatch(text):
        text = stars[1]
    return str(int(text.partition(".")[0])) if _WHOLE.fullmatch(text) else text


def make_task(scale: ScaleSpec, task: TaskSpec | None = None, column: str = "label") -> Task:
    """The vocabulary of a prompt; defaults follow from the scale and the column."""
    given = scale if isinstance(scale, Scale) else None
    if given is None:
        if isinstance(scale, str | bytes) or not isinstance(scale, Sequence):
            raise Problem(f"the scale is {shorten(scale)}; list the classes from lowest to highest")
        names = Scale(tuple(map(_class_name, scale))).names
    else:
        names = given.names
    if isinstance(task, Task):
        if task.scale.names != names:
            raise Problem(f"the task is about {list(task.scale.names)}, the scale is {list(names)}")
        return task
    words: dict[str, Any] = dict(task or {})
    for key, value in words.items():
        if key not in _TASK_KEYS:
            raise Problem(f"a task has no '{key}'{suggestion(key, _TASK_KEYS)}")
        if not isinstance(value, str) or not value.strip():
            raise Problem(f"task: {key} is {shorten(value)}; it must be text")
    default = _default_task(names, column)
    poles = default.scale if given is None else given
    poles = replace(poles, low=words.pop("low", poles.low), high=words.pop("high", poles.high))
    return replace(default, scale=poles, **words)


def _default_task(names: tuple[str, ...], column: str) -> Task:
    """Word a task after its classes: sentiment where they say so, else the column's name."""
    if {"negative", "positive"} <= {name.casefold() for name in names}:
        return Task(Scale(names))
    aspect = column.replace("_", " ").strip().lower()
    is_plain = aspect in _PLAIN_COLUMNS or not aspect
    if not names:
        about = "quality" if is_plain or aspect in ("score", "rating", "grade") else aspect
        return Task(_ANY_SPAN, f"{about.title()} Rating", "Text", about)
    has_numbers = any(_WHOLE.fullmatch(name) for name in names)
    low, high = ("low", "high") if has_numbers else (names[0], names[-1])
    if is_plain:
        return Task(Scale(names, low, high), "Text Classification", "Text", "class")
    return Task(Scale(names, low, high), f"{aspect.title()} Classification", "Text", aspect)


def _class_name(value: object) -> str:
    if isinstance(value, bool):
        raise Problem(
            f"the scale contains the value {value}; YAML reads no, yes, on and off as false and "
            f"true: "
            "put such a class name in quotes"
        )
    if not isinstance(value, str | int | float):
        raise Problem(f"the scale contains {shorten(value)}; a class name must be text or a number")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def shorten(value: object, width: int = 60) -> str:
    """A value as an error shows it: quoted and never longer than a line."""
    shown = repr(value)
    return shown if len(shown) <= width else f"{shown[: width - 4]}...{shown[-1]}"


# --- frequencies of classes -------------------------------------------------------------------


def read_weights(weights: object, scale: Scale, source: str) -> tuple[float, ...]:
    """Frequencies of all classes of a scale, lowest first, from a mapping; they add up to 1."""
    where = f"weights of {source}"
    if scale.span is not None:
        raise Problem(f"{where}: classes have frequencies, but the scale is a range of numbers")
    if not isinstance(weights, Mapping):
        raise Problem(f"{where}: {weights!r} is not a mapping; write {{{scale.name(1)}: 0.9, ...}}")
    by_name = {str(name): value for name, value in weights.items()}
    if len(by_name) < len(weights):
        raise Problem(f"{where}: a class has two weights; list each class once")
    for name, value in by_name.items():
        if name not in scale.names:
            raise Problem(f"{where}: no class named '{name}'{suggestion(name, list(scale.names))}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Problem(f"{where}: '{name}' has {value!r}; a weight must be 0 or more")
        if not (math.isfinite(value) and value >= 0):
            raise Problem(f"{where}: '{name}' has {value}; a weight must be finite and 0 or more")
    missing = [name for name in scale.names if name not in by_name]
    if missing:
        raise Problem(f"{where}: no weight for '{missing[0]}'; write 0 if it does not occur")
    total = float(sum(by_name.values()))
    if not 0 < total < math.inf:
        raise Problem(f"{where}: they add up to {total:g}; give one class a weight above 0")
    return tuple(by_name[name] / total for name in scale.names)
