"""Serve what is stored and ask for the rest: one layer owns order, retries and storing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flipmeter.model.backend import Backend, Retry
from flipmeter.model.store import Store
from flipmeter.types import Problem, Reply, Request

Asked = Callable[[Request, Reply], None]


@dataclass(frozen=True)
class Persistence:
    """How often a request is tried and how long the pauses between are, in seconds.

    Pauses double from `first_pause`, or from `crowded_pause` when the endpoint says that it gets
    too much but not for how long, up to `longest_pause`. A pause that the endpoint tells is never
    cut short: one beyond `patience` ends the run.
    """

    attempts: int = 6
    first_pause: float = 0.25
    crowded_pause: float = 2.0
    longest_pause: float = 60.0
    patience: float = 900.0

    def pause(self, attempt: int, told: float | None) -> float:
        """Return how long to wait after a failed attempt, counted from 0."""
        first = self.crowded_pause if told == 0 else self.first_pause
        return max(told or 0.0, min(first * 2.0 ** min(attempt, 50), self.longest_pause))


PERSISTENCE = Persistence()


@dataclass
class Ledger:
    """What a run has asked so far; the numbers behind the progress bar."""

    wanted: int = 0
    stored: int = 0
    asked: int = 0
    failed: int = 0
    retried: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    def note(self, reply: Reply) -> None:
        self.asked += 1
        self.failed += bool(reply.error)
        self.prompt_tokens += reply.usage.prompt or 0
        self.cached_tokens += reply.usage.cached or 0
        self.completion_tokens += reply.usage.completion or 0


async def ask_all(
    requests: Sequence[Request],
    backends: Mapping[str, Backend],
    store: Store,
    *,
    ledger: Ledger | None = None,
    min_interval: Mapping[str, float] | None = None,
    on_reply: Asked | None = None,
    persistence: Persistence = PERSISTENCE,
) -> dict[str, Reply]:
    """Return a reply for every request, by key; what fails for good is a reply with an error.

    Requests of one backend are sent in the order given. Every reply is stored before it is used;
    an error is not stored, so the next run asks again.
    """
    ledger = ledger or Ledger()
    distinct = {request.key: request for request in requests}
    replies = store.get(distinct)
    ledger.wanted += len(distinct)
    ledger.stored += len(replies)
    missing = [request for key, request in distinct.items() if key not in replies]

    def keep(request: Request, reply: Reply) -> None:
        if not reply.error:
            store.put(request, reply)
        replies[request.key] = reply
        ledger.note(reply)
        if on_reply is not None:
            on_reply(request, reply)

    async with asyncio.TaskGroup() as tasks:
        for identity, mine in _by_model(missing).items():
            gap = (min_interval or {}).get(identity, 0.0)
            pool = _Pool(backends[identity], iter(mine), keep, ledger, gap, persistence)
            for _ in range(min(max(1, backends[identity].concurrency), len(mine))):
                tasks.create_task(pool.work())
    return replies


def _by_model(requests: Iterable[Request]) -> dict[str, list[Request]]:
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.model, []).append(request)
    return groups


@dataclass
class _Pool:
    """Workers of one backend that share a queue, a pace and a pause."""

    backend: Backend
    queue: Iterator[Request]
    keep: Asked
    ledger: Ledger
    min_interval: float
    persistence: Persistence
    next_start: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def work(self) -> None:
        for request in self.queue:
            self.keep(request, await self._persist(request))

    async def _persist(self, request: Request) -> Reply:
        attempts, reason = self.persistence.attempts, ""
        for attempt in range(attempts):
            if attempt:
                self.ledger.retried += 1
            await self._wait_for_turn()
            try:
                return await self.backend.ask(request)
            except Retry as retry:
                reason, told = str(retry), retry.after
            pause = self._checked_pause(attempt, told, reason)
            if told is not None:
                self._hold(pause)
            elif attempt + 1 < attempts:
                await asyncio.sleep(pause)
        return Reply(error=f"{reason} (given up after {attempts} attempts)")

    def _checked_pause(self, attempt: int, told: float | None, reason: str) -> float:
        if (told or 0.0) > self.persistence.patience:
            raise Problem(
                f"{reason}; the endpoint asks for a pause of {told:g} s: run again after it, "
                "what has been answered is stored and not asked again"
            )
        return self.persistence.pause(attempt, told)

    def _hold(self, pause: float) -> None:
        """Let no worker start for a while: what one is told holds for all."""
        self.next_start = max(self.next_start, _now() + pause)

    async def _wait_for_turn(self) -> None:
        """Wait for the pause and the pace; the lock keeps the order in which requests came."""
        async with self.turn:
            wait = self.next_start - _now()
            while wait > 0:
                await asyncio.sleep(wait)
                # Another worker may have been told to pause in the meantime.
                wait = self.next_start - _now()
            self.next_start = _now() + self.min_interval


def _now() -> float:
    return asyncio.get_running_loop().time()
