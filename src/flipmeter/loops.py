"""Coroutines that are run and heard: by callers that wait, and by those who must stop in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flipmeter.drain import draining
from flipmeter.errors import Drained, Stopped

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


T = TypeVar("T")


@dataclass
class Bell:
    """Wake those who wait for something to end."""

    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def wait(self) -> None:
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where a loop is running already, as in a notebook.

    A signal drains it first: what is under way is heard, then Stopped is raised; a thread beside
    the main one, where no signal comes, says that it was drained.
    """
    try:
        with draining():
            return asyncio.run(work) if _is_free() else _wait_in_thread(work)
    except Drained as drained:
        if threading.current_thread() is not threading.main_thread():
            raise
        raise Stopped(str(drained)) from drained


def _is_free() -> bool:
    """Say whether this thread has no loop running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def _wait_in_thread(work: Coroutine[Any, Any, T]) -> T:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(copy_context().run, asyncio.run, watched())
        try:
            return done.result()
        except BaseException:
            if not done.done():
                # An interrupt reaches the caller's thread only: the work ends with it.
                loop, task = begun.result()
                loop.call_soon_threadsafe(task.cancel)
            raise
