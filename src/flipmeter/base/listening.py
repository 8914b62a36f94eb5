"""Time in which a loop could hear: what was there before the time was up is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PARTS = 8
"""In how many parts time is counted: a part that lasts longer, however long, counts as one."""
LAST_TURNS = 32
"""Number of times a loop checks its sockets after the deadline; it takes up to 256 KB from each."""


class Clock:
    """Counts the parts of a time limit, then the last turns of the loop, then sets it off."""

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit, self._part = limit, seconds / PARTS
        self._n_parts = self._n_turns = 0
        self._next: asyncio.Handle = self._loop.call_later(self._part, self._count)

    def stop(self) -> None:
        self._next.cancel()

    def _count(self) -> None:
        self._n_parts += 1
        if self._n_parts < PARTS:
            self._next = self._loop.call_later(self._part, self._count)
        else:
            self._turn()

    def _turn(self) -> None:
        self._n_turns += 1
        if self._n_turns > LAST_TURNS:
            self._limit.reschedule(self._loop.time())
        else:
            self._next = self._loop.call_soon(self._turn)


@asynccontextmanager
async def listening(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds in which the loop could listen.

    A process that was stopped, or a loop that had other work, did not listen: what came meanwhile
    waits in its socket. `asyncio.timeout` would end such a request before it is read, and a second
    request is paid for again.
    """
    async with asyncio.timeout(None) as limit:
        clock = Clock(limit, seconds)
        try:
            yield
        finally:
            clock.stop()
