"""The nouns. Every stage takes some of these and gives another: read this file first.

data -> probe -> prompt -> plan -> model -> parse -> decide -> measure -> report
Item    View     Prompt    Request Reply    Answer   Decision  Estimate   page, tables
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from flipmeter.checks import once
from flipmeter.errors import Problem

Rank = int
"""A class by its place on the scale, 1 (lowest) to M, or a decimal score by its step on the range
(`Span`); 0 is "no class"."""

Slot = int
"""A place in the list that a prompt shows, 1 (first) to M; 0 is "no slot"."""

NO_CLASS: Rank = 0
NO_LABELS = "no labels"
STOPPED = "stopped"
"""The code of the remark that a run was stopped before its end."""
"""Reason why a score is undefined for items without a gold class."""

ALPHA = 0.05
"""The error rate of tests and bounds, unless set otherwise."""
LEVEL = 1 - ALPHA
"""The level of an interval."""

JUDGED = ("measured", "by construction")
"""The subject of a verdict: counted flips, and flips that a pipeline rules out."""
UNFINISHED = "not everything was rated"
"""Said of a run that stopped early, before its reason."""

Role = Literal["test", "demo", "calibration", "null"]
Fault = Literal["unparsed", "ambiguous", "refused", "truncated", "error"]
FAULTS: tuple[Fault, ...] = ("unparsed", "ambiguous", "refused", "truncated", "error")
Policy = Literal["complete", "strict", "bounds"]
Mode = Literal["recommended", "paper"]
Placement = Literal["before", "after", "split"]
Layout = Literal["cued", "paper"]
Interface = Literal["chat", "completions", "responses"]
Speaker = Literal["system", "user", "assistant"]
PlaceKind = Literal["pair", "candidates", "options"]
"""Exchangeable parts of an item: two answers, more than two, or the options of a question."""
LabelKind = Literal["identifiers", "words", "flipped words", "passages", "numbers"]
"""The kind of choices: labels (identifiers or words), two passages, or numbers. Flipped words label
demonstrations of the mirrored class, on purpose."""
LISTLESS: frozenset[LabelKind] = frozenset({"passages", "numbers"})
"""The choices of a prompt without a label list."""


CacheMark = Literal["none", "key", "breakpoint", "cache_control"]
"""The control of a vendor's prefix cache: none, a key shared by all requests with a head (OpenAI),
or a mark at the end of the head (OpenAI since gpt-5.6, Anthropic)."""
CHARS_PER_TOKEN = 4.0
"""A rule of thumb for English, where no reply of a model is stored."""


Corrections = tuple[tuple[str, str | None], ...]
"""Corrections to the fields of a body: another name, or None to leave one out."""


def canonical_json(content: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(content)


_CANONICAL = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)


_SIGNED = r"-(?!\d)|(?<=\w)-"
LABEL_GAP = re.compile(rf"(?:[\s_]|{_SIGNED})+")
"""Characters between the words of a label; the sign of a number is not a gap."""


def fold_label(name: str) -> str:
    """One spelling for labels that differ in case and in the gaps between words."""
    return LABEL_GAP.sub(" ", name).strip().casefold()


@dataclass(frozen=True)
class Span:
    """Numbers from `low` to `high`; scores at most `within` apart count as the same.

    A score is held as a rank like any class: the number of its step, from 1. Steps are decimal and
    about a ten-millionth of the range, so that "at most 0.5 apart" is a question of whole numbers.
    """

    low: float
    high: float
    within: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise Problem(f"a scale from {self.low:g} to {self.high:g} has no numbers between them")
        if not 0 <= self.within < self.high - self.low:
            raise Problem(
                f"within is {self.within:g}; it must be at least 0 and below "
                f"{self.high - self.low:g}, the length of the scale"
            )

    @cached_property
    def step(self) -> float:
        """The distance between two ranks, in the units of the scale."""
        return float(10.0**-self._digits)

    @cached_property
    def _digits(self) -> int:
        return 7 - math.floor(math.log10(self.high - self.low))

    @property
    def n_ranks(self) -> int:
        return round((self.high - self.low) / self.step) + 1

    @property
    def tolerance(self) -> int:
        """Tolerance in ranks within which two scores are the same."""
        return round(self.within / self.step)

    def rank(self, score: float) -> Rank:
        """The rank of a score, NO_CLASS for one outside the scale."""
        if not self.low <= score <= self.high:
            return NO_CLASS
        return round((score - self.low) / self.step) + 1

    def score(self, rank: Rank) -> float:
        return round(self.low + (rank - 1) * self.step, self._digits + 2) + 0.0

    def name(self, rank: Rank) -> str:
        """A score as it is written."""
        return f"{self.score(rank):.10g}"

    def mirrored(self, rank: Rank) -> Rank:
        """The score as far from the other end of the scale."""
        return self.n_ranks + 1 - rank if rank else NO_CLASS


@dataclass(frozen=True)
class Scale:
    """Class names, lowest first, with the words for its two poles; `nominal` ones have no order.

    `values` are what data and raters write for the classes, where these are not the names: 0, 1, 2
    for wrong, partly, right. A scale of decimal scores has a `span` instead of names.
    """

    names: tuple[str, ...]
    low: str = "negative"
    high: str = "positive"
    nominal: bool = False
    values: tuple[str, ...] = ()
    span: Span | None = None

    def __post_init__(self) -> None:
        if self.span is not None:
            if self.names or self.values or self.nominal:
                raise Problem("a scale has the names of classes or a range of numbers, not both")
            return
        if len(self.names) < 2:
            raise Problem(f"a scale needs at least two classes; got {list(self.names)}")
        folded = [fold_label(name) for name in self.names]
        written = [fold_label(value) for value in self.values]
        for words in (folded, written):
            repeated = sorted({word for word in words if words.count(word) > 1})
            if repeated:
                raise Problem(
                    f"the scale lists {repeated} more than once; give each class its own name"
                )
        if self.values and len(self.values) != len(self.names):
            raise Problem(f"the scale has {len(self.names)} names and {len(self.values)} values")
        if not all(folded):
            raise Problem("a class name in the scale is empty; every class needs a name")

    def __len__(self) -> int:
        return len(self.names)

    def __bool__(self) -> bool:
        return True  # also without names

    @property
    def ranks(self) -> range:
        return range(1, len(self.names) + 1)

    @property
    def n_ranks(self) -> int:
        """Number of ranks: of classes, or of a range's steps."""
        return len(self.names) if self.span is None else self.span.n_ranks

    def name(self, rank: Rank) -> str:
        """A class by its name, a score by its number."""
        if self.span is not None:
            return self.span.name(rank)
        return self.names[rank - 1]

    def value(self, rank: Rank) -> str:
        return self.values[rank - 1] if self.values else self.name(rank)


