"""Serve what is stored and ask for the rest: every request once, every reply on disk first."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from flipmeter.ask.dialect import corrected_request, note_corrections, recall_corrections, spoken_as
from flipmeter.ask.family import Backend
from flipmeter.ask.leases import BEAT, Leases
from flipmeter.ask.limits import Budget, Limiter, Purse
from flipmeter.ask.plan import PrefixCache
from flipmeter.ask.pool import PERSISTENCE, Claims, GiveUp, Ledger, Persistence, Pool, ServerGate
from flipmeter.ask.replicas import Rota, fleet_of
from flipmeter.ask.store import BATCH, Store
from flipmeter.drain import current_drain
from flipmeter.errors import Outage, Problem
from flipmeter.process import ProcessName
from flipmeter.types import Corrections, Reply, Request

Asked = Callable[[Request, Reply], None]
NEARLY_ALL = 0.8
"""The share of replies with which an outage ends in tables with errors, not in a stop."""
FIRST_WAIT, LONGEST_WAIT = 0.05, 1.0
"""Seconds between two looks at what other processes ask."""
TELL_AFTER = 10.0
"""Seconds of waiting for other processes after which a run says so."""


@dataclass
class Engine:
    """The engine of a run: backends by identity, with one store and one budget.

    Whoever asks through one engine shares its limits, and equal requests under way are one call. A
    budget holds for all calls that share a ledger.
    """

    backends: Mapping[str, Backend]
    store: Store
    ledger: Ledger = field(default_factory=Ledger)
    budget: Budget | None = None
    min_interval: Mapping[str, float] = field(default_factory=dict)
    on_reply: Asked | None = None
    persistence: Persistence = PERSISTENCE

    def __post_init__(self) -> None:
        self._purse = Purse(self.budget or Budget(), self.ledger.spent)
        self._gates: dict[str, ServerGate] = {}
        self._under_way: dict[str, asyncio.Future[Reply | None] | None] = {}
        self._leases = Leases(self.store)
        self._n_sending = 0
        self._taught: dict[tuple[str, str], Corrections] = {}
        self._held: dict[str, Request] = {}
        self._elsewhere: dict[str, ProcessName] = {}
        self._told: set[ProcessName] = set()
        self._heard: set[str] = set()

    async def ask(self, requests: Iterable[Request]) -> dict[str, Reply]:
        """A reply for every request, by key; a request that fails after retries has an error.

        Requests of one backend are sent in the order given, each replica of it has prefix groups of
        its own. Every reply is stored before it is used; an error is not stored, so the
        next run asks again. Before the budget is exceeded nothing more is sent, and OutOfBudget is
        raised when everything under way is stored.
        """
        asked = {request.key: self.as_sent(request) for request in requests}
        replies = await self._replies({request.key: request for request in asked.values()})
        return {key: replies[sent.key] for key, sent in asked.items()}

    def as_sent(self, request: Request) -> Request:
        """A request with what its endpoint taught this engine: the one that is sent and stored."""
        if not self._taught:
            return request
        return corrected_request(request, self._taught.get(_asked_as(request), ()))

    def _learn(self, request: Request, corrections: Corrections) -> None:
        """Keep what an endpoint taught with a reply, for what is asked next and for other runs."""
        if corrections and self._taught.get(_asked_as(request)) != corrections:
            self._taught[_asked_as(request)] = corrections
            with self.store.transaction():
                note_corrections(self.store, request.model, request.params, corrections)
                # Who reads that asks by other keys than those under which this is leased already.
                self._leases.claim([self.as_sent(one).key for one in self._held.values()])

    def _as_known(self, requests: Sequence[Request]) -> list[Request]:
        """Requests as they are sent by what their endpoint taught anybody who shares the store."""
        for way, one in {_asked_as(request): request for request in requests}.items():
            if found := recall_corrections(self.store, one.model, one.params):
                self._taught[way] = found
        return [self.as_sent(request) for request in requests]

    async def _replies(self, distinct: Mapping[str, Request]) -> dict[str, Reply]:
        replies = self.store.get(distinct)
        self.ledger.wanted += len(distinct)
        self.ledger.stored += len(replies)
        self.ledger.damaged += len(self.store.damaged & distinct.keys())
        self._heard.update(distinct[key].model for key in replies)
        stop = GiveUp()
        tell = partial(asyncio.get_running_loop().call_soon_threadsafe, stop.drain)
        try:
            missing = [distinct[key] for key in distinct if key not in replies]
            with current_drain().telling(tell), self.store.room.held(missing):
                await self._ask_missing(distinct, replies, stop)
        except Outage as outage:
            if len(replies) < NEARLY_ALL * len(distinct):
                raise
            # A run that has nearly all replies goes on to its tables without the rest.
            failed = {key: Reply(error=str(outage)) for key in distinct if key not in replies}
            for reply in failed.values():
                self.ledger.note(reply)
            replies |= failed
        return replies

    async def _ask_missing(
        self, distinct: Mapping[str, Request], replies: dict[str, Reply], stop: GiveUp
    ) -> None:
        pause = waited = 0.0
        while missing := [distinct[key] for key in distinct if key not in replies]:
            if pause:
                missing = missing[:BATCH]  # enough to see that there is something new
            n_before = len(replies)
            others: dict[str, asyncio.Future[Reply | None]] = {}
            for key in (r.key for r in missing if r.key in self._under_way):
                arrival = self._under_way[key] or asyncio.get_running_loop().create_future()
                others[key] = self._under_way[key] = arrival
            await self._send([r for r in missing if r.key not in others], replies, stop)
            for key, arrival in others.items():
                # Shielded: one who stops waiting does not stop the others.
                if reply := await asyncio.shield(arrival):
                    replies[key] = reply
            # What a sender failed to get is sent next time round, unless it has come meanwhile.
            replies |= self.store.get(key for key in others if key not in replies)
            is_idle = len(replies) == n_before and not others
            pause = min(LONGEST_WAIT, 2 * pause or FIRST_WAIT) if is_idle else 0.0
            waited = waited + pause if pause else 0.0
            if waited > TELL_AFTER:
                self._tell_who_asks(missing)
            if pause:
                await stop.sleep(pause)  # other processes ask what is left

    def _tell_who_asks(self, missing: Iterable[Request]) -> None:
        """Say once of each process that it is waited for: it may have been stopped by its user."""
        asking = Counter(self._elsewhere[r.key] for r in missing if r.key in self._elsewhere)
        for process in asking.keys() - self._told:
            self._told.add(process)
            if self.ledger.on_wait is not None:
                n = asking[process]
                self.ledger.on_wait(
                    f"{n:,} request{'s are' if n > 1 else ' is'} being asked by {process}; "
                    f"waiting for {'them' if n > 1 else 'it'} (if that process hangs, stop it)"
                )

    def land(self, key: str, reply: Reply | None) -> None:
        """End a request under way; None if it got no reply."""
        self._held.pop(key, None)
        arrival = self._under_way.pop(key, None)
        if arrival is not None and not arrival.done():
            arrival.set_result(reply)

    async def _send(
        self, requests: Sequence[Request], replies: dict[str, Reply], stop: GiveUp
    ) -> None:
        """Send what no other process asks; what one does is missing afterwards."""
        self._under_way |= dict.fromkeys(request.key for request in requests)
        journal = _Journal(self, replies)
        by_model: dict[str, list[Request]] = {}
        for request in requests:
            by_model.setdefault(request.model, []).append(request)
        pools = [
            pool
            for identity, some in by_model.items()
            for pool in self._pools(identity, some, journal, stop)
        ]
        beating = asyncio.create_task(self._beat())
        self._n_sending += 1
        try:
            await self._work(pools, stop)
        finally:
            beating.cancel()
            self._n_sending -= 1
            self._settle(journal, requests)
        if stop.problem is not None:
            raise stop.problem
        if any(pool.is_out for pool in pools):
            raise self._purse.out()

    async def _work(self, pools: Iterable[Pool], stop: GiveUp) -> None:
        """Let the workers of all pools work until nothing is left, or until a drain has lasted."""
        try:
            async with asyncio.timeout(None) as stop.limit, asyncio.TaskGroup() as tasks:
                for pool in pools:
                    pool.hire(tasks)
        except BaseExceptionGroup as group:
            raise _first_group_error(group) from None
        except TimeoutError:
            raise stop.problem or TimeoutError from None
        finally:
            stop.limit = None
            if stop.clock is not None:
                stop.clock.stop()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            with suppress(Problem):  # who cannot store says so
                self._leases.beat()

    def _settle(self, journal: _Journal, requests: Iterable[Request]) -> None:
        """Store what came last, then let others ask what got no reply."""
        try:
            journal.flush()
            self.store.refuse_loss()
        except BaseException:
            self.store.unsaved += journal.unsaved(requests)
            raise
        finally:
            if not self._n_sending:
                with suppress(Problem):
                    self._leases.release()
            for request in requests:
                self.land(request.key, None)

    @property
    def gates(self) -> Mapping[str, ServerGate]:
        """The ways to the servers that were asked so far."""
        return self._gates

    def _pools(
        self, identity: str, requests: Sequence[Request], journal: _Journal, stop: GiveUp
    ) -> list[Pool]:
        """The workers of a backend, or of each of its replicas."""
        fleet = fleet_of(self.backends[identity])
        for one in fleet.replicas:
            cache: PrefixCache | None = getattr(one, "cache", None)
            if cache is not None:
                cache.expect(requests)
        rota = Rota(requests, fleet)
        stop.rotas.append(rota)
        known = self._as_known, self._held, self._elsewhere
        claims = Claims(self._leases, journal.found, requests, *known)
        shared = self._purse, stop, self.ledger, self.persistence, self._heard
        return [
            Pool(one, rota, place, claims, journal.keep, self._gate(identity, one), *shared)
            for place, one in enumerate(fleet.replicas)
        ]

    def _gate(self, identity: str, backend: Backend) -> ServerGate:
        """The way to a backend's server, one for all who ask it."""
        server = _server_of_backend(identity, backend)
        if server not in self._gates:
            sharing = [
                (name, one)
                for name, known in self.backends.items()
                for one in fleet_of(known).replicas
                if _server_of_backend(name, one) == server
            ]
            # What an endpoint takes is learnt once, and outlives a run.
            limiters: list[Limiter] = [
                getattr(one, "limiter", None) or Limiter(one.concurrency, is_adaptive=False)
                for _, one in sharing
            ]
            self._gates[server] = ServerGate(
                # Where two models stand behind one server, the stricter limit holds for both.
                min(limiters, key=lambda limiter: limiter.limit),
                max(self.min_interval.get(name, 0.0) for name, _ in sharing),
            )
        return self._gates[server]


