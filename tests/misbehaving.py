"""A real server on loopback that misbehaves on purpose, and a loop that does not wait.

    python tests/misbehaving.py LOG [--port 0] [--faults 0.1] [--seed 0] [--latency 0]

serves from a process of its own, which can be killed: it prints its port, and writes a line to LOG
for every request, "=" or "!" (answered, misbehaved) and the receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import random
import selectors
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from flipmeter.ask.family import Backend
from flipmeter.ask.names import open_backend
from flipmeter.ask.pool import Persistence
from flipmeter.consent import trusting
from flipmeter.types import Message, Model, Request, Script

T = TypeVar("T")
Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]
Rule = Callable[[Any], Behaviour]

KEY = "sk-or-v1-0badc0de/5eed+5ecret"
MODEL = "acme/rater"
QUICK = Persistence(attempts=4, first_pause=0.001, crowded_pause=0.001, longest_pause=0.01)


@pytest.fixture
def tidy(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Set a key for our servers; afterwards no session is open and no failure went unheard."""
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    with trusting(hosts=["127.0.0.1"]):
        yield
    gc.collect(1)
    records = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records] == []


def question(text: str = "How bad is it?", params: str = "{}", **fields: Any) -> Request:
    return Request("acme", Script.of([Message("user", text)]), params, **fields)


def answer(content: Any = "2", **fields: Any) -> dict[str, Any]:
    """Return a good answer; `fields` replace or add top-level ones."""
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"model": MODEL, "choices": [choice], **fields}


def says(body: Any, status: int = 200, **headers: str) -> Behaviour:
    """Answer with a body: bytes as they are, anything else as JSON."""

    async def behave(_: web.Request) -> web.StreamResponse:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=status, headers=named)

    return behave


def fails(status: int, message: str = "no", code: Any = None, **headers: str) -> Behaviour:
    return says({"error": {"message": message, "code": code or status}}, status, **headers)


def good() -> Behaviour:
    return says(answer())


async def resets(request: web.Request) -> web.StreamResponse:
    """Break the connection before a byte of the answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def breaks_off(request: web.Request) -> web.StreamResponse:
    """Break the connection in the middle of the body."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(json.dumps(answer()).encode()[:40])
    assert request.transport is not None
    request.transport.abort()
    return response


async def never_ends(request: web.Request) -> web.StreamResponse:
    """Send the start of an answer and keep the connection until the client has had enough."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"choices": [')
    await asyncio.Event().wait()
    return response


async def floods(request: web.Request) -> web.StreamResponse:
    """Send until the client has gone."""
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionResetError):
        while True:
            await response.write(b" " * 2**20)
    return response


async def garbles(request: web.Request) -> web.StreamResponse:
    """Send what is not HTTP, with the key of the client in it."""
    assert request.transport is not None
    request.transport.write(f"HELO {request.headers.get('Authorization')}\r\n\r\n".encode())
    request.transport.close()
    return web.Response()


async def repeats_itself(request: web.Request) -> web.StreamResponse:
    """Send the same answer twice, as two responses to one request; the second comes late."""
    body = json.dumps(echoed(json.loads(await request.read()))).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert request.transport is not None
    # One connection is left to itself: what aiohttp would send at the end of a handler must not be.
    request.transport.write(head + body)
    await asyncio.sleep(0.05)
    request.transport.write(head + body)
    await asyncio.sleep(0.2)
    request.transport.abort()
    return web.Response()


class Server:
    """What a server has been sent, and how it behaves: by the script first, then by the rule."""

    def __init__(self, script: Iterable[Behaviour], rule: Rule) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""
        self.models: list[dict[str, Any]] | None = None
        self._script = list(script)
        self.rule = rule
        self._runner: web.AppRunner | None = None

    @property
    def asked(self) -> list[str]:
        """Return the prompts in the order in which they came."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._behave)
        app.router.add_get("/v1/models", self._list)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        await self.start(self.port)

    @property
    def port(self) -> int:
        return int(self.url.removesuffix("/v1").rpartition(":")[2])

    async def _list(self, _: web.Request) -> web.StreamResponse:
        if self.models is None:
            raise web.HTTPNotFound
        return web.json_response({"object": "list", "data": self.models})

    async def _behave(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.paths.append(request.path)
        behaviour = self._script.pop(0) if self._script else self.rule(body)
        return await behaviour(request)


def echo(body: Any) -> Behaviour:
    """Answer with the prompt itself."""
    return says(echoed(body))


def echoed(body: Any) -> dict[str, Any]:
    return answer(body["messages"][-1]["content"])


def receipt(body: Any) -> int:
    """Return a number that only this prompt has, for every server the same."""
    content = body["messages"][-1]["content"].encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:6])


