"""Send the same chat requests with raw aiohttp, httpx and the openai SDK, and print what each took.

    python benchmarks/clients.py [--requests 1000] [--latency 0.05]

They are not dependencies: a client that is not installed is left out. `bench.py` runs this in an
environment that has all three.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import aiohttp
from endpoint import Cost, mock, show, timed

Send = Callable[[], Awaitable[object]]
BODY: dict[str, Any] = {
    "model": "mock",
    "messages": [{"role": "user", "content": "Rate this sentence from 1 to 5. " * 50}],
    "max_tokens": 8,
}


async def with_aiohttp(base_url: str, connections: int, n_requests: int) -> None:
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send() -> None:
            async with session.post(f"{base_url}/chat/completions", json=BODY) as response:
                await response.json()

        await repeat(send, connections, n_requests)


async def with_httpx(base_url: str, connections: int, n_requests: int) -> None:
    httpx = import_module("httpx")
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    async with httpx.AsyncClient(limits=limits, timeout=60) as client:

        async def send() -> None:
            (await client.post(f"{base_url}/chat/completions", json=BODY)).json()

        await repeat(send, connections, n_requests)


async def with_openai(base_url: str, connections: int, n_requests: int) -> None:
    sdk = import_module("openai")
    async with sdk.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        await repeat(lambda: client.chat.completions.create(**BODY), connections, n_requests)


async def repeat(send: Send, connections: int, n_requests: int) -> None:
    """Send requests, as many at a time as there are connections."""
    left = iter(range(n_requests))

    async def work() -> None:
        for _ in left:
            await send()

    await asyncio.gather(*(work() for _ in range(connections)))


CLIENTS = {"aiohttp": with_aiohttp, "httpx": with_httpx, "openai": with_openai}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--latency", type=float, default=0.05)
    options = parser.parse_args()
    costs: list[Cost] = []
    with mock(options.latency) as base_url:
        for name, ask in CLIENTS.items():
            if find_spec(name) is None:
                print(f"{name} is not installed: skipped")
                continue
            for connections in (64, 256):
                with timed(
                    lambda *cost: costs.append(Cost(*cost)), f"{name}, {connections}"
                ) as counts:
                    asyncio.run(ask(base_url, connections, options.requests))
                    counts.append(options.requests)
    show(f"client and connections, {1000 * options.latency:g} ms latency", costs)


if __name__ == "__main__":
    main()
