"""A model held by Ray actors: Ray places, watches and restarts them, and carries the requests."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flipmeter.ask.family import Backend, World
from flipmeter.ask.limits import Limiter
from flipmeter.ask.names import (
    can_be_reproducible,
    concurrency_of,
    identity_of,
    is_callable,
    is_in_process,
    open_backend,
)
from flipmeter.ask.replicas import Fleet, Place
from flipmeter.consent import (
    NOTHING,
    Trust,
    consented_digests,
    is_code_trusted,
    trusted_hosts,
    trusting,
)
from flipmeter.errors import Lost, Problem, Retry
from flipmeter.loops import Bell
from flipmeter.types import Decoding, Model, Reply, Request

Open = Callable[[Model, World | None], Backend]

LOCAL = "local"
CLIENT_PORT = 10001
CONNECTING = 5.0
"""Seconds until a cluster that does not answer is taken to be away."""
GATHERING = 0.003
"""Seconds for which a message waits for others that would leave with it."""
OPENINGS = 3
"""Number of times an actor may die while opening its model."""


@contextmanager
def ray_cluster(on: str) -> Iterator[None]:
    """Join a Ray cluster for a while: `ray`, `ray://HOST:PORT` or `ray:HOST:PORT`.

    A cluster that this process has joined already is used, and not left at the end.
    """
    address, ray = _cluster_address(on), _import_ray()
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    is_here_searched = not {"", str(Path.cwd())}.isdisjoint(sys.path)
    if not (is_here_searched or address.startswith("ray://")):
        # Ray would put the working folder on the path of its workers; through ray:// it does not.
        options["job_config"] = ray.job_config.JobConfig(_client_job=True)
    drains = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise Problem(f"--on {on}: cannot connect to Ray ({_last_line(error)})") from error
    with suppress(ValueError):  # not in the main thread, where Ray sets none either
        signal.signal(signal.SIGTERM, drains)  # Ray's own would end us at once
    try:
        yield
    finally:
        ray.shutdown()


def _cluster_address(on: str) -> str:
    """The address in Ray's form; a cluster started here is `local`."""
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
            f"--on {on}: no Ray cluster answers there ({error}); start one with `ray start "
            f"--head`,"
            " or give `--on ray` for one on this machine"
        ) from error
    return on if where.startswith("//") else where


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise Problem(f"--on ray needs Ray ({error}); pip install 'flipmeter[ray]'") from error
    return ray


@dataclass(frozen=True)
class ActorModel:
    """The model of an actor, and its node."""

    identity: str
    is_reproducible: bool
    node: str


class Mistake(Exception):
    """A mistake in the code that answers: it ends the run."""


Told = Reply | Problem | Retry | Mistake
"""Outcomes of a request to an actor: values, because Ray would wrap exceptions."""

Posted = tuple[int, Request]
Delivered = tuple[int, Told]
"""A request and what is said to it, under the number that the driver gave them."""


