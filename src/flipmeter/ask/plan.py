"""Call -> Request: each distinct request once, in the order that shares most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

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