def rates(body: Any) -> Behaviour:
    """Answer with one of five classes, by the whole prompt; the prompt tokens are the receipt."""
    number = receipt(body)
    usage = {"prompt_tokens": number, "completion_tokens": 1}
    return says(answer(str(1 + number % 5), usage=usage))


FAULTS: tuple[Behaviour, ...] = (
    fails(500),
    fails(502),
    fails(503),
    resets,
    breaks_off,
    garbles,
    says(b""),
    says(b"<html>Bad gateway</html>"),
    says(json.dumps(answer("5")).encode()[:-9]),
    says(2 * json.dumps(answer("5")).encode()),
    says({"choices": []}),
    says({"error": {"code": 502, "message": "upstream"}}),
)
"""What passes: each request of a run may meet any of them."""
PAUSES: tuple[Behaviour, ...] = (fails(429), fails(429, Retry_After="0.02"), never_ends)
"""What passes too, but holds a whole run, or one connection until it times out."""


def chaos(seed: int, share: float = 0.1, n_pauses: float = 0.02) -> Rule:
    """Return a rule by which a share of all requests fails, a few of them with a pause."""
    chance = random.Random(seed)

    def rule(body: Any) -> Behaviour:
        if chance.random() >= share:
            return rates(body)
        return chance.choice(PAUSES if chance.random() < n_pauses else FAULTS)

    return rule


@asynccontextmanager
async def misbehaving(*script: Behaviour, rule: Rule = echo) -> AsyncIterator[Server]:
    """Serve: the first requests get the script, later ones what the rule says for their body."""
    server = Server(script, rule)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextmanager
def serving(rule: Rule = rates) -> Iterator[Server]:
    """Serve from a thread, for what has a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server((), rule)

    def wait_for(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result()

    wait_for(server.start())
    try:
        yield server
    finally:
        wait_for(server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Process:
    """A server in a process of its own, which can be killed and comes back on the same port."""

    def __init__(self, log: Path, share: float = 0.0, latency: float = 0.0) -> None:
        self.log = log
        self._options = {"faults": share, "latency": latency}
        self._port = 0
        self._n_starts = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        options = {**self._options, "port": self._port, "seed": self._n_starts}
        named = [f"--{name}={value}" for name, value in options.items()]
        self._n_starts += 1
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.log), *named], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kill it with -9, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def lines(self) -> list[tuple[bool, int]]:
        """Return for every request whether it was answered, and its receipt."""
        return [(line[0] == "=", int(line[1:])) for line in self.log.read_text().splitlines()]

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@asynccontextmanager
async def client(url: str, **fields: Any) -> AsyncIterator[Backend]:
    """Open a backend for an address as a study would, and close it."""
    backend = open_backend(Model(f"http/{MODEL}", base_url=url, **fields))
    try:
        yield backend
    finally:
        await backend.close()


class _Jump(selectors.DefaultSelector):
    """A selector that does not wait: it tells how long it would have."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.skipped += timeout or 0.0
        return super().select(timeout and 0)


class _Timeless(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.skipped


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run on a clock that jumps over every pause; not for work that waits for sockets."""
    with asyncio.Runner(loop_factory=_Timeless) as runner:
        return runner.run(work)


async def _serve(log: Path, port: int, latency: float, rule: Rule) -> None:
    journal = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def behave(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        behaviour, mark = rule(body), "!"
        try:
            await asyncio.sleep(latency)
            mark = "!" if behaviour in FAULTS + PAUSES else "="
        finally:  # a client that is gone before is no answer
            os.write(journal, f"{mark}{receipt(body)}\n".encode())
        return await behaviour(request)

    app = web.Application()
    app.router.add_post("/{path:.*}", behave)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--faults", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    options = parser.parse_args()
    rule = chaos(options.seed, options.faults, 0.001)
    asyncio.run(_serve(options.log, options.port, options.latency, rule))


if __name__ == "__main__":
    main()
