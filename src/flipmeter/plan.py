"""Call -> Request: each distinct request once, in the order that shares most."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import groupby, pairwise

from flipmeter.types import Call, Group, Request

CHARS_PER_TOKEN = 4.0
"""A rule of thumb for English, for estimates before anything is sent."""


@dataclass(frozen=True)
class Plan:
    """The distinct requests of some calls, in prefix order, and what they would cost."""

    groups: tuple[Group, ...]
    n_calls: int

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(request for group in self.groups for request in group.requests)


@dataclass(frozen=True)
class Cost:
    """What is known before anything is sent; tokens are estimates from characters."""

    calls: int
    distinct: int
    stored: int
    prompt_tokens: int
    prompt_tokens_new: int
    completion_tokens_at_most: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def plan(calls: Iterable[Call]) -> Plan:
    """Return each distinct request once, requests with a common prefix together.

    The sort is the walk of the prefix tree: neighbours share the longest prefix there is.
    """
    distinct: dict[str, Request] = {}
    n_calls = 0
    for call in calls:
        n_calls += 1
        distinct.setdefault(call.request.key, call.request)
    ordered = sorted(distinct.values(), key=_place)
    groups = tuple(
        Group(model, prefix, tuple(members))
        for (model, prefix), members in groupby(ordered, key=lambda r: (r.model, r.prefix))
    )
    return Plan(groups, n_calls)


def _place(request: Request) -> tuple[str, str, str, int, str]:
    return (
        request.model,
        request.prefix,
        request.messages[-1].content,
        request.repeat,
        request.params,
    )


def price(plan: Plan, stored: Collection[str] = frozenset()) -> Cost:
    """Return the size of a plan: what is asked in all, and what prefix caches can save."""
    requests = [request for request in plan.requests if request.key not in stored]
    texts = [
        request.prefix + request.messages[-1].content[request.anchor :] for request in requests
    ]
    whole = sum(map(len, texts))
    shared = sum(_n_shared(before, after) for before, after in pairwise(texts))
    return Cost(
        calls=plan.n_calls,
        distinct=len(plan.requests),
        stored=len(plan.requests) - len(requests),
        prompt_tokens=round(whole / CHARS_PER_TOKEN),
        prompt_tokens_new=round((whole - shared) / CHARS_PER_TOKEN),
        completion_tokens_at_most=sum(_max_tokens(request.params) for request in requests),
    )


@lru_cache(maxsize=1024)
def _max_tokens(params: str) -> int:
    return int(json.loads(params).get("max_tokens", 0))


def _n_shared(a: str, b: str) -> int:
    """Return how many characters two texts share at their start, by bisection on slices."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
