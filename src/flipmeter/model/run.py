"""Serve what is stored and ask for the rest: one layer owns order, retries and storing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flipmeter.model.backend import Backend, Retry
from flipmeter.model.store import Store
from flipmeter.types import Reply, Request

ATTEMPTS = 6
LONGEST_PAUSE = 60.0

Asked = Callable[[Request, Reply], None]


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
            pool = _Pool(backends[identity], iter(mine), keep, ledger, gap)
            for _ in range(min(backends[identity].concurrency, len(mine))):
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
    next_start: float = 0.0

    async def work(self) -> None:
        for request in self.queue:
            self.keep(request, await self._persist(request))

    async def _persist(self, request: Request) -> Reply:
        reason = ""
        for attempt in range(ATTEMPTS):
            await self._pace()
            try:
                return await self.backend.ask(request)
            except Retry as retry:
                reason = str(retry)
                self.ledger.retried += 1
                pause = retry.after if retry.after is not None else 0.25 * 2.0**attempt
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(min(pause, LONGEST_PAUSE))
        return Reply(error=f"{reason} (given up after {ATTEMPTS} attempts)")

    async def _pace(self) -> None:
        if not self.min_interval:
            return
        now = time.monotonic()
        start = max(now, self.next_start)
        self.next_start = start + self.min_interval
        await asyncio.sleep(start - now)
