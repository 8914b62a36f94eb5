"""Perform a whole study against a mock endpoint, and print requests per second and CPU seconds.

    python benchmarks/throughput.py [--connections 256] [--latency 0.05] [--items 100] [--profile]

The mock runs in a process of its own, on another core where there is one. The clock covers all
that a user waits for: planning, asking, storing, deciding and measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from aiohttp import web
from rich.console import Console
from rich.table import Table

from flipmeter.model import Ledger, Store
from flipmeter.runs import perform
from flipmeter.study import Study, read_study

ANSWER = (
    b'{"id":"chatcmpl-0","object":"chat.completion","created":0,"model":"mock","choices":[{"index":'
    b'0,"message":{"role":"assistant","content":"2","refusal":null},"logprobs":null,'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":400,"completion_tokens":1,'
    b'"total_tokens":401}}'
)


@dataclass(frozen=True)
class Cost:
    """What some requests took: wall and CPU seconds of the client's process."""

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


def study(base_url: str, connections: int, n_items: int) -> Study:
    """Return a study on the bundled reviews with all probes, each view asked twice."""
    model = {"model": "http/mock", "base_url": base_url, "concurrency": connections}
    return read_study(
        {
            "models": [model],
            "datasets": ["reviews"],
            "seeds": [0, 1],
            "test_size": n_items,
            "repeat_views": ["all"],
        }
    )


def measure(base_url: str, connections: int, n_items: int) -> Cost:
    """Perform the study with an empty store."""
    found: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "r.sqlite") as store:
        asked = study(base_url, connections, n_items)
        with timed(lambda *cost: found.append(Cost(*cost)), "perform") as counts:
            ledger = Ledger()
            perform(asked, Path(folder) / "run", store, ledger=ledger)
            counts.append(ledger.asked)
    return found[0]


def show(title: str, costs: list[Cost]) -> None:
    table = Table("", "requests", "requests/s", "CPU s per 1000", title=title)
    for cost in costs:
        table.add_row(*cost.row)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--profile", action="store_true", help="print where the CPU time went")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    with mock(options.latency) as base_url:
        if profile:
            profile.enable()
        cost = measure(base_url, options.connections, options.items)
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    show(f"{options.connections} connections, {1000 * options.latency:g} ms latency", [cost])


if __name__ == "__main__":
    main()
