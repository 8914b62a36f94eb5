"""Several that answer for one model: what shares a head keeps to one of them while it is there."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import groupby

from flipmeter.ask.family import Backend
from flipmeter.ask.plan import PrefixCache
from flipmeter.errors import Problem, Retry, Unreachable
from flipmeter.loops import Bell
from flipmeter.types import Head, Reply, Request

Place = int
"""A replica by its number."""

Share = deque[Request]
"""Requests behind one head, in their order."""

MOST_HOMES = 4096
"""Number of heads remembered; one that is forgotten is assigned again."""

WORTH_HALVING = 8
"""Fewer requests are not worth a head that is computed twice."""


class Fleet:
    """Replicas of one model: the live ones, and the one that last got a head.

    A request's key does not know of them, nor how many. A `problem` is one that all of them have.
    """

    is_reproducible = False
    problem: Problem | None = None

    def __init__(self, replicas: Sequence[Backend]) -> None:
        self.replicas = tuple(replicas)
        self.identity = self.replicas[0].identity
        self.concurrency = sum(replica.concurrency for replica in self.replicas)
        self.there: set[Place] = set()
        self.homes: dict[Head, Place] = {}
        self.changed = Bell()

    def muster(self) -> None:
        """Let all be asked, also those that were gone before."""
        self.there = set(range(len(self.replicas)))

    def lose(self, place: Place, failure: Retry) -> bool:
        """Whether a failure means that a replica is gone and its requests are for others.

        One that refuses connections is, but for the last.
        """
        is_lost = isinstance(failure, Unreachable) and bool(self.there - {place})
        if is_lost:
            self.there.discard(place)
            self.changed.ring()
        return is_lost

    def settle(self, head: Head, place: Place) -> None:
        """Remember who has what is behind a head."""
        self.homes[head] = place
        if len(self.homes) > MOST_HOMES:
            del self.homes[next(iter(self.homes))]

    async def ask(self, request: Request) -> Reply:
        return await self.replicas[self.homes.get(request.script.head, 0)].ask(request)

    async def close(self) -> None:
        for replica in self.replicas:
            await replica.close()


def fleet_of(backend: Backend) -> Fleet:
    """The fleet of a backend: its replicas, or itself alone."""
    return backend if isinstance(backend, Fleet) else Fleet([backend])


class Rota:
    """Distribution of requests over a fleet: each replica works through one share at a time.

    It takes its own shares first (its prefix cache may still hold the head), then unassigned ones
    or those of a replica that is gone. An idle replica takes from another: the last share that was
    not begun, else half of the current one. `n_open` counts requests without a reply.
    """

    def __init__(self, requests: Sequence[Request], fleet: Fleet) -> None:
        self.fleet = fleet
        self.n_open = len(requests)
        self.n_returned: Counter[str] = Counter()
        self.n_tried: Counter[str] = Counter()
        self._late: Share = deque()
        self._begun: list[Share] = [deque() for _ in fleet.replicas]
        self._own: list[deque[Share]] = [deque() for _ in fleet.replicas]
        self._free: deque[Share] = deque()
        self._warming: dict[Head, tuple[Place, Share]] = {}
        for head, group in groupby(requests, key=lambda one: one.script.head):
            self._waiting(head).append(deque(group))
        fleet.muster()

    async def take(self, place: Place) -> Request | None:
        """Wait for what a replica is asked next; None when all is done."""
        while self.n_open > 0:
            if self.fleet.problem is not None:
                raise self.fleet.problem
            if request := self.next(place):
                return request
            await self.fleet.changed.wait()  # another may go away, and leave something
        return None

    def next(self, place: Place) -> Request | None:
        """The next request of a replica, None if there is none now."""
        if place not in self.fleet.there:
            return None
        if not self._begun[place]:
            own = self._own[place].popleft() if self._own[place] else None
            if share := own or self._unclaimed() or self._spared():
                self._begun[place] = share
                self.fleet.settle(share[0].script.head, place)
        share = self._begun[place] or self._late
        if not share:
            return None
        request = share.popleft()
        if share is self._begun[place] and share and self._is_cold(request, place):
            self._warming[request.script.head] = place, share
            self._begun[place] = deque()
        return request

    def _is_cold(self, request: Request, place: Place) -> bool:
        """Whether what shares a head with a request waits for its reply.

        Until then a vendor's cache does not hold the head, and everything sent would pay for it.
        """
        cache: PrefixCache | None = getattr(self.fleet.replicas[place], "cache", None)
        head = request.script.head
        return cache is not None and head not in self._warming and cache.is_cold(head)

    def release(self, request: Request) -> None:
        """Let go what waits for a request, which has ended in one way or another."""
        place, share = self._warming.pop(request.script.head, (0, None))
        if share:
            self._own[place].appendleft(share)
            self.fleet.changed.ring()

    def has_others(self, request: Request) -> bool:
        """Whether a request has failed and there are some that have not been tried."""
        if not self.n_tried[request.key]:
            return False
        return any((*self._begun, self._free, *self._own))

    def put_off(self, request: Request) -> None:
        """Try others first: a request may fail by itself."""
        self.release(request)
        self._late.append(request)
        self.fleet.changed.ring()

    def put_back(self, request: Request) -> None:
        """Hand on what was asked of one that is gone, to who has its group by now."""
        self.release(request)
        head = request.script.head
        begun = [share for share in self._begun if share and share[0].script.head == head]
        if begun:
            begun[0].appendleft(request)
        else:
            self._waiting(head).appendleft(deque([request]))
        self.n_returned[request.key] += 1
        self.fleet.changed.ring()

    def done(self, request: Request) -> None:
        self.release(request)
        self.n_open -= 1
        if not self.n_open:
            self.end()

    def end(self) -> None:
        """Give out nothing more."""
        self.n_open = 0
        self.fleet.changed.ring()

    def _waiting(self, head: Head) -> deque[Share]:
        """The queue for shares of a head: that of its last replica, or the common one."""
        home = self.fleet.homes.get(head)
        return self._free if home is None else self._own[home]

    def _unclaimed(self) -> Share | None:
        """Take the groups of a replica that is gone, or unassigned ones."""
        gone = [place for place in range(len(self._own)) if place not in self.fleet.there]
        for place in gone:
            if share := self._begun[place]:
                self._begun[place] = deque()
                return share
        queues = (*(self._own[place] for place in gone), self._free)
        return next((queue.popleft() for queue in queues if queue), None)

    def _spared(self) -> Share | None:
        """Take from who has most."""
        if most := max(self._own, key=len):
            return most.pop()
        share = max(self._begun, key=len)
        if len(share) < WORTH_HALVING:
            return None
        return deque(reversed([share.pop() for _ in range(len(share) // 2)]))