class Holder:
    """An actor with one backend, opened on its own node.

    A message between processes costs more than most of what is in it, so that requests come in
    batches and replies leave with whichever message is there when they are.
    """

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._told: list[Delivered] = []
        self._gathered = Bell()
        self._tasks: set[asyncio.Task[None]] = set()

    async def here(self) -> None:
        """Wait until there is an actor."""

    async def open(
        self, model: Model, world: World | None, open_one: Open, trust: Trust = NOTHING
    ) -> ActorModel | Problem:
        try:
            if self._backend is None:
                with trusting(trust.code, trust.hosts, trust.digests):
                    self._backend = await asyncio.to_thread(open_one, model, world)
        except Problem as problem:
            return problem
        return ActorModel(self._backend.identity, self._backend.is_reproducible, platform.node())

    async def exchange(self, posted: Sequence[Posted]) -> list[Delivered] | None:
        """Take requests, wait until some are answered, these or earlier ones, and return those.

        Who finds that another message has taken them returns with nothing: Ray runs so many calls
        of an actor at a time, and those that wait would keep out what is sent. None says that
        nothing is open, because Ray has restarted the actor.
        """
        if self._backend is None:
            return None
        for number, request in posted:
            task = asyncio.create_task(self._answer(self._backend, number, request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not self._told:
            await self._gathered.wait()
        told, self._told = self._told, []
        return told

    async def _answer(self, backend: Backend, number: int, request: Request) -> None:
        said: Told
        try:
            said = await backend.ask(request)
        except (Problem, Retry) as told:
            said = told
        except Exception:
            said = Mistake(traceback.format_exc())
        self._told.append((number, said))
        if len(self._told) == 1:
            asyncio.get_running_loop().call_later(GATHERING, self._gathered.ring)


class Actor:
    """A replica of a model on a Ray cluster; Ray may not have placed it yet."""

    handle: Any = None
    is_placed: bool = False

    def __init__(self, model: Model, identity: str, limiter: Limiter, server: str) -> None:
        self.identity = identity
        self.is_reproducible = can_be_reproducible(model, Decoding())
        self.limiter, self.server = limiter, server
        # An endpoint may have answered, and bills it, before the actor was lost.
        self._is_free = is_in_process(model)
        self.concurrency = (
            limiter.limit // model.actors.replicas if self._is_free else limiter.limit
        )
        self._title = model.title
        self._ray = _import_ray()
        self._numbers = count()
        self._outbox: list[Posted] = []
        self._awaited: dict[int, asyncio.Future[Told]] = {}
        self._messages: set[asyncio.Task[None]] = set()

    async def ask(self, request: Request) -> Reply:
        number = next(self._numbers)
        self._awaited[number] = asyncio.get_running_loop().create_future()
        self._outbox.append((number, request))
        if len(self._outbox) == 1:  # those who were answered together ask together
            asyncio.get_running_loop().call_later(GATHERING, self._send)
        said = await self._awaited[number]
        if isinstance(said, Exception):
            raise said
        return said

    async def close(self) -> None:
        for message in self._messages:
            message.cancel()
        await asyncio.gather(*self._messages, return_exceptions=True)
        if self.handle is not None:
            with suppress(Exception):  # it may be dead, or the cluster out of reach
                self._ray.kill(self.handle)

    def _send(self) -> None:
        """Send what is asked by now; an empty message fetches replies if no other is there to."""
        if self._outbox or (self._awaited and not self._messages):
            posted, self._outbox = self._outbox, []
            message = asyncio.create_task(self._carry(posted))
            self._messages.add(message)
            message.add_done_callback(self._arrived)

    def _arrived(self, message: asyncio.Task[None]) -> None:
        self._messages.discard(message)
        if not message.cancelled():
            asyncio.get_running_loop().call_later(GATHERING, self._send)

    async def _carry(self, posted: list[Posted]) -> None:
        """Bring requests to the actor, and what it says to these or to earlier ones back."""
        told = await self._exchange(posted)
        if isinstance(told, Exception):
            self._outbox = []
            told = [(number, told) for number in self._awaited]
        for number, said in told:
            awaited = self._awaited.pop(number, None)
            if awaited is not None and not awaited.done():  # who asked may have been cancelled
                awaited.set_result(said)

    async def _exchange(self, posted: list[Posted]) -> list[Delivered] | Lost | Mistake | Problem:
        try:
            told: list[Delivered] | None = await self.handle.exchange.remote(posted)
        except self._ray.exceptions.RayTaskError as error:
            return Mistake(str(error))
        except self._ray.exceptions.RayError as error:
            why = f"an actor of {self._title} was lost ({_last_line(error)})"
            return Lost(why, is_free=self._is_free)
        except Exception as error:
            return _cut_off(error)
        if told is None:
            return Lost(f"an actor of {self._title} was restarted", is_free=self._is_free)
        return told


class RayBackend(Fleet):
    """A model on several actors. What a lost one had under way is asked of another.

    The driver keeps store, budget, pace and retries; actors are placed when something is asked.
    """

    replicas: tuple[Actor, ...]

    def __init__(
        self, model: Model, world: World | None = None, *, open_one: Open = open_backend
    ) -> None:
        if isinstance(model.base_url, tuple):
            raise Problem(
                f"{model.title} has several base URLs, which are used without Ray; remove --on, "
                f"or set one base URL"
            )
        identity, self._ray = identity_of(model, world), _import_ray()
        # Its code has run here, by consent; a file is read again there, and may be another.
        is_file = model.address.rpartition(":")[0].endswith(".py")
        has_code = is_code_trusted() or not is_file
        trust = Trust(has_code, trusted_hosts(), consented_digests())
        shared = _shared_limit(model, identity)
        super().__init__([Actor(model, identity, *shared) for _ in range(model.actors.replicas)])
        self.is_reproducible = can_be_reproducible(model, Decoding())
        self._wanted = model.actors
        self._title = model.title
        self._opening = model, world, open_one, trust
        self._tasks: set[asyncio.Task[None]] = set()

    def muster(self) -> None:
        """Let Ray place the actors; what they know is sent once for all of them."""
        if self._tasks or self.there:
            return
        model, world, *rest = self._opening
        self._opening = model, self._ray.put(world), *rest
        wanted = self._wanted
        holder = self._ray.remote(
            num_cpus=wanted.num_cpus,
            num_gpus=wanted.num_gpus,
            resources=dict(wanted.resources),
            scheduling_strategy="SPREAD",
            max_restarts=-1,
        )(Holder)
        for place, actor in enumerate(self.replicas):
            actor.handle = holder.remote()
            self._begin(self._arrive(place))
        self._begin(self._be_patient())

    def lose(self, place: Place, failure: Retry) -> bool:
        """Ask a lost actor no more until Ray has started it again, be it the last."""
        if isinstance(failure, Lost) and place in self.there:
            self.there.discard(place)
            self.replicas[place].is_placed = False
            self._begin(self._arrive(place))
            self.changed.ring()
        return isinstance(failure, Lost)

    async def wait_for_all(self) -> None:
        """Wait until every actor can be asked; a run begins with the first."""
        self.muster()
        while self.problem is None and len(self.there) < len(self.replicas):
            await self.changed.wait()
        if self.problem is not None:
            raise self.problem

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _arrive(self, place: Place) -> None:
        """Wait until Ray has placed an actor and it has opened its model, then let it be asked."""
        actor = self.replicas[place]
        try:
            await actor.handle.here.options(max_task_retries=-1).remote()
            actor.is_placed = True
            held = await actor.handle.open.options(max_task_retries=OPENINGS).remote(*self._opening)
        except self._ray.exceptions.RayTaskError as error:
            held = Problem(f"{self._title} cannot be opened by an actor: {error}")
        except self._ray.exceptions.RayError as error:
            held = Problem(
                f"an actor died while opening {self._title} ({_last_line(error)}); does its node "
                f"have enough memory for the model?"
            )
        except Exception as error:
            held = _cut_off(error)
        problem = held if isinstance(held, Problem) else self._stranger(held)
        if problem is None:
            self.there.add(place)
        self.problem = self.problem or problem
        self.changed.ring()

    async def _be_patient(self) -> None:
        """Give up when Ray has placed no actor for too long."""
        while self.problem is None:
            try:
                async with asyncio.timeout(self._wanted.patience):
                    await self.changed.wait()
            except TimeoutError:
                if any(actor.is_placed for actor in self.replicas):
                    continue
                wanted = self._wanted
                each = {"CPU": wanted.num_cpus, "GPU": wanted.num_gpus, **wanted.resources}
                self.problem = Problem(
                    f"Ray has placed no actor of {self._title} for {wanted.patience:g} s: each "
                    f"needs {_resources(each)}; the cluster has "
                    f"{_resources(self._ray.cluster_resources())}, of which "
                    f"{_resources(self._ray.available_resources())} are free; ask for less under "
                    "`ray:` of the model, or add nodes"
                )
                self.changed.ring()

    def _stranger(self, held: ActorModel) -> Problem | None:
        """The error of an actor whose model differs from this process's."""
        if held.identity != self.identity:
            return Problem(
                f"the actor on {held.node} has '{held.identity}', but this machine has "
                f"'{self.identity}': install the same packages and files on all nodes"
            )
        if held.is_reproducible != self.is_reproducible:
            return Problem(
                f"{self._title} runs on another kind of device on {held.node} than on this "
                f"machine; set it in its `options`: device_map"
            )
        return None


def _shared_limit(model: Model, identity: str) -> tuple[Limiter, str]:
    """The limit of open requests at all actors together, and its owner.

    An endpoint has one limit for all its clients. Weights in an actor take as many requests as a
    backend does, and have as many again waiting, so that they are not idle while replies travel and
    are stored. A callable gets no more requests at a time than it takes: only we count them.
    """
    if is_in_process(model):
        n = concurrency_of(model) * (1 if is_callable(model) else 2)
        return Limiter(n * model.actors.replicas, is_adaptive=False), identity
    client = open_backend(model)
    limiter: Limiter = getattr(client, "limiter", None) or Limiter(client.concurrency)
    return limiter, getattr(client, "server", identity)


def _cut_off(error: Exception) -> Problem:
    """Error text of a Ray client, not in a Ray exception, when its server is gone."""
    return Problem(
        f"the Ray cluster cannot be reached any more ({_last_line(error)}); run again when it is "
        f"back; all replies are stored"
    )


def _resources(resources: dict[str, float]) -> str:
    """Amounts in words, without what Ray counts for itself."""
    named = {name: n for name, n in resources.items() if n and not name.startswith("node:")}
    counted = {name: n for name, n in named.items() if "memory" not in name}
    return ", ".join(f"{n:g} {name}" for name, n in counted.items()) or "nothing"


def _last_line(error: Exception) -> str:
    """The last line of a message: Ray says there why."""
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__