_PLACE = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class Places:
    """Fields of an item that may change places, and what each class says about them.

    `forms[rank - 1]` is the name of a class with `{p}` where it names place p: "{0}", "{1}>>{0}". A
    class whose form with moved places is not a class ("tie", "{0}={1}") keeps its meaning. `words`
    are the names of the places in classes, `noun` is their name in a prompt.
    """

    fields: tuple[str, ...]
    forms: tuple[str, ...]
    words: tuple[str, ...]
    kind: PlaceKind = "pair"
    noun: str = "Answer"

    def n_filled(self, item: Item) -> int:
        """Number of places that an item fills; questions may differ in their number of options."""
        if item.role == "null":  # a text without content stands in all of them
            return len(self.fields)
        return sum(bool(item.fields.get(name)) for name in self.fields)

    def named(self, rank: Rank) -> tuple[int, ...]:
        """The places that a class names, in the order of its name."""
        return tuple(int(place) for place in _PLACE.findall(self.forms[rank - 1]))

    def written(self, rank: Rank, words: Sequence[str]) -> str:
        """The form of a class with a word for each place."""
        return _PLACE.sub(lambda place: words[int(place[1])], self.forms[rank - 1])

    def favoured(self, rank: Rank) -> int | None:
        """The place that a class chooses, None where it prefers none."""
        named = self.named(rank)
        if len(named) == 1:
            return named[0]
        is_even = not named or self.meanings((1, 0))[rank - 1] == rank
        return None if is_even else named[0]

    def offered(self, n_filled: int) -> tuple[Rank, ...]:
        """The classes that name no place beyond those that an item fills."""
        ranks = range(1, len(self.forms) + 1)
        return tuple(rank for rank in ranks if max(self.named(rank), default=-1) < n_filled)

    def meanings(self, order: Sequence[int]) -> tuple[Rank, ...]:
        """The meaning of each class if place p shows field `order[p]`."""
        places = [*order, *range(len(order), len(self.fields))]
        moved = [f"{{{place}}}" for place in places]
        ranks = {form: rank for rank, form in enumerate(self.forms, 1)}
        return tuple(ranks.get(self.written(own, moved), own) for own in ranks.values())


