"""A real server on loopback that misbehaves on purpose, and a loop that does not wait."""

from __future__ import annotations

import asyncio
import gc
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from aiohttp import web

from flipmeter.model import Backend, open_backend
from flipmeter.model.run import Persistence
from flipmeter.types import Message, Model, Request

T = TypeVar("T")
Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]

KEY = "sk-or-v1-0badc0de/5eed+5ecret"
MODEL = "acme/rater"
QUICK = Persistence(attempts=4, first_pause=0.001, crowded_pause=0.001, longest_pause=0.01)


@pytest.fixture
def tidy(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Set a key; afterwards no session is open and no failure went unheard."""
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    yield
    gc.collect(1)
    records = [*caplog.get_records("call"), *caplog.records]
    assert [record.getMessage() for record in records] == []


def question(text: str = "How bad is it?", params: str = "{}", **fields: Any) -> Request:
    return Request("acme", (Message("user", text),), params, **fields)


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
    """Send without end."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 2**20)


async def garbles(request: web.Request) -> web.StreamResponse:
    """Send what is not HTTP, with the key of the client in it."""
    assert request.transport is not None
    request.transport.write(f"HELO {request.headers.get('Authorization')}\r\n\r\n".encode())
    request.transport.close()
    return web.Response()


class Server:
    """What a server has been sent, and how it behaves: by the script first, then by the rule."""

    def __init__(self, script: Iterable[Behaviour], rule: Callable[[Any], Behaviour]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""
        self._script = list(script)
        self._rule = rule
        self._runner: web.AppRunner | None = None

    @property
    def asked(self) -> list[str]:
        """Return the prompts in the order in which they came."""
        return [body["messages"][-1]["content"] for body in self.bodies]

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._behave)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def restart(self) -> None:
        await self.start(int(self.url.removesuffix("/v1").rpartition(":")[2]))

    async def _behave(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.paths.append(request.path)
        behaviour = self._script.pop(0) if self._script else self._rule(body)
        return await behaviour(request)


def echo(body: Any) -> Behaviour:
    """Answer with the prompt itself."""
    return says(answer(body["messages"][-1]["content"]))


@asynccontextmanager
async def misbehaving(
    *script: Behaviour, rule: Callable[[Any], Behaviour] = echo
) -> AsyncIterator[Server]:
    """Serve: the first requests get the script, later ones what the rule says for their body."""
    server = Server(script, rule)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


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
