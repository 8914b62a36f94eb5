"""Workers of one backend: pace, permits, pauses and retries, in one layer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from flipmeter.base.drain import GRACE
from flipmeter.base.listening import Clock
from flipmeter.base.problem import Incomplete
from flipmeter.base.run_sync import Bell
from flipmeter.errors import Drained, Retry, Unreachable
from flipmeter.model.backends.backend import Backend
from flipmeter.model.backends.response import moment_after, without_secrets
from flipmeter.model.engine.breaker import Breaker
from flipmeter.model.engine.budget import Purse, Spent, taken
from flipmeter.model.engine.claimed_requests import Claims
from flipmeter.model.engine.ledger import Ledger
from flipmeter.model.engine.limiter import Limiter
from flipmeter.model.engine.replicas import Place, Rota
from flipmeter.types import Problem, Reply, Request

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