@dataclass(frozen=True)
class Task:
    """The vocabulary of a prompt: what is done, to what, by which aspect, on which scale.

    `criteria` are those of a judge's rubric, in the order in which it is written. `places` are the
    fields that may be exchanged, None where an item has no such fields.
    """

    scale: Scale
    title: str = "Sentiment Classification"
    noun: str = "Sentence"
    aspect: str = "sentiment"
    criteria: tuple[str, ...] = ()
    places: Places | None = None

    def favoured(self, rank: Rank) -> int | None:
        """The place that an answer chooses, None where it prefers none.

        On a range of numbers the upper half is for the first field, the lower half for the second.
        """
        if self.places is None or not rank:
            return None
        if self.scale.span is None:
            return self.places.favoured(rank)
        from_middle = 2 * rank - self.scale.span.n_ranks - 1
        return None if not from_middle else int(from_middle < 0)


def joined(fields: Mapping[str, str]) -> str:
    """The text of an item that has none of its own: its fields with their names."""
    return "\n\n".join(f"{name}: {value}" for name, value in fields.items())


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to be rated. `text` is the main field; a judge has a question and an answer.

    Items of one `cluster` are not independent of each other; without one an item is its own.
    `systems` wrote the fields that may change places, in the order of the fields. `columns` are
    never shown to a rater: results are sliced by them.
    """

    id: str
    fields: Mapping[str, str] = field(hash=False)
    gold: Rank | None = None
    role: Role = "test"
    cluster: str = ""
    systems: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        return self.fields["text"]

    @property
    def rank(self) -> Rank:
        """The class of a demonstration, which must have one."""
        assert self.gold is not None, f"demonstration {self.id} has no class"
        return self.gold

    def exchanged(self, places: Places, order: Sequence[int]) -> Item:
        """The item as it is shown where place p has field `order[p]`; its text follows."""
        names = places.fields
        if self.role == "null":
            return self
        moved = {names[p]: self.fields[names[field]] for p, field in enumerate(order)}
        others = {name: value for name, value in self.fields.items() if name != "text"}
        shown = {**self.fields, **moved}
        if self.fields.get("text") == joined(others):
            shown["text"] = joined({**others, **moved})
        return replace(self, fields=shown)


@dataclass(frozen=True)
class Dataset:
    """Items with a task. `pool` gives the demonstrations, `test` is what is rated.

    `left_out` counts the rows that were dropped while reading or must not be sampled, by reason.
    `demos` are shown to every seed as they are, in this order; None draws them from the pool.
    `weights` are the frequencies of the classes in production, lowest first; empty if not known.
    """

    name: str
    task: Task
    pool: tuple[Item, ...]
    test: tuple[Item, ...]
    source: str = ""
    licence: str = ""
    digest: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    demos: tuple[Item, ...] | None = None
    weights: tuple[float, ...] = ()

    @cached_property
    def derived(self) -> dict[Hashable, Any]:
        """Results computed from it, by what was asked for; kept for as long as it lives."""
        return {}


@dataclass(frozen=True)
class Style:
    """The prompt factors; what is not named stays at the paper's baseline.

    `layout` says how a prompt ends whose query is not last: `cued` repeats the query at the end,
    `paper` just stops after the last demonstration. `word_reversal` says what a reversed label
    list does to labels that are words: only the `header` turns, or the demonstrations `flipped`
    too. `prompt` is the text of a prompt file, which takes the place of our own wording.
    """

    label_format: str = "numeric"
    clarity: str = "explicit"
    mood: str = "imperative"
    separator: str = "colon"
    connector: str = "newline"
    shots: int = 5
    cardinality: int | None = None
    layout: Layout = "cued"
    word_reversal: Literal["header", "flipped"] = "header"
    prompt: str = ""


@dataclass(frozen=True)
class View:
    """Positions only: nothing in a view changes what a prompt means.

    `label_order` gives the rank at each slot: (1, 2, 3) is natural, (3, 2, 1) reversed. The next
    two are for prompt files: the order of a rubric's criteria, and the place of its
    instructions. `place_order` names the order of the fields that may be exchanged. A turn reorders
    a named order once more: position p shows what was at `turn[p]`, () for no move.
    """

    name: str
    label_order: tuple[Rank, ...]
    demo_order: str = "base"
    placement: Placement = "before"
    repeat: int = 0
    criterion_order: str = "base"
    instructions: Literal["system", "user"] = "system"
    place_order: str = "base"
    demo_turn: tuple[int, ...] = ()
    place_turn: tuple[int, ...] = ()

    @property
    def is_natural(self) -> bool:
        return self.label_order == tuple(sorted(self.label_order))

    def slot_of(self, rank: Rank) -> Slot:
        return self.label_order.index(rank) + 1


@dataclass(frozen=True)
class Contrast:
    """The views that must agree. Two are a pair, more are an aggregate.

    One that `is_open` names all views that there may be: a study asks those that differ.
    """

    name: str
    views: tuple[str, ...]
    about: str = ""
    probe: str = ""
    is_open: bool = False

    @property
    def is_pair(self) -> bool:
        return len(self.views) == 2

    @property
    def is_judged(self) -> bool:
        """Say whether it gets a verdict: "any view differs" grows with the number of views.

        An open contrast is judged by how often two of its views differ.
        """
        return self.is_pair or self.is_open

    @property
    def pairs(self) -> tuple[Contrast, ...]:
        """The pairs of views whose answers can be laid side by side: of many, each with the first.

        Other aggregates have none: what they aggregate are pairs by themselves.
        """
        if self.is_pair or not self.is_open:
            return (self,) if self.is_pair else ()
        first, *others = self.views
        return tuple(
            replace(self, name=f"{self.name}:{view}", views=(first, view)) for view in others
        )

    @property
    def swaps_answers(self) -> bool:
        """Say whether the second view swaps the two answers that a judge compares."""
        return self.is_pair and self.probe == "pair_order"

    @property
    def reverses_labels(self) -> bool:
        """Say whether the second view shows the label list of the first in reverse."""
        return self.is_pair and self.probe == "label_order"


@dataclass(frozen=True)
class Message:
    role: Speaker
    content: str


@dataclass(frozen=True)
class Head:
    """The part shared by prompts with the same demonstrations: messages, and the start of one."""

    before: tuple[Message, ...] = ()
    role: Speaker = "user"
    start: str = ""

    @cached_property
    def text(self) -> str:
        """The shared part as one text."""
        return "".join(f"{m.role}\x1f{m.content}\x1e" for m in self.before) + self.start


@dataclass(frozen=True)
class Caching:
    """A vendor's prefix cache: its control, and its prices.

    Prefixes of `least` tokens or more are kept for `seconds` after their last use and read in
    multiples of `step`. `read` and `write` are prices as shares of that of a prompt token; `read`
    is None where it differs by model. Fewer than `worth` requests behind a head do not pay for what
    it costs to write.
    """

    least: int
    mark: CacheMark = "none"
    read: float | None = None
    write: float = 1.0
    step: int = 1
    seconds: float = 300.0
    worth: int = 2

    def keeps(self, head: Head) -> bool:
        """Whether a head is long enough, by four characters to the token."""
        return len(head.text) >= self.least * CHARS_PER_TOKEN

    def characters_read(self, head: Head) -> int:
        """Number of characters of a cached head that are read from the cache."""
        step = self.step * CHARS_PER_TOKEN
        return int(len(head.text) // step * step)


@dataclass(frozen=True)
class Script:
    """The messages of a prompt, kept as a head that many prompts share and the rest of the last.

    A study has a million prompts and a few hundred heads: what is long is there once, hashed once
    and sent to the encoder once.
    """

    head: Head
    rest: str

    @classmethod
    def of(cls, messages: Sequence[Message], anchor: int = 0) -> Script:
        """Split messages at a number of characters of the last one."""
        *before, last = messages
        head = Head(tuple(before), last.role, last.content[:anchor])
        return cls(head, last.content[anchor:])

    @property
    def anchor(self) -> int:
        return len(self.head.start)

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.head.before, Message(self.head.role, self.head.start + self.rest))

    @property
    def text(self) -> str:
        """The messages as one text, for models without a chat interface."""
        return "\n\n".join(message.content for message in self.messages)

    @once
    def digest(self) -> str:
        """The SHA-256 of the messages; where the head ends does not change it."""
        state = _hash_head(self.head).copy()
        state.update(self.rest.encode())
        return state.hexdigest()


@lru_cache(maxsize=1024)
def _hash_head(head: Head) -> hashlib._Hash:
    """The state of a hash after a head; the JSON has no line break, so none is ambiguous."""
    shown = canonical_json([[[m.role, m.content] for m in head.before], head.role])
    return hashlib.sha256(f"{shown}\n{head.start}".encode())


@dataclass(frozen=True)
class Prompt:
    """A view of an item in words.

    `answers[s - 1]` is the text offered in slot s and `ranks[s - 1]` what it means. The head of the
    script is what every item behind the same demonstrations shares. A prompt that wants a number
    offers a `span` instead; where `is_mirrored`, a number means that as far from the other end.
    `question` is what the words ask, for raters that do not read.
    """

    script: Script
    answers: tuple[str, ...]
    ranks: tuple[Rank, ...]
    labels: LabelKind = "identifiers"
    span: Span | None = None
    is_mirrored: bool = False
    question: Posed | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        return self.script.text

    def label(self, slot: Slot) -> str:
        """The answer of a slot: a label, or a number."""
        return self.answers[slot - 1] if self.span is None else self.span.name(slot)

    @property
    def digest(self) -> str:
        """Equal digests are equal prompts: such a contrast is "not identified", never 0."""
        return self.script.digest[:16]


@dataclass(frozen=True)
class Label:
    """A label as it is offered: its slot, the text to answer with, and the class it stands for."""

    slot: Slot
    text: str
    name: str
    rank: Rank

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Example:
    """A demonstration as it is shown: the fields of its item, and its label."""

    fields: Mapping[str, str] = field(hash=False)
    label: str

    @property
    def text(self) -> str:
        return self.fields["text"]


@dataclass(frozen=True)
class Question:
    """The input of a Python callable: an item under a view.

    `fields` are the item's (`text` is the main one). `labels` and `demos` stand in the order in
    which the view shows them; `placement` says where the demonstrations belong. `repeat` counts
    how often the same was asked before. Where a number is wanted, `span` has the ends of its range
    and there are no labels.
    """

    fields: Mapping[str, str] = field(hash=False)
    labels: tuple[Label, ...]
    demos: tuple[Example, ...] = ()
    placement: Placement = "before"
    repeat: int = 0
    span: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        return self.fields["text"]

    def script(self, fields: Mapping[str, str]) -> Script:
        """The question about an item as two lines of JSON; items share the first."""
        shown: dict[str, Any] = {
            "labels": [[label.text, label.name, label.rank] for label in self.labels],
            "demos": [[dict(demo.fields), demo.label] for demo in self.demos],
            "placement": self.placement,
        }
        if self.span is not None:
            shown["span"] = list(self.span)
        return Script(Head(start=canonical_json(shown)), f"\n{canonical_json(dict(fields))}")

    @classmethod
    def read(cls, text: str, repeat: int = 0) -> Question:
        """Read a question back from its script."""
        shown, fields = (json.loads(line) for line in text.split("\n"))
        labels = (Label(slot, *label) for slot, label in enumerate(shown["labels"], 1))
        demos = (Example(*demo) for demo in shown["demos"])
        ends = shown.get("span")
        span = (float(ends[0]), float(ends[1])) if ends else None
        return cls(fields, tuple(labels), tuple(demos), shown["placement"], repeat, span)


@dataclass(frozen=True)
class Posed(Question):
    """A question as a prompt puts it, beside the words: the input of a simulated rater.

    Where a prompt does not list its labels (`is_listed`), they stand in the order that they have by
    themselves. `beside` are the texts in its slots where an item is compared: the label of the one
    that is further up (1) or down (-1) the scale is wanted, by `toward`, or of the nearest (0).
    """

    style: Style = Style()
    is_listed: bool = True
    beside: tuple[str, ...] = ()
    toward: Literal[-1, 0, 1] = 0


@dataclass(frozen=True)
class Decoding:
    """The sampling settings of a reply. None is not sent: the endpoint's own default applies."""

    temperature: float | None = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    max_tokens: int = 32
    stop: tuple[str, ...] = ()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def drawn(self) -> Decoding:
        """The decoding that samples independent replies from a model's full distribution."""
        return Decoding(temperature=1.0, max_tokens=self.max_tokens, stop=self.stop)

    def body(self) -> dict[str, Any]:
        """The fields of a request, only those that are set."""
        fields = {name: value for name, value in vars(self).items() if value not in (None, ())}
        if self.stop:
            fields["stop"] = list(self.stop)
        return fields


