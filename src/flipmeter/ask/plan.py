"""Call -> Request: each once, in the order that shares most; what a vendor's prefix cache keeps."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from flipmeter.ask.dialect import REFUSALS
from flipmeter.ask.response import Trouble
from flipmeter.chance import n_shared
from flipmeter.types import Caching, Call, Group, Head, Request, Script


@dataclass(frozen=True)
class Plan:
    """The distinct requests of some calls, in prefix order; calls are counted by model."""

    groups: tuple[Group, ...]
    calls_of: Mapping[str, int]

    @property
    def n_calls(self) -> int:
        return sum(self.calls_of.values())

    @cached_property
    def requests(self) -> tuple[Request, ...]:
        return tuple(request for group in self.groups for request in group.requests)


@dataclass(frozen=True)
class Cost:
    """The size of a plan before anything is sent.

    `characters_new` are new to a cache that keeps every prefix. Of a vendor's cache, which keeps
    long heads alone, `characters_cached` are expected to be read and `characters_written` taken in.
    """

    calls: int = 0
    distinct: int = 0
    stored: int = 0
    characters: int = 0
    characters_new: int = 0
    characters_cached: int = 0
    characters_written: int = 0
    completion_tokens_at_most: int = 0

    def __add__(self, other: Cost) -> Cost:
        names = [field.name for field in fields(self)]
        return Cost(*(getattr(self, name) + getattr(other, name) for name in names))

    @property
    def to_ask(self) -> int:
        return self.distinct - self.stored


def plan(calls: Iterable[Call]) -> Plan:
    """Each distinct request once, requests with a common prefix together.

    The order is the walk of the prefix tree: heads are sorted, and the rests behind each head, so
    that neighbours share the longest prefix there is.
    """
    found: dict[tuple[str, Head], dict[str, Request]] = {}
    calls_of: Counter[str] = Counter()
    model, head, group = "", None, dict[str, Request]()
    for call in calls:
        request = call.request
        if request.script.head is not head or request.model != model:  # calls come head by head
            model, head = request.model, request.script.head
            group = found.setdefault((model, head), {})
        calls_of[model] += 1
        group[request.key] = request
    groups = tuple(
        Group(model, head, tuple(sorted(found[model, head].values(), key=_request_sort_key)))
        for model, head in sorted(found, key=lambda place: (place[0], place[1].text))
    )
    return Plan(groups, calls_of)


def _request_sort_key(request: Request) -> tuple[str, int, str]:
    return request.script.rest, request.repeat, request.params


def price(
    plan: Plan,
    stored: Collection[str] = frozenset(),
    caching: Mapping[str, Caching] | None = None,
) -> dict[str, Cost]:
    """The size of a plan by model: its requests, and the tokens that prefix caches can save.

    `caching` describes the prefix cache of each model's vendor.
    """
    costs = {model: Cost(calls=n_calls) for model, n_calls in plan.calls_of.items()}
    last: dict[str, Script] = {}
    for group in plan.groups:
        missing = [request for request in group.requests if request.key not in stored]
        n_stored = len(group.requests) - len(missing)
        costs[group.model] += Cost(distinct=len(group.requests), stored=n_stored)
        if missing:
            costs[group.model] += _cost_of(missing, last.get(group.model))
            last[group.model] = missing[-1].script
        if kept := (caching or {}).get(group.model):
            costs[group.model] += _expected_cache_use(group.head, len(missing), kept)
    return costs


def _expected_cache_use(head: Head, n_requests: int, caching: Caching) -> Cost:
    """The expected use of a vendor's cache: the first request writes a head, others read it."""
    if n_requests < caching.worth or not caching.keeps(head):
        return Cost()
    return Cost(
        characters_cached=(n_requests - 1) * caching.characters_read(head),
        characters_written=len(head.text),
    )


def _cost_of(requests: Collection[Request], before: Script | None) -> Cost:
    """The cost of one group's requests after the requests before it."""
    whole = shared = completion = 0
    for request in requests:
        script = request.script
        whole += len(script.head.text) + len(script.rest)
        completion += request.max_tokens
        shared += 0 if before is None else _n_shared_scripts(before, script)
        before = script
    return Cost(
        characters=whole, characters_new=whole - shared, completion_tokens_at_most=completion
    )


