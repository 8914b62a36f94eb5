"""Serve what is stored and ask for the rest: one layer owns order, retries and storing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flipmeter.model.backend import Backend, Retry
from flipmeter.model.budget import Budget, Purse, Spent
from flipmeter.model.http import Unreachable
from flipmeter.model.limiter import Limiter
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
    spent: Spent = field(default_factory=Spent)

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
    budget: Budget | None = None,
) -> dict[str, Reply]:
    """Return a reply for every request, by key; what fails for good is a reply with an error.

    Requests of one backend are sent in the order given. Every reply is stored before it is used;
    an error is not stored, so the next run asks again. A budget holds for all calls that share a
    ledger: before it is exceeded nothing more is sent, and OutOfBudget is raised when everything
    under way is stored.
    """
    ledger = ledger or Ledger()
    distinct = {request.key: request for request in requests}
    replies = store.get(distinct)
    ledger.wanted += len(distinct)
    ledger.stored += len(replies)
    missing = [request for key, request in distinct.items() if key not in replies]
    journal = _Journal(store, ledger, replies, on_reply)
    till = _Till(Purse(budget or Budget(), ledger.spent))
    pools = [
        _Pool(
            backends[identity],
            mine,
            journal,
            till,
            (min_interval or {}).get(identity, 0.0),
            persistence,
        )
        for identity, mine in _by_model(missing).items()
    ]
    try:
        async with asyncio.TaskGroup() as tasks:
            for pool in pools:
                pool.hire(tasks)
    except BaseExceptionGroup as group:
        raise _first_problem(group) or group from None
    finally:
        journal.flush()
    if any(pool.is_out for pool in pools):
        raise till.purse.out(len(distinct) - len(replies))
    return replies


def _first_problem(group: BaseExceptionGroup[BaseException]) -> Problem | None:
    """Return the first problem of a group: a caller need not know that there are workers."""
    for error in group.exceptions:
        found = _first_problem(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, Problem):
            return found
    return None


def _by_model(requests: Iterable[Request]) -> dict[str, list[Request]]:
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.model, []).append(request)
    return groups


@dataclass
class _Journal:
    """Store replies, those that come together in one transaction, and hand them on after it."""

    store: Store
    ledger: Ledger
    replies: dict[str, Reply]
    on_reply: Asked | None
    pending: list[tuple[Request, Reply]] = field(default_factory=list)

    async def keep(self, request: Request, reply: Reply) -> None:
        self.pending.append((request, reply))
        if len(self.pending) == 1:
            # The first waits until all workers whose answers are there have had their turn.
            await asyncio.sleep(0)
            self.flush()

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        self.store.put_many((request, reply) for request, reply in pending if not reply.error)
        for request, reply in pending:
            self.replies[request.key] = reply
            self.ledger.note(reply)
            if self.on_reply is not None:
                self.on_reply(request, reply)


@dataclass
class _Bell:
    """Wake those who wait for something to end."""

    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def wait(self) -> None:
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]

    def ring(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


@dataclass
class _Till:
    """The purse that all pools of a run share."""

    purse: Purse
    bell: _Bell = field(default_factory=_Bell)

    def settle(self, worst: Spent, reply: Reply | None) -> None:
        self.purse.settle(worst, None if reply is None or reply.error else reply.usage)
        self.bell.ring()


@dataclass
class _Pool:
    """Workers of one backend that share a queue, a limit, a pace and a pause."""

    backend: Backend
    requests: Sequence[Request]
    journal: _Journal
    till: _Till
    min_interval: float
    persistence: Persistence
    next_start: float = 0.0
    n_workers: int = 0
    is_out: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    freed: _Bell = field(default_factory=_Bell)

    def __post_init__(self) -> None:
        self.queue: Iterator[Request] = iter(self.requests)
        # What an endpoint takes is learnt once: its limiter outlives a round.
        known = getattr(self.backend, "limiter", None)
        self.limiter: Limiter = known or Limiter(self.backend.concurrency, is_adaptive=False)

    def hire(self, tasks: asyncio.TaskGroup) -> None:
        """Start workers, as many as there are permits by now."""
        while self.n_workers < min(self.limiter.permits, len(self.requests)):
            self.n_workers += 1
            tasks.create_task(self._work(tasks))

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        for request in self.queue:
            reply = await self._persist(request)
            if reply is None:
                return
            self.hire(tasks)
            await self.journal.keep(request, reply)

    async def _persist(self, request: Request) -> Reply | None:
        """Try until there is a reply, for good or bad; None is a budget that does not cover it."""
        attempts, failure = self.persistence.attempts, Retry("not asked")
        for attempt in range(attempts):
            worst = await self._enter(request)
            if worst is None:
                return None
            self.journal.ledger.retried += bool(attempt)
            try:
                return await self._attempt(request, worst)
            except Retry as retry:
                failure = retry
            pause = self._checked_pause(attempt, failure.after, str(failure))
            if failure.after is not None:
                self._hold(pause)
            elif attempt + 1 < attempts:
                await asyncio.sleep(pause)
        if isinstance(failure, Unreachable):
            raise Problem(f"{failure} ({attempts} attempts); is the server running?")
        return Reply(error=f"{failure} (given up after {attempts} attempts)")

    async def _attempt(self, request: Request, worst: Spent) -> Reply:
        """Ask once, and tell the limiter and the purse how it went."""
        window, reply = self.limiter.start(), None
        try:
            reply = await self.backend.ask(request)
            self.limiter.answered(window)
            return reply
        except Retry as retry:
            if retry.after is None:
                self.limiter.stumbled()
            else:
                self.limiter.crowded(window)
            raise
        except BaseException:
            self.limiter.left()
            raise
        finally:
            self.till.settle(worst, reply)
            self.freed.ring()

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

    async def _enter(self, request: Request) -> Spent | None:
        """Wait for pause, pace, permit and budget; the lock keeps the order of the requests.

        The worst case of the call that may begin is set aside; None is a budget used up.
        """
        purse = self.till.purse
        async with self.turn:
            # Each wait may be outdated by the next: another worker may be told to pause meanwhile.
            while not self.is_out:
                wait = self.next_start - _now()
                if wait > 0:
                    await asyncio.sleep(wait)
                elif self.limiter.is_full:
                    await self.freed.wait()
                elif worst := purse.reserve(request):
                    self.next_start = _now() + self.min_interval
                    return worst
                elif purse.held.calls:
                    await self.till.bell.wait()
                else:
                    self.is_out = True
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
