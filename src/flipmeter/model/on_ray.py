"""A model held by Ray actors: Ray places, watches and restarts them, and carries the requests."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from flipmeter.model.affinity import Affinity, Replica
from flipmeter.model.backend import Backend, Retry
from flipmeter.model.limiter import Limiter
from flipmeter.model.names import (
    World,
    concurrency_of,
    identity_of,
    is_in_process,
    is_reproducible,
    open_backend,
)
from flipmeter.model.pool import Bell
from flipmeter.types import Decoding, Model, Problem, Reply, Request

Open = Callable[[Model, World | None], Backend]

LOCAL = "local"
CLIENT_PORT = 10001
CONNECTING = 5.0
"""Seconds until a cluster that does not answer is taken to be away."""
OPENINGS = 3
"""How often an actor may die while it opens its model."""


@contextmanager
def ray_cluster(on: str) -> Iterator[None]:
    """Join a Ray cluster for a while: `ray`, `ray://HOST:PORT` or `ray:HOST:PORT`.

    A cluster that this process has joined already is used, and not left at the end.
    """
    address, ray = _address(on), _package()
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    try:
        ray.init(address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise Problem(f"--on {on}: Ray cannot be joined ({_reason(error)})") from error
    try:
        yield
    finally:
        ray.shutdown()


def _address(on: str) -> str:
    """Return what Ray calls an address; a cluster that is started here is `local`."""
    family, _, where = on.partition(":")
    if family != "ray":
        raise Problem(f"--on {on}: give ray, ray://HOST:{CLIENT_PORT} or ray:HOST:PORT")
    if not where:
        return LOCAL
    place = urlsplit(where if where.startswith("//") else f"//{where}")
    try:
        port = place.port or CLIENT_PORT
        with socket.create_connection((place.hostname or "", port), timeout=CONNECTING):
            pass
    except (OSError, ValueError) as error:
        raise Problem(
            f"--on {on}: no Ray cluster answers there ({error}); start one with `ray start --head`,"
            " or give `--on ray` for one on this machine"
        ) from error
    return on if where.startswith("//") else where


def _package() -> Any:
    try:
        import ray
    except ImportError as error:
        raise Problem(f"--on ray needs Ray ({error}); pip install 'flipmeter[ray]'") from error
    return ray


@dataclass(frozen=True)
class Held:
    """What an actor holds, and where."""

    identity: str
    is_reproducible: bool
    node: str


class Holder:
    """What an actor is: one backend, opened where the actor is.

    Problems and retries are handed back as values: Ray would wrap what is raised. None says that
    nothing is open, because Ray has started the actor anew.
    """

    _backend: Backend | None = None

    async def here(self) -> None:
        """Return when there is an actor."""

    async def open(self, model: Model, world: World | None, open_one: Open) -> Held | Problem:
        try:
            if self._backend is None:
                self._backend = await asyncio.to_thread(open_one, model, world)
        except Problem as problem:
            return problem
        return Held(self._backend.identity, self._backend.is_reproducible, platform.node())

    async def ask(self, request: Request) -> Reply | Problem | Retry | None:
        if self._backend is None:
            return None
        try:
            return await self._backend.ask(request)
        except (Problem, Retry) as told:
            return told


@dataclass(eq=False)
class _Actor(Replica):
    """An actor by its handle: whether Ray has placed it, and whether it can be asked."""

    handle: Any = None
    is_placed: bool = False
    is_there: bool = False


class RayBackend:
    """A model on several actors. What a lost one had under way is asked of another.

    The driver keeps store, budget, pace and retries; actors are placed when something is asked.
    """

    def __init__(
        self, model: Model, world: World | None = None, *, open_one: Open = open_backend
    ) -> None:
        if isinstance(model.base_url, tuple):
            raise Problem(
                f"{model.title} has several base URLs, which are asked without Ray; leave --on "
                "out, or name one"
            )
        self.identity = identity_of(model, world)
        self.is_reproducible = is_reproducible(model, Decoding())
        self.n_replicas = model.actors.replicas
        self.limiter, self.server = _shared_limit(model, self.identity)
        self.concurrency = self.limiter.limit
        self._wanted = model.actors
        # An endpoint may have answered, and bills it, before the actor was lost.
        self._is_free = is_in_process(model)
        self._title = model.title
        self._ray = _package()
        self._opening = model, world, open_one
        self._actors: list[_Actor] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._affinity: Affinity[_Actor] = Affinity()
        self._changed = Bell()
        self._problem: Problem | None = None

    async def ask(self, request: Request) -> Reply:
        if not self._actors:
            self._place()
        actor = self._affinity.choose(request.script.head, await self._there())
        actor.n_under_way += 1
        try:
            told = await actor.handle.ask.remote(request)
        except self._ray.exceptions.RayTaskError:
            raise  # a mistake in the code that answers, not a loss
        except self._ray.exceptions.RayError as error:
            self._lose(actor)
            lost = f"an actor of {self._title} was lost ({_reason(error)})"
            raise Retry(lost, is_free=self._is_free) from error
        finally:
            actor.n_under_way -= 1
        if told is None:
            self._lose(actor)
            raise Retry(f"an actor of {self._title} was started anew", is_free=True)
        if isinstance(told, Exception):
            raise told
        reply: Reply = told
        return reply

    async def wait_for_all(self) -> None:
        """Wait until every actor can be asked; a run begins with the first."""
        if not self._actors:
            self._place()
        while self._problem is None and not all(actor.is_there for actor in self._actors):
            await self._changed.wait()
        await self._there()

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor.handle)
        self._actors = []

    def _place(self) -> None:
        """Let Ray place the actors; what they know is sent once for all of them."""
        model, world, open_one = self._opening
        self._opening = model, self._ray.put(world), open_one
        wanted = self._wanted
        holder = self._ray.remote(
            num_cpus=wanted.num_cpus,
            num_gpus=wanted.num_gpus,
            resources=dict(wanted.resources),
            scheduling_strategy="SPREAD",
            max_restarts=-1,
        )(Holder)
        room = -(-self.concurrency // self.n_replicas)
        for _ in range(self.n_replicas):
            self._actors.append(_Actor(room, handle=holder.remote()))
            self._watch(self._actors[-1])

    def _lose(self, actor: _Actor) -> None:
        """Ask an actor no more until Ray has started it again."""
        if actor.is_there:
            actor.is_there = actor.is_placed = False
            self._watch(actor)

    def _watch(self, actor: _Actor) -> None:
        task = asyncio.create_task(self._arrive(actor))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _arrive(self, actor: _Actor) -> None:
        """Wait until Ray has placed an actor and it has opened its model, then let it be asked."""
        try:
            await actor.handle.here.options(max_task_retries=-1).remote()
            actor.is_placed = True
            held = await actor.handle.open.options(max_task_retries=OPENINGS).remote(*self._opening)
        except self._ray.exceptions.RayTaskError as error:
            held = Problem(f"{self._title} cannot be opened by an actor: {error}")
        except self._ray.exceptions.RayError as error:
            held = Problem(
                f"an actor dies while it opens {self._title} ({_reason(error)}); has its node "
                "memory enough for the model?"
            )
        problem = held if isinstance(held, Problem) else self._stranger(held)
        self._problem = self._problem or problem
        actor.is_there = problem is None
        self._changed.ring()

    def _stranger(self, held: Held) -> Problem | None:
        """Return what is wrong with an actor that holds something else than this process names."""
        if held.identity != self.identity:
            return Problem(
                f"the actor on {held.node} holds '{held.identity}', and this machine means "
                f"'{self.identity}': have the same packages and files on all nodes"
            )
        if held.is_reproducible != self.is_reproducible:
            return Problem(
                f"{self._title} runs on another kind of device on {held.node} than it would on "
                "this machine; say which in its `options`: device_map"
            )
        return None

    async def _there(self) -> Sequence[_Actor]:
        """Return the actors that can be asked; wait for the first."""
        while self._problem is None:
            if there := [actor for actor in self._actors if actor.is_there]:
                return there
            try:
                async with asyncio.timeout(self._wanted.patience):
                    await self._changed.wait()
            except TimeoutError:
                if not any(actor.is_placed for actor in self._actors):
                    raise self._unplaced() from None
        raise self._problem

    def _unplaced(self) -> Problem:
        wanted = self._wanted
        each = {"CPU": wanted.num_cpus, "GPU": wanted.num_gpus, **wanted.resources}
        return Problem(
            f"Ray has placed no actor of {self._title} for {wanted.patience:g} s: each needs "
            f"{_listed(each)}; the cluster has {_listed(self._ray.cluster_resources())}, of which "
            f"{_listed(self._ray.available_resources())} are free; ask for less under `ray:` of "
            "the model, or add nodes"
        )


def _shared_limit(model: Model, identity: str) -> tuple[Limiter, str]:
    """Return how much may be under way at all actors together, and whose limit that is.

    An endpoint takes what it takes, whoever asks it. Weights in an actor take what a backend does,
    and one request more, so that they do not wait while a reply travels.
    """
    if is_in_process(model):
        n = model.actors.replicas * (concurrency_of(model) + 1)
        return Limiter(n, is_adaptive=False), identity
    client = open_backend(model)
    limiter: Limiter = getattr(client, "limiter", None) or Limiter(client.concurrency)
    return limiter, getattr(client, "server", identity)


def _listed(resources: dict[str, float]) -> str:
    """Return amounts in words, without what Ray counts for itself."""
    named = {name: n for name, n in resources.items() if n and not name.startswith("node:")}
    counted = {name: n for name, n in named.items() if "memory" not in name}
    return ", ".join(f"{n:g} {name}" for name, n in counted.items()) or "nothing"


def _reason(error: Exception) -> str:
    """Return the last line of a message: Ray says there why."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