def _n_shared_scripts(a: Script, b: Script) -> int:
    if a.head == b.head:
        return len(a.head.text) + n_shared(a.rest, b.rest)
    return n_shared(a.head.text + a.rest, b.head.text + b.rest)


CacheTable = Sequence[tuple[str, Caching | None]]
"""Patterns of model names, the first that matches counts."""

_CLAUDE = Caching(1024, "cache_control", read=0.1, write=1.25)
ANTHROPIC_CACHES: CacheTable = (
    (r"claude-(opus-4-[56]|haiku-4-5)", replace(_CLAUDE, least=4096)),
    (r"claude-(opus-4-7|sonnet-4-6|3-haiku|3-5-haiku)", replace(_CLAUDE, least=2048)),
    (r"claude-(opus|fable|mythos)-5", replace(_CLAUDE, least=512)),
    (r"", _CLAUDE),
)
"""Writing costs a quarter more than a prompt token, reading a tenth of it."""

_BY_KEY = Caching(1024, "key", step=128)
OPENAI_CACHES: CacheTable = (
    (r"gpt-3|gpt-4($|-)", None),
    (r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)", Caching(1024, "breakpoint", 0.1, 1.25, seconds=1800.0)),
    (r"gpt-5", replace(_BY_KEY, read=0.1)),
    (r"gpt-4\.1|o3|o4", replace(_BY_KEY, read=0.25)),
    (r"gpt-4o|chatgpt|o1", replace(_BY_KEY, read=0.5)),
    (r"", _BY_KEY),
)
"""Since gpt-5.6 a prompt is written whole, at a quarter more, unless marks say where."""

GEMINI_CACHES: CacheTable = (
    (r"gemini-(1|2\.0)|gemma|learnlm", None),
    (r"gemini-2\.5", Caching(2048, read=0.1)),
    (r"", Caching(4096, read=0.1)),
)
"""It finds prefixes by itself, and does not promise to."""

MOST_HEADS = 65_536
MARKS = ("cache_control", "prompt_cache")
"""The names of the marks in a refusal."""


def caching_in(table: CacheTable, model: str) -> Caching | None:
    """The prefix cache of a model by its name, None if unknown."""
    name = model.rpartition("/")[2].casefold()
    return next((one for pattern, one in table if re.match(pattern, name)), None)


class PrefixCache:
    """The content of a vendor's cache, as far as one client can know."""

    def __init__(self, caching: Caching, clock: Callable[[], float] = time.monotonic) -> None:
        self.caching = caching
        self._clock = clock
        self._n_expected: Counter[Head] = Counter()
        self._used: dict[Head, float] = {}
        self._is_refused = False

    def expect(self, requests: Iterable[Request]) -> None:
        """Hear what will be asked: a head that one request has is not worth a mark."""
        if len(self._n_expected) > MOST_HEADS:
            self._n_expected.clear()
        self._n_expected.update(request.script.head for request in requests)

    @property
    def told(self) -> Caching | None:
        """The caching that bodies are written for; None once an endpoint refused a mark."""
        return None if self._is_refused else self.caching

    def is_shared(self, head: Head) -> bool:
        """Whether a head is long enough to be kept, and more than one request has it."""
        return self._n_expected[head] >= self.caching.worth and self.caching.keeps(head)

    def is_cold(self, head: Head) -> bool:
        """Whether requests behind a head must wait for the first: none of it is kept yet."""
        if not self.is_shared(head):
            return False
        used = self._used.get(head)
        return used is None or self._clock() - used > self.caching.seconds

    def answered(self, head: Head) -> None:
        """Hear that a request was answered: its head is kept from now on."""
        if len(self._used) > MOST_HEADS:
            self._used.clear()
        self._used[head] = self._clock()

    def is_refused_by(self, trouble: Trouble) -> bool:
        """Whether an endpoint will not take a mark; nothing is marked any more if so."""
        said = f"{trouble.param} {trouble.message}"
        is_refusal = trouble.status in REFUSALS and any(name in said for name in MARKS)
        self._is_refused = self._is_refused or is_refusal
        return is_refusal
