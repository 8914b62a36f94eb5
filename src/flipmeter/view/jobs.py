"""Work that takes long -> its result, made once, while pages go on being served."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from subprocess import PIPE, Popen
from typing import Any

from flipmeter.base.process import start_python
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
    _processes: set[Popen[bytes]] = field(default_factory=set)

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
        asked = pickle.dumps((work, arguments))
        code = f"from {__name__} import tell; tell()"
        process = start_python("-c", code, stdin=PIPE, stdout=PIPE)
        self._processes.add(process)
        try:
            told, _ = await asyncio.to_thread(process.communicate, asked)
        finally:
            self._processes.discard(process)
            process.kill()
        if not told:
            raise Problem("the process that made this was killed; is there enough memory?")
        result, problem = pickle.loads(told)
        if problem:
            raise Problem(problem)
        return result

    def close(self) -> None:
        """End what is under way."""
        for process in list(self._processes):
            process.kill()


def tell() -> None:
    """In the process apart: do the work that standard input names, and write what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started us says when to end
    pipe, sys.stdout = sys.stdout.buffer, sys.stderr  # whatever is printed is no result
    work, arguments = pickle.load(sys.stdin.buffer)
    try:
        told = (work(*arguments), "")
    except Exception as error:
        told = (None, said(error))
    pipe.write(pickle.dumps(told))
    pipe.flush()
