"""Requests -> those that are ours to ask: leased ahead, some at a time, in the order of asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from flipmeter.base.process import ProcessName
from flipmeter.model.store.leases import Claimed, Leases
from flipmeter.types import Reply, Request

FEWEST, FIRST, MOST = 4, 16, 1024
"""Number of requests leased at a time: about as many as are answered in a second."""
SOON, LATE = 0.5, 2.0

Found = Callable[[str, Reply], None]
AsSent = Callable[[Sequence[Request]], list[Request]]


@dataclass
class Claims:
    """The requests to one model, each leased shortly before it is sent.

    Leasing little in advance leaves the rest to other processes with the same requests. `as_sent`
    gives requests as their endpoint wants them, by what it taught anybody who shares the store: a
    reply is stored under that key, so that both keys are leased. `held` has what is ours, and
    `elsewhere` the processes that ask the rest.
    """

    leases: Leases
    found: Found
    requests: Sequence[Request]
    as_sent: AsSent
    held: dict[str, Request]
    elsewhere: dict[str, ProcessName]

    def __post_init__(self) -> None:
        self._open = {request.key: request for request in self.requests}
        self._mine: dict[str, Request] = {}
        self._size, self._last = FIRST, time.monotonic()

    def take(self, request: Request) -> bool:
        """Whether a request is ours to send now; if not, another asks it or has a reply."""
        if self.leases.is_stale or request.key not in self._mine:
            self._claim(request)
        return self._mine.pop(request.key, None) is not None

    def _claim(self, request: Request) -> None:
        """Lease a request and the next ones, and again those that others may have taken."""
        self._open.pop(request.key, None)
        is_stale = self.leases.is_stale
        ahead = self._mine if is_stale else islice(self._open, self._next_size() - 1)
        known = {request.key: request} | self._mine | self._open
        wanted = {key: known[key] for key in (request.key, *ahead)}
        claimed = self._leased([*wanted.values()])
        for key in wanted:
            self._open.pop(key, None)
            self._mine.pop(key, None)
        ours = {k: r for k, r in wanted.items() if k not in claimed.stored | claimed.elsewhere}
        self._mine |= ours
        self.held |= ours
        self.elsewhere |= claimed.elsewhere
        for key, reply in claimed.stored.items():
            self.found(key, reply)

    def _leased(self, requests: Sequence[Request]) -> Claimed:
        """Lease requests by their own keys, then those that are ours as they are sent, or not."""
        with self.leases.store.transaction():
            sent = {r.key: s.key for r, s in zip(requests, self.as_sent(requests), strict=True)}
            claimed = self.leases.claim([*sent])
            taken = claimed.stored.keys() | claimed.elsewhere.keys()
            others = {k: s for k, s in sent.items() if k != s and k not in taken}
            if not others:
                return claimed
            again = self.leases.claim([*others.values()])
            stored = {k: again.stored[s] for k, s in others.items() if s in again.stored}
            elsewhere = {k: again.elsewhere[s] for k, s in others.items() if s in again.elsewhere}
            # Two processes that hold one key each and wait for the other key would wait for ever.
            self.leases.give_back([*stored, *elsewhere])
            return Claimed(claimed.stored | stored, claimed.elsewhere | elsewhere)

    def _next_size(self) -> int:
        now = time.monotonic()
        lasted, self._last = now - self._last, now
        if lasted < SOON:
            self._size = min(MOST, 2 * self._size)
        elif lasted > LATE:
            self._size = max(FEWEST, self._size // 2)
        return self._size
