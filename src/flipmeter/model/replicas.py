"""One model behind several base URLs: what shares a prefix keeps to one replica."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from flipmeter.model.backend import Backend, Retry
from flipmeter.model.http import HttpBackend, Unreachable
from flipmeter.model.pool import Bell, Pool
from flipmeter.types import Head, Problem, Reply, Request

Place = int
"""A replica by its number."""


class Fleet:
    """Clients of replicas of one model. A request's key does not know of them, nor how many."""

    is_reproducible = False

    def __init__(self, replicas: Sequence[HttpBackend]) -> None:
        self.replicas = tuple(replicas)
        self.identity = self.replicas[0].identity
        self.concurrency = sum(replica.concurrency for replica in self.replicas)
        self.homes: dict[Head, Place] = {}

    async def ask(self, request: Request) -> Reply:
        return await self.replicas[self.homes.get(request.script.head, 0)].ask(request)

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.close()


def replicas_of(backend: Backend) -> tuple[Backend, ...]:
    """Return what answers for a backend: its replicas, or itself alone."""
    return backend.replicas if isinstance(backend, Fleet) else (backend,)


Share = deque[Request]
"""Requests behind one head, in their order."""


@dataclass
class Rota:
    """What a fleet is asked: a replica takes a share, and when it is done the next.

    It takes first what it has answered before (its prefix cache may still hold the head), then what
    nobody has, then what another has not begun. `n_open` counts what has no reply yet.
    """

    waiting: list[Share]
    homes: dict[Head, Place]
    alive: set[Place]
    n_open: int
    begun: dict[Place, Share] = field(default_factory=dict)
    bell: Bell = field(default_factory=Bell)

    @classmethod
    def of(cls, requests: Sequence[Request], fleet: Fleet) -> Rota:
        places = set(range(len(fleet.replicas)))
        return cls(_shares(requests, len(places)), fleet.homes, places, len(requests))

    async def take(self, place: Place) -> Request | None:
        """Return what a replica is asked next; None when all is done, or the replica is gone."""
        while self.n_open and place in self.alive:
            share = self.begun.get(place) or self._next(place)
            if share:
                return share.popleft()
            await self.bell.wait()  # another may go away, and leave something
        return None

    def _next(self, place: Place) -> Share | None:
        if not self.waiting:
            return None
        chosen = min(self.waiting, key=lambda share: self._distance(share, place))
        self.waiting = [share for share in self.waiting if share is not chosen]
        self.homes[chosen[0].script.head] = place
        self.begun[place] = chosen
        return chosen

    def _distance(self, share: Share, place: Place) -> int:
        home = self.homes.get(share[0].script.head)
        return 0 if home == place else 2 if home in self.alive else 1

    def done(self) -> None:
        self.n_open -= 1
        if not self.n_open:
            self.bell.ring()

    def end(self) -> None:
        """Give out nothing more."""
        self.n_open = 0
        self.bell.ring()

    def can_lose(self, place: Place) -> bool:
        """Say whether anybody else is left."""
        return bool(self.alive - {place})

    def lose(self, place: Place, request: Request) -> None:
        """Hand on what a replica that is gone was asked, and what it would have been."""
        self.alive.discard(place)
        rest = self.begun.pop(place, deque())
        self.waiting = [share for share in (deque([request]), rest) if share] + self.waiting
        self.bell.ring()


def _shares(requests: Iterable[Request], n_replicas: int) -> list[Share]:
    """Cut requests into shares behind one head each, none so large that a replica is left idle."""
    asked = list(requests)
    most = max(1, -(-len(asked) // n_replicas))
    groups = (list(group) for _, group in groupby(asked, key=lambda one: one.script.head))
    return [
        deque(group[start : start + most])
        for group in groups
        for start in range(0, len(group), most)
    ]


class _Gone(Exception):
    """A replica does not answer any more, and another can."""


@dataclass
class ReplicaPool(Pool):
    """Workers of one replica."""

    rota: Rota = field(kw_only=True)
    place: Place = field(kw_only=True)

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        while (request := await self.rota.take(self.place)) is not None:
            try:
                reply = await self._persist(request)
            except _Gone:
                self.rota.lose(self.place, request)
                return
            except Problem as problem:
                self.stop.because(problem)
                self.rota.end()
                return
            if reply is None:
                self.is_out = True
                self.rota.end()
                return
            self.hire(tasks)
            await self.keep(request, reply)
            self.rota.done()

    def heed(self, failure: Retry) -> None:
        """Leave a replica that refuses connections, unless it is the last."""
        if isinstance(failure, Unreachable) and self.rota.can_lose(self.place):
            raise _Gone
