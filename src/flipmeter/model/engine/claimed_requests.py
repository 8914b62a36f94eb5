"""Requests -> those that are ours to ask: leased ahead, some at a time, in the order of asking."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from flipmeter.base.process import ProcessName
from flipmeter.model.store.leases import Leases
from flipmeter.types import Reply, Request

FEWEST, FIRST, MOST = 4, 16, 1024
"""How many requests are leased at a time: about as many as a second answers."""
SOON, LATE = 0.5, 2.0

Found = Callable[[str, Reply], None]


@dataclass
class Claims:
    """What one model is asked: each request is leased shortly before it is sent.

    Who leases little ahead leaves the rest to other processes with the same requests.
    """

    leases: Leases
    found: Found
    requests: Sequence[Request]
    elsewhere: dict[str, ProcessName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open = dict.fromkeys(request.key for request in self.requests)
        self._mine: dict[str, None] = {}
        self._size, self._last = FIRST, time.monotonic()

    def take(self, request: Request) -> bool:
        """Whether a request is ours to send now; if not, another asks it or has a reply."""
        if self.leases.is_stale or request.key not in self._mine:
            self._claim(request.key)
        is_mine = request.key in self._mine
        self._mine.pop(request.key, None)
        return is_mine

    def _claim(self, key: str) -> None:
        """Lease a request and the next ones, and again those that others may have taken."""
        self._open.pop(key, None)
        ahead = self._mine if self.leases.is_stale else islice(self._open, self._next_size() - 1)
        keys = list(dict.fromkeys([key, *ahead]))
        claimed = self.leases.claim(keys)
        for one in keys:
            self._open.pop(one, None)
            self._mine.pop(one, None)
        not_ours = {*claimed.stored, *claimed.elsewhere}
        self._mine |= dict.fromkeys(one for one in keys if one not in not_ours)
        self.elsewhere |= claimed.elsewhere
        for one, reply in claimed.stored.items():
            self.found(one, reply)

    def _next_size(self) -> int:
        now = time.monotonic()
        lasted, self._last = now - self._last, now
        if lasted < SOON:
            self._size = min(MOST, 2 * self._size)
        elif lasted > LATE:
            self._size = max(FEWEST, self._size // 2)
        return self._size