@dataclass(frozen=True)
class Actors:
    """The number of actors of a model on a Ray cluster, and the resources of each.

    Ray has `patience` seconds to place the first.
    """

    replicas: int = 1
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict, hash=False)
    patience: float = 120.0


@dataclass(frozen=True)
class Model:
    """A model by its address (`local/…`, `openrouter/…`, `sim/…`), with its settings.

    `name` is for tables only. Several base URLs are replicas of one model. `key` is
    the name of the variable that holds its key, if not that of its family. `extra` goes into every
    request body as it is (reasoning effort, provider pinning, response format); None leaves a field
    out. `options` say how weights in this process are loaded, `actors` how a Ray cluster holds
    them. `corrections` are what its endpoint taught about the fields of a body.
    """

    address: str
    name: str = ""
    interface: Interface | None = None
    base_url: str | tuple[str, ...] | None = None
    key: str = ""
    max_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    concurrency: int | None = None
    min_interval: float = 0.0
    timeout: float = 120.0
    actors: Actors = Actors()
    corrections: Corrections = ()

    @property
    def title(self) -> str:
        return self.name or self.address

    @property
    def family(self) -> str:
        """The name of its backend: what comes before the first slash of the address."""
        return self.address.partition("/")[0]

    @property
    def own_name(self) -> str:
        """Its name within the family: what comes after the first slash of the address."""
        return self.address.partition("/")[2]


