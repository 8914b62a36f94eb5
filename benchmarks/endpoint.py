"""A mock endpoint in a process of its own, and what asking it takes. Knows nothing of flipmeter."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from aiohttp import web
from goals import show_table

ANSWER = (
    b'{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"mock","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"2","refusal":null},"text":"2",'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":400,"completion_tokens":1,'
    b'"total_tokens":401}}'
)


@dataclass(frozen=True)
class Cost:
    """Cost of some requests: wall and CPU seconds of the client's process."""

    name: str
    n_requests: int
    seconds: float
    cpu: float

    @property
    def row(self) -> tuple[str, str, str, str]:
        rate, per_thousand = self.n_requests / self.seconds, 1000 * self.cpu / self.n_requests
        return self.name, str(self.n_requests), f"{rate:.0f}", f"{per_thousand:.3f}"


@contextmanager
def timed(done: Callable[[str, int, float, float], None], name: str) -> Iterator[list[int]]:
    """Measure a block that appends how many requests it made."""
    counts: list[int] = []
    wall, cpu = time.perf_counter(), time.process_time()
    yield counts
    done(name, sum(counts), time.perf_counter() - wall, time.process_time() - cpu)


@contextmanager
def mock(latency: float) -> Iterator[str]:
    """Serve one constant answer from another process and give the base URL."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, latency), daemon=True)
    process.start()
    there.close()  # so that a mock that dies is an end of file, not silence
    _pin(0)
    try:
        yield f"http://127.0.0.1:{here.recv()}/v1"
    finally:
        process.terminate()
        process.join()


def _pin(place: int) -> None:
    """Keep this process on one core, the mock on another, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[place % len(cores)]})


def _serve(pipe: Connection, latency: float) -> None:
    _pin(1)
    asyncio.run(_serve_forever(pipe, latency))


async def _serve_forever(pipe: Connection, latency: float) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        await asyncio.sleep(latency)
        return web.Response(body=ANSWER, content_type="application/json")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    pipe.send(runner.addresses[0][1])
    await asyncio.Event().wait()


def show(title: str, costs: list[Cost]) -> None:
    heads = ("", "requests", "requests/s", "CPU s per 1000")
    show_table(title, heads, (cost.row for cost in costs))
