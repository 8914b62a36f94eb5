"""Workers of one backend: pace, permits, pauses and retries, in one layer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from flipmeter.ask.family import Backend
from flipmeter.ask.leases import Claimed, Leases
from flipmeter.ask.limits import Limiter, Purse, Spent, taken
from flipmeter.ask.replicas import Place, Rota
from flipmeter.ask.response import moment_after, without_secrets
from flipmeter.drain import GRACE
from flipmeter.errors import Drained, Incomplete, Outage, Problem, Retry, Unreachable
from flipmeter.loops import Bell, Clock
from flipmeter.process import ProcessName
from flipmeter.types import Reply, Request


@dataclass
class Ledger:
    """Counts of one run, over all its rounds; `on_wait` gets the process that it waits for.

    `unheard` counts what was sent and brought no answer that can be read: it may be billed, and is
    sent again.
    """

    wanted: int = 0
    stored: int = 0
    damaged: int = 0
    asked: int = 0
    failed: int = 0
    retried: int = 0
    unheard: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    spent: Spent = field(default_factory=Spent)
    on_wait: Callable[[str], object] | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The counts for the record of a run."""
        told = {**vars(self), "spent": asdict(self.spent)}
        return {name: told[name] for name in told if name not in ("started", "on_wait")}

    def note(self, reply: Reply) -> None:
        self.asked += 1
        self.failed += bool(reply.error)
        self.prompt_tokens += reply.usage.prompt or 0
        self.cached_tokens += reply.usage.cached or 0
        self.completion_tokens += reply.usage.completion or 0


FEWEST, FIRST, MOST = 4, 16, 1024
"""Number of requests leased at a time: about as many as are answered in a second."""
SOON, LATE = 0.5, 2.0

Found = Callable[[str, Reply], None]
AsSent = Callable[[Sequence[Request]], list[Request]]


