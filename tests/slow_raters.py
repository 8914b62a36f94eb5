"""Simulated raters on Ray actors that take their time and note in a file what they are asked."""

from __future__ import annotations

import asyncio
import math
import os
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import World
from flipmeter.ask.names import open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.ray import RayBackend
from flipmeter.ask.store import Store
from flipmeter.loops import Bell
from flipmeter.run.rate import first_round, seat
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions, worlds
from flipmeter.types import Actors, Model, Reply, Request


class SlowRater:
    """A rater that answers `room` requests at a time and takes `latency` seconds for each."""

    def __init__(
        self, model: Model, world: World | None, latency: float, room: int, log: Path | None
    ) -> None:
        self._rater = open_backend(model, world)
        self.identity = self._rater.identity
        self.is_reproducible = self._rater.is_reproducible
        self.concurrency = room
        self._latency = latency
        self._turns = asyncio.Semaphore(room)
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def ask(self, request: Request) -> Reply:
        self._note(request, is_reply=False)
        async with self._turns:
            await asyncio.sleep(self._latency)
            reply = await self._rater.ask(request)
        self._note(request, is_reply=True)
        return reply

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def _note(self, request: Request, *, is_reply: bool) -> None:
        if self._log is not None:
            prefix = zlib.crc32(request.script.head.text.encode())
            line = f"{time.time()} {int(is_reply)} {os.getpid()} {request.key} {prefix}\n"
            os.write(self._log, line.encode())


def open_slowly(
    model: Model,
    world: World | None,
    latency: float = 0.05,
    room: int = 4,
    log: Path | None = None,
) -> SlowRater:
    return SlowRater(model, world, latency, room, log)


@dataclass(frozen=True)
class Line:
    """A request that came to a rater, or a reply that left it."""

    seconds: float
    is_reply: bool
    process: int
    key: str
    prefix: int


class Trial:
    """Some requests of a study, asked of slow raters on actors; it notes when each was stored."""

    def __init__(
        self,
        actors: Actors,
        log: Path | None = None,
        *,
        n_items: int = 60,
        n_seeds: int = 1,
        latency: float = 0.05,
        room: int = 4,
    ) -> None:
        self.model = Model("sim/first-slot", concurrency=room, actors=actors)
        study = read_study(
            {
                "models": [self.model.address],
                "datasets": ["reviews"],
                "seeds": list(range(n_seeds)),
                "test_size": n_items,
                "base": {"shots": 1},
                "repeats": 1,
            }
        )
        grid = conditions(study)
        self.world: World = worlds(study, study.load(), grid)["reviews"]
        slowly = partial(open_slowly, latency=latency, room=room, log=log)
        self.backend = RayBackend(self.model, self.world, open_one=slowly)
        identities = {seat(condition): self.backend.identity for condition in grid}
        self.requests = first_round(grid, identities).requests
        self.ledger = Ledger()
        self.stored: dict[str, float] = {}
        self._log = log
        self._arrived = Bell()

    async def ask(self, store: Store, requests: Sequence[Request] = ()) -> dict[str, Reply]:
        """Ask some requests, all unless told."""
        backends = {self.backend.identity: self.backend}
        engine = Engine(backends, store, self.ledger, on_reply=self._on_reply)
        return await engine.ask(requests or self.requests)

    def _on_reply(self, request: Request, _: Reply) -> None:
        self.stored[request.key] = time.time()
        self._arrived.ring()

    async def wait_for(self, n_stored: int) -> None:
        while len(self.stored) < n_stored:
            await self._arrived.wait()

    def lines(self) -> list[Line]:
        """Return what all raters noted, in the order of time."""
        assert self._log is not None
        rows = [line.split() for line in self._log.read_text().splitlines()]
        lines = [
            Line(float(at), reply == "1", int(pid), k, int(p)) for at, reply, pid, k, p in rows
        ]
        return sorted(lines, key=lambda line: line.seconds)

    def n_asked(self) -> Counter[str]:
        """Return how often each request came to a rater."""
        return Counter(line.key for line in self.lines() if not line.is_reply)

    def n_asked_though_stored(self) -> int:
        asked = [line for line in self.lines() if not line.is_reply]
        return sum(line.seconds > self.stored.get(line.key, math.inf) for line in asked)