@dataclass(frozen=True)
class Extract:
    """The place of the label in a structured reply: a JSON path, or the group of a pattern."""

    json: str = ""
    regex: str = ""


@dataclass(frozen=True)
class Rater:
    """A model, a style, a pipeline and decoding, which turn items under views into decisions.

    One that `is_scored` asks for the log-probabilities of the labels with every reply. One with
    `n_draws` asks that many times more at temperature 1 instead, and counts the answers.
    `extract` says where in a reply the label stands, None for anywhere.
    """

    model: Model
    style: Style = Style()
    pipeline: str = "pointwise"
    decoding: Decoding = Decoding()
    is_scored: bool = False
    n_draws: int = 0
    extract: Extract | None = None

    @property
    def name(self) -> str:
        return self.model.title


JuryRule = Literal["majority", "mean"]
"""The rule of a panel of judges: the class of most members, or their mean."""


@dataclass(frozen=True)
class Jury:
    """A panel of judges that is a rater of its own, by the names of its members.

    One that does not show its members takes their place in every table.
    """

    name: str
    members: tuple[str, ...]
    by: JuryRule = "majority"
    shows_members: bool = True


@dataclass(frozen=True)
class Condition:
    """Rater x dataset x seed x view: the unit of the experiment, with what it is applied to.

    `demos` stand in the sampler's order: the view says how they are shown. `level` names what
    differs from the study's base ("" for the base itself). `calibration` are the items that a
    pipeline may learn a bias from; their classes are never looked at.
    """

    rater: Rater
    dataset: str
    task: Task
    seed: int
    view: View
    demos: tuple[Item, ...]
    items: tuple[Item, ...]
    level: str = ""
    calibration: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Request:
    """Everything that can change the reply and nothing else; `key` is its SHA-256.

    `model` identifies what answers (endpoint or weights hash, interface), never a display name;
    `params` is the canonical JSON of all other fields of the body. Where the head of the script
    ends is in the key: an engine may compute the prompt in two pieces, and that moves last bits.
    Outside it travels the `question` in the words, for raters that do not read.
    """

    model: str
    script: Script
    params: str = "{}"
    answers: tuple[str, ...] = ()
    repeat: int = 0
    question: Posed | None = field(default=None, compare=False, repr=False)

    @once
    def key(self) -> str:
        script = self.script
        asked = _question_identity(
            self.model, script.anchor, self.params, self.answers, self.repeat
        )
        return hashlib.sha256(f"{script.digest} {asked}".encode()).hexdigest()

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a reply, 0 if the request sets none."""
        return _max_tokens(self.params)


@lru_cache(maxsize=1024)
def _max_tokens(params: str) -> int:
    body = json.loads(params)
    named = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    limits = [body.get(name) for name in named]
    return max((n for n in limits if isinstance(n, int)), default=0)


@lru_cache(maxsize=1024)
def _question_identity(
    model: str, anchor: int, params: str, answers: tuple[str, ...], repeat: int
) -> str:
    return canonical_json([model, anchor, params, answers, repeat])


FORWARD, BACKWARD = "forward", "backward"
"""Place of the item in a comparison: first, or second."""


@dataclass(frozen=True)
class Ask:
    """One question of a pipeline: an item under a view, and which part of it.

    Most items are asked under the view of their condition. A pipeline that averages orders asks
    under others too, and one that measures a bias asks about calibration items and null texts.
    """

    item: Item
    view: View
    part: str = ""

    def __hash__(self) -> int:
        # Looked up eight times for every request: names tell nearly all asks apart.
        return hash((self.item.id, self.view.name, self.view.repeat, self.part))


@dataclass(frozen=True)
class Call:
    """One prompt that a decision needs: which condition, what is asked, and how.

    A `draw` of 0 is the answer itself; the others are drawn for the probabilities of labels.
    """

    condition: int
    ask: Ask
    prompt: Prompt
    request: Request
    draw: int = 0


@dataclass(frozen=True)
class Group:
    """Requests behind one shared prefix: the unit of scheduling."""

    model: str
    head: Head
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply; None where the endpoint does not say."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True)
class Reply:
    """The response to a request: text and finish reason, or an error.

    Log-probabilities are by answer. `corrections` were made to the request before it was answered.
    """

    text: str = ""
    finish: str = ""
    scores: tuple[float, ...] | None = None
    usage: Usage = Usage()
    seconds: float = 0.0
    model: str = ""
    provider: str = ""
    fingerprint: str = ""
    error: str = ""
    corrections: Corrections = ()


@dataclass(frozen=True)
class Answer:
    """A reply as read: the slot, the class it means, or a named fault.

    Probabilities are by slot; `ranks` is what each slot meant, () for the view's own label order.
    """

    slot: Slot = 0
    rank: Rank = NO_CLASS
    fault: Fault | None = None
    probabilities: tuple[float, ...] | None = None
    label_mass: float | None = None
    ranks: tuple[Rank, ...] = ()


@dataclass(frozen=True)
class Decision:
    """The class a rater settles on for an item under a view; probabilities are by class."""

    rank: Rank
    slot: Slot = 0
    fault: Fault | None = None
    tie_decided: bool = False
    degenerate: bool = False
    probabilities: tuple[float, ...] | None = None
    label_mass: float | None = None


@dataclass(frozen=True)
class Remark:
    """A caution about a rater's numbers; raters may share it with their own counts."""

    text: str
    count: str = ""
    code: str = ""

    def __str__(self) -> str:
        return f"{self.count} {self.text}" if self.count else self.text


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, its n and its mode. NaN says "undefined", `note` says why."""

    value: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    k: int | None = None
    failed: int = 0
    metric: str = ""
    mode: str = ""
    note: str = ""

    def __str__(self) -> str:
        if math.isnan(self.value):
            return self.note or "undefined"
        if math.isnan(self.low):
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
