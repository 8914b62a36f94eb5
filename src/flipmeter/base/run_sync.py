"""Coroutine -> its result, for callers that do not wait themselves; and a bell for those who do."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flipmeter.base.drain import draining
from flipmeter.errors import Drained, Stopped

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