@dataclass
class Claims:
    """The requests to one model, each leased shortly before it is sent.

    Leasing little in advance leaves the rest to other processes with the same requests. `as_sent`
    gives requests as their endpoint wants them, by what it taught anybody who shares the store: a
    reply is stored under that key, so that both keys are leased. `held` has what is ours, and
    `elsewhere` the processes that ask the rest.
    """

    leases: Leases
    found: Found
    requests: Sequence[Request]
    as_sent: AsSent
    held: dict[str, Request]
    elsewhere: dict[str, ProcessName]

    def __post_init__(self) -> None:
        self._open = {request.key: request for request in self.requests}
        self._mine: dict[str, Request] = {}
        self._size, self._last = FIRST, time.monotonic()

    def take(self, request: Request) -> bool:
        """Whether a request is ours to send now; if not, another asks it or has a reply."""
        if self.leases.is_stale or request.key not in self._mine:
            self._claim(request)
        return self._mine.pop(request.key, None) is not None

    def _claim(self, request: Request) -> None:
        """Lease a request and the next ones, and again those that others may have taken."""
        self._open.pop(request.key, None)
        is_stale = self.leases.is_stale
        ahead = self._mine if is_stale else islice(self._open, self._next_size() - 1)
        known = {request.key: request} | self._mine | self._open
        wanted = {key: known[key] for key in (request.key, *ahead)}
        claimed = self._leased([*wanted.values()])
        for key in wanted:
            self._open.pop(key, None)
            self._mine.pop(key, None)
        ours = {k: r for k, r in wanted.items() if k not in claimed.stored | claimed.elsewhere}
        self._mine |= ours
        self.held |= ours
        self.elsewhere |= claimed.elsewhere
        for key, reply in claimed.stored.items():
            self.found(key, reply)

    def _leased(self, requests: Sequence[Request]) -> Claimed:
        """Lease requests by their own keys, then those that are ours as they are sent, or not."""
        with self.leases.store.transaction():
            sent = {r.key: s.key for r, s in zip(requests, self.as_sent(requests), strict=True)}
            claimed = self.leases.claim([*sent])
            taken = claimed.stored.keys() | claimed.elsewhere.keys()
            others = {k: s for k, s in sent.items() if k != s and k not in taken}
            if not others:
                return claimed
            again = self.leases.claim([*others.values()])
            stored = {k: again.stored[s] for k, s in others.items() if s in again.stored}
            elsewhere = {k: again.elsewhere[s] for k, s in others.items() if s in again.elsewhere}
            # Two processes that hold one key each and wait for the other key would wait for ever.
            self.leases.give_back([*stored, *elsewhere])
            return Claimed(claimed.stored | stored, claimed.elsewhere | elsewhere)

    def _next_size(self) -> int:
        now = time.monotonic()
        lasted, self._last = now - self._last, now
        if lasted < SOON:
            self._size = min(MOST, 2 * self._size)
        elif lasted > LATE:
            self._size = max(FEWEST, self._size // 2)
        return self._size


ROW = 20
"""Failures in a row after which one request is sent at a time."""
PROBES = 3
"""Number of attempts for a server that has not answered yet; others get all attempts."""
SHOWN = 3
MOST_KINDS = 50


@dataclass
class Breaker:
    """Failures of one server since it last answered; one that answers now and then goes on."""

    has_answered: bool = False
    n_row: int = 0
    n_probes: int = 0
    outage: Outage | None = None
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def is_open(self) -> bool:
        return self.n_row >= ROW

    def answered(self) -> None:
        self.has_answered = True
        if self.n_row:
            self.n_row = self.n_probes = 0
            self.outage = None
            self.seen.clear()

    def failed(self, failure: Retry, *, is_probe: bool, attempts: int) -> None:
        """Count a failure; one too many is an outage.

        A server that asks for a pause is there, and gets as many tries as one that has answered.
        A request that was open along with many others does not count as a probe when it fails.
        """
        self.n_probes += is_probe
        self.n_row += 1
        if len(self.seen) < MOST_KINDS or str(failure) in self.seen:
            self.seen[str(failure)] += 1
        is_known = self.has_answered or failure.after is not None
        if self.n_probes >= (attempts if is_known else PROBES):
            told = [f"{n} x {what}" for what, n in self.seen.most_common(SHOWN)]
            told += ["and others"] if len(self.seen) > SHOWN else []
            way_out = (
                "run again when the endpoint answers: all replies are stored and not requested "
                "again"
                if self.has_answered
                else "is the server running? stored replies are kept"
            )
            self.outage = Outage(
                f"{self.n_row} attempts in a row failed and none was answered: {'; '.join(told)}; "
                f"{way_out}"
            )


Keep = Callable[[Request, Reply], Awaitable[None]]


@dataclass(frozen=True)
class Persistence:
    """The number of attempts and the pauses between them, in seconds.

    Pauses double from `first_pause`, or from `crowded_pause` when the endpoint says that it gets
    too much but not for how long, up to `longest_pause`. A pause that the endpoint tells is never
    cut short: one beyond `patience` ends the run.
    """

    attempts: int = 10
    first_pause: float = 0.25
    crowded_pause: float = 2.0
    longest_pause: float = 16.0
    patience: float = 900.0

    def pause(self, attempt: int, told: float | None) -> float:
        """The pause after a failed attempt, counted from 0."""
        first = self.crowded_pause if told == 0 else self.first_pause
        return max(told or 0.0, min(first * 2.0 ** min(attempt, 50), self.longest_pause))


PERSISTENCE = Persistence()


@dataclass
class GiveUp:
    """An error that ends a run: nothing more is sent, and what is under way is still heard."""

    problem: Exception | None = None
    event: asyncio.Event = field(default_factory=asyncio.Event)
    rotas: list[Rota] = field(default_factory=list)
    limit: asyncio.Timeout | None = None
    clock: Clock | None = None

    def because(self, problem: Exception) -> None:
        self.problem = self.problem or problem
        self.event.set()
        for rota in self.rotas:
            rota.end()

    def drain(self) -> None:
        """Stop sending on request, and wait for what is under way no longer than is decent."""
        self.because(Drained("stopped; all replies are stored"))
        if self.limit is not None:
            self.clock = Clock(self.limit, GRACE)

    async def sleep(self, seconds: float) -> None:
        """Wait for some time, or until the run is to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.event.wait()


@dataclass
class ServerGate:
    """The way to one server: all its clients wait for the same pause, pace and permits."""

    limiter: Limiter
    min_interval: float = 0.0
    next_start: float = 0.0
    n_answered: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    freed: Bell = field(default_factory=Bell)
    breaker: Breaker = field(default_factory=Breaker)

    @property
    def is_full(self) -> bool:
        return self.limiter.is_full or (self.breaker.is_open and self.limiter.in_use > 0)

    def hold(self, pause: float) -> None:
        """Let no request start for a while: a wait told to one holds for all."""
        self.next_start = max(self.next_start, _now() + pause)

    async def enter(self, request: Request, purse: Purse, stop: GiveUp) -> Spent | None:
        """Wait for pause, permit and budget; the lock keeps the order of the requests.

        The worst case of the call that may begin is set aside; None is a budget used up, or a run
        that is to end.
        """
        async with self.turn:
            # Each wait may be outdated by the next: another worker may be told to pause meanwhile.
            while stop.problem is None:
                wait = self.next_start - _now()
                if wait > 0:
                    await stop.sleep(wait)
                elif self.is_full:
                    await self.freed.wait()
                elif worst := purse.reserve(request):
                    self.next_start = _now() + self.min_interval
                    return worst
                elif purse.held.calls:
                    await purse.bell.wait()
                else:
                    return None
        return None


class _Gone(Exception):
    """The server of a request is gone, and another may answer."""


class _Later(Exception):
    """The server fails: whether it does so for everything is seen from other requests."""


@dataclass
class Pool:
    """Workers of one backend, which may be one of several that share a rota.

    `heard` are the models that have answered, in this run or, by the store, in an earlier one.
    """

    backend: Backend
    rota: Rota
    place: Place
    claims: Claims
    keep: Keep
    gate: ServerGate
    purse: Purse
    stop: GiveUp
    ledger: Ledger
    persistence: Persistence
    heard: set[str]
    n_workers: int = 0
    is_out: bool = False

    def hire(self, tasks: asyncio.TaskGroup) -> None:
        """Start workers, as many as there are permits by now."""
        most = min(self.gate.limiter.permits, self.backend.concurrency, self.rota.n_open)
        while self.n_workers < most:
            self.n_workers += 1
            tasks.create_task(self._work(tasks))

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        request: Request | None = None
        try:
            while (request := await self.rota.take(self.place)) is not None:
                if not self.claims.take(request):
                    self.rota.done(request)
                    await asyncio.sleep(0)
                    continue
                try:
                    reply = await self._persist(request)
                except _Gone:
                    self.ledger.retried += 1
                    self.rota.put_back(request)
                    continue
                except _Later:
                    self.rota.put_off(request)
                    continue
                if reply is None:
                    self.is_out = True
                    self.rota.end()
                    return
                self.hire(tasks)
                await self.keep(request, without_secrets(reply))
                self.rota.done(request)
        except Problem as problem:
            has_begun = request is not None and request.model in self.heard
            if has_begun and not isinstance(problem, Incomplete):
                why = f"{problem}; all replies so far are stored: fix this and run again"
                problem = Incomplete(why)
            self.stop.because(problem)
        except Exception as error:  # raised when all have ended: others are paid for, too
            self.stop.because(error)

    async def _persist(self, request: Request) -> Reply | None:
        """Retry until there is a reply or a permanent error; None if the budget is spent."""
        attempts, failure = self.persistence.attempts, Retry("not asked")
        n_before, breaker, rota = self.gate.n_answered, self.gate.breaker, self.rota
        for attempt in range(rota.n_tried[request.key], attempts):
            if breaker.is_open and rota.has_others(request):
                raise _Later
            if breaker.outage and attempt:
                failure = Retry(str(breaker.outage))
                break
            worst = None if self.is_out else await self.gate.enter(request, self.purse, self.stop)
            if worst is None:
                return None
            self.ledger.retried += bool(attempt)
            is_probe = breaker.is_open and not rota.has_others(request)
            try:
                return await self._attempt(request, worst)
            except Retry as retry:
                failure = retry
            if rota.fleet.lose(self.place, failure):
                if rota.n_returned[request.key] + 1 < attempts:
                    raise _Gone
                break
            rota.n_tried[request.key] = attempt + 1
            breaker.failed(failure, is_probe=is_probe, attempts=attempts)
            if breaker.outage:
                if rota.has_others(request) or not breaker.has_answered:
                    raise breaker.outage
                break  # what is left of the run has failed by itself
            await self._pause(attempt, failure)
        return self._given_up(request, failure, n_before)

    def _given_up(self, request: Request, failure: Retry, n_before: int) -> Reply:
        n_tried = self.rota.n_tried[request.key]
        if not isinstance(failure, Unreachable) or self.gate.n_answered > n_before:
            return Reply(error=f"{failure} (given up after {n_tried} attempts)")
        if not n_before:
            raise Problem(f"{failure} ({n_tried} attempts); is the server running?")
        raise Incomplete(
            f"{failure} ({n_tried} attempts); the server has gone away: run again when it is back; "
            "all replies are stored"
        )

    async def _attempt(self, request: Request, worst: Spent) -> Reply:
        """Ask once, and tell the gate and the purse how it went."""
        gate, took = self.gate, worst  # what breaks off after it was sent may be billed
        window = gate.limiter.start()
        try:
            reply = await self.backend.ask(request)
            took = Spent(1) if reply.error else taken(reply.usage, worst)
            gate.limiter.answered(window)
            gate.n_answered += 1
            gate.breaker.answered()
            if not reply.error:
                self.heard.add(request.model)
            return reply
        except Retry as retry:
            took = Spent(1) if retry.is_free else worst
            self.ledger.unheard += not retry.is_free
            if retry.after is None:
                gate.limiter.stumbled()
            else:
                gate.limiter.crowded(window)
            raise
        except BaseException:
            gate.limiter.left()
            raise
        finally:
            self.purse.settle(worst, took)
            gate.freed.ring()

    async def _pause(self, attempt: int, failure: Retry) -> None:
        """Wait before another attempt; what the endpoint tells, or an outage, holds for all."""
        breaker, last = self.gate.breaker, self.persistence.attempts - 1
        n_before = breaker.n_probes if breaker.is_open else attempt
        told = failure.after
        if told is not None and told > self.persistence.patience:
            raise Incomplete(
                f"{failure}; the endpoint requests a pause of {told:g} s: run again "
                f"{moment_after(told)}; all replies are stored and not requested again"
            )
        pause = self.persistence.pause(n_before, told)
        if told is not None or breaker.is_open:
            self.gate.hold(pause)
        elif attempt < last:
            await self.stop.sleep(pause)


def _now() -> float:
    return asyncio.get_running_loop().time()
