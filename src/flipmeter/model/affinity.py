"""Which of several replicas answers: a prefix group keeps to one, so that its prefix stays warm."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Generic, TypeVar

from flipmeter.types import Head, Request

MOST_HOMES = 4096
"""How many groups are remembered; one that is forgotten begins anew somewhere."""


@dataclass(eq=False)
class Replica:
    """One of several equals that answer; it has room for so many requests at a time."""

    room: int
    n_under_way: int = 0
    n_groups: int = 0


R = TypeVar("R", bound=Replica)


@dataclass
class Affinity(Generic[R]):
    """Remember where each prefix group is answered."""

    homes: dict[Head, R] = field(default_factory=dict)

    def choose(self, head: Head, replicas: Sequence[R]) -> R:
        """Return the replica that holds a group, or the least busy one for a group that moves.

        A group moves when its replica is not there any more, or when another has so much less to
        do that it would soon be idle.
        """
        home = self.homes.get(head)
        least = min(replicas, key=lambda replica: (replica.n_under_way, replica.n_groups))
        if (
            home is None
            or home not in replicas
            or home.n_under_way - least.n_under_way >= home.room
        ):
            home = self._move(head, least)
        return home

    def _move(self, head: Head, replica: R) -> R:
        replica.n_groups += 1
        self.homes[head] = replica
        if len(self.homes) > MOST_HOMES:
            del self.homes[next(iter(self.homes))]
        return replica


def in_turns(requests: Iterable[Request], n: int) -> Iterator[Request]:
    """Yield the requests of `n` prefix groups by turns: each replica has one to keep to."""
    groups = (iter(list(some)) for _, some in groupby(requests, lambda one: one.script.head))
    active = deque(islice(groups, n))
    while active:
        group = active.popleft()
        request = next(group, None)
        if request is None:
            active.extendleft(islice(groups, 1))
        else:
            yield request
            active.append(group)