def _server_of_backend(identity: str, backend: Backend) -> str:
    """The object that stands for a backend's server: the backend itself by default."""
    return str(getattr(backend, "server", identity))


@dataclass
class _Journal:
    """Store replies, those that come together in one transaction, and hand them on after it."""

    engine: Engine
    replies: dict[str, Reply]
    pending: list[tuple[Request, Reply]] = field(default_factory=list)

    async def keep(self, request: Request, reply: Reply) -> None:
        self.pending.append((request, reply))
        if len(self.pending) == 1:
            # The first waits until all workers whose answers are there have had their turn.
            await asyncio.sleep(0)
            self.flush()
            self.engine.store.room.check()

    def found(self, key: str, reply: Reply) -> None:
        """Hand on what another process has stored."""
        self.replies[key] = reply
        self.engine.ledger.stored += 1
        self.engine.land(key, reply)

    def unsaved(self, requests: Iterable[Request]) -> list[tuple[Request, Reply]]:
        """Replies that may be nowhere but here: none of a store that is lost counts as there."""
        found = self.pending
        if self.engine.store.is_lost:
            found = [*found, *((r, self.replies[r.key]) for r in requests if r.key in self.replies)]
        return _without_failed(found)

    def flush(self) -> None:
        pending, self.pending = self.pending, []
        sent = [corrected_request(request, reply.corrections) for request, reply in pending]
        try:
            for request, reply in pending:
                self.engine._learn(request, reply.corrections)
            # Another process may have been faster: then its reply is the one that counts.
            earlier = self.engine.store.put_many(_without_failed(pending))
        except BaseException:
            self.pending = [*pending, *self.pending]  # tried once more at the end
            raise
        for one, (request, reply) in zip(sent, pending, strict=True):
            kept = earlier.get(one.key, reply)
            self.replies[request.key] = kept
            self.engine.land(request.key, kept)
            self.engine.ledger.note(reply)
            if self.engine.on_reply is not None:
                self.engine.on_reply(request, kept)


def _without_failed(pairs: Iterable[tuple[Request, Reply]]) -> list[tuple[Request, Reply]]:
    """Requests as they were sent, with their replies, without those that failed."""
    return [(corrected_request(r, one.corrections), one) for r, one in pairs if not one.error]


def _first_group_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: a caller need not know that there are workers."""
    error = group.exceptions[0]
    return _first_group_error(error) if isinstance(error, BaseExceptionGroup) else error


def _asked_as(request: Request) -> tuple[str, str]:
    """A model and the fields on which it may depend what else it takes."""
    return request.model, spoken_as(request.params)
