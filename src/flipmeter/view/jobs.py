"""Work that takes long -> its result, made once, while pages go on being served."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from flipmeter.types import Problem
from flipmeter.view.folders import said

KEPT = 16
"""Number of results kept."""
PATIENCE = 1.0
"""Seconds that a page waits for a result before it says that it is being made."""
SOON = 0.1
"""The wait for large work: it is never done so soon."""


@dataclass
class Jobs:
    """Results by key. Small work is done in a thread, large work in a process that ends with it."""

    patience: float = PATIENCE
    _tasks: OrderedDict[Hashable, asyncio.Task[Any]] = field(default_factory=OrderedDict)
    _processes: set[BaseProcess] = field(default_factory=set)

    async def result(
        self,
        key: Hashable,
        work: Callable[..., Any],
        *arguments: Any,
        is_small: bool,
    ) -> Any | None:
        """The result of some work, None while it takes longer than a page can wait.

        A failure is raised, and the work tried again at the next request.
        """
        if key not in self._tasks:
            run = asyncio.to_thread if is_small else self._apart
            self._tasks[key] = asyncio.create_task(run(work, *arguments))
            while len(self._tasks) > KEPT:
                self._tasks.popitem(last=False)[1].cancel()
        task = self._tasks[key]
        self._tasks.move_to_end(key)
        left = self.patience * (1 if is_small else SOON)
        await asyncio.wait([task], timeout=max(left, 0.0))
        if not task.done():
            return None
        if task.cancelled() or task.exception() is not None:
            del self._tasks[key]
        return task.result()

    async def _apart(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Work in a process of its own: what it reads whole is let go of when it ends."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_tell, args=(theirs, work, arguments), daemon=True)
        self._processes.add(process)
        try:
            await asyncio.to_thread(process.start)
            theirs.close()  # or its end would never be heard of
            result, problem = await asyncio.to_thread(ours.recv)
        except EOFError:
            raise Problem(
                "the process that made this was killed; is there enough memory?"
            ) from None
        finally:
            ours.close()
            self._processes.discard(process)
            with suppress(AttributeError, ValueError):  # not started
                process.kill()
        if problem:
            raise Problem(problem)
        return result

    def close(self) -> None:
        """End what is under way."""
        for process in list(self._processes):
            with suppress(AttributeError, ValueError):
                process.kill()


def _tell(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us says when to end
    try:
        told = (work(*arguments), "")
    except Exception as error:
        told = (None, said(error))
    pipe.send(told)
