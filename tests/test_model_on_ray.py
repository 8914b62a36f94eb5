"""What needs no Ray: what a study says of actors, what is refused, and how messages are told."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flipmeter as fm
from conftest import Cli
from flipmeter.ask import llama
from flipmeter.ask.engine import Engine
from flipmeter.ask.names import concurrency_of, identity_of
from flipmeter.ask.ray import Delivered, Holder, Mistake, RayBackend, ray_cluster
from flipmeter.ask.store import Store
from flipmeter.errors import Problem, Retry
from flipmeter.study.entries import ModelEntry
from flipmeter.types import Actors, Head, Message, Model, Reply, Request, Script

# What a study says


def test_a_study_says_how_many_actors_there_are_and_what_each_needs() -> None:
    entry = ModelEntry.model_validate(
        {"model": "sim/honest", "ray": {"replicas": 3, "num_gpus": 0.5, "resources": {"disk": 1}}}
    )
    assert entry.model_for(0.0).actors == Actors(3, num_gpus=0.5, resources={"disk": 1})


def test_a_model_takes_what_its_study_says_or_what_its_kind_does() -> None:
    assert concurrency_of(Model("sim/honest", concurrency=3)) == 3
    assert concurrency_of(Model("hf/./folder", options={"batch_size": 7})) == 7
    assert concurrency_of(Model("vllm/m")) == 128


# What is refused


@pytest.mark.parametrize("on", ["spark", "rayon", "ray:127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_cannot_be_joined_is_named(on: str) -> None:
    with pytest.raises(Problem, match=f"--on {on}: .*ray"), ray_cluster(on):
        raise AssertionError("there is no cluster")


def test_replicas_of_an_endpoint_are_not_asked_through_actors() -> None:
    model = Model("http/m", base_url=("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"))
    with pytest.raises(Problem, match="several base URLs, which are used without Ray"):
        RayBackend(model)


def test_without_ray_the_command_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = cli("run", "demo", "-m", "sim/honest", "--limit", "5", "--on", "ray")
    assert code == 2
    assert "pip install 'flipmeter[ray]'" in err
    assert not list(tmp_path.glob("runs/*"))


def test_an_engine_takes_the_threads_that_a_scheduler_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert llama.n_cores() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert llama.n_cores() >= 1


# What an actor does, in this process


class Moody:
    """A backend that takes its time, or fails, as the request says."""

    identity, concurrency, is_reproducible = "moody", 8, True

    async def ask(self, request: Request) -> Reply:
        await asyncio.sleep(int(request.script.rest) % 3 / 100)
        if request.repeat == 1:
            raise Problem("no key")
        if request.repeat == 2:
            raise Retry("busy", after=1.0)
        if request.repeat == 3:
            raise ValueError("a slip")
        return Reply(request.script.rest)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


class Together:
    """Answers all at once, when so many wait."""

    identity, concurrency, is_reproducible = "together", 8, True

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[Reply]] = []

    async def ask(self, request: Request) -> Reply:
        self._waiting.append(asyncio.get_running_loop().create_future())
        mine = self._waiting[-1]
        if len(self._waiting) == self.concurrency:
            for one in self._waiting:
                one.set_result(Reply("1"))
        return await mine

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


def test_what_is_posted_is_told_once_by_whichever_message_is_there() -> None:
    asked = [Request("m", Script(Head(), str(n)), repeat=n % 4) for n in range(40)]
    posted = list(enumerate(asked))

    async def delivered() -> list[tuple[int, object]]:
        holder = Holder()
        assert await holder.exchange(posted) is None  # nothing is open
        await holder.open(Model("sim/honest"), None, lambda *_: Moody())
        messages = {asyncio.ensure_future(holder.exchange(posted[n::3])) for n in range(3)}
        found: list[tuple[int, object]] = []
        while len(found) < len(posted):
            messages = messages or {asyncio.ensure_future(holder.exchange([]))}
            done, messages = await asyncio.wait(messages, return_when=asyncio.FIRST_COMPLETED)
            found += [one for message in done for one in message.result() or []]
        for message in messages:
            message.cancel()
        return found

    told = asyncio.run(delivered())
    assert sorted(number for number, _ in told) == list(range(40))
    kinds = [Reply, Problem, Retry, Mistake]
    assert all(type(said) is kinds[number % 4] for number, said in told)
    assert all(said == Reply(str(number)) for number, said in told if number % 4 == 0)
    assert "a slip" in str(dict(told)[3])


REQUEST = Request("together", Script.of([Message("user", "?")], 0))


def test_messages_do_not_stay_at_an_actor_when_one_has_brought_all_replies() -> None:
    async def run() -> list[list[Delivered] | None]:
        holder = Holder()
        await holder.open(Model("sim/honest"), None, lambda *_: Together())
        messages = [holder.exchange([(number, REQUEST)]) for number in range(8)]
        async with asyncio.timeout(120):
            return await asyncio.gather(*messages)

    told = asyncio.run(run())
    assert sorted(number for some in told for number, _ in some or []) == list(range(8))


class Cut:
    """A handle of an actor on a cluster that a client of Ray has lost."""

    exchange = here = open = property(lambda self: self)

    def options(self, **_: Any) -> Cut:
        return self

    def remote(self, *_: Any) -> Any:
        raise ConnectionError("Ray Client is not connected")


def test_a_cluster_that_is_out_of_reach_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = SimpleNamespace(RayError=LookupError, RayTaskError=KeyError)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=errors, kill=Cut().remote))
    fleet = RayBackend(Model("http/m", base_url="http://127.0.0.1:1/v1"))
    (actor,) = fleet.replicas
    actor.handle = Cut()
    fleet.there = {0}

    async def run() -> None:
        try:
            async with asyncio.timeout(120):
                await Engine({fleet.identity: fleet}, Store()).ask(
                    [replace(REQUEST, model=fleet.identity)]
                )
        finally:
            await fleet.close()

    with pytest.raises(Problem, match=r"cannot be reached any more .*not connected.*are stored"):
        asyncio.run(run())


@pytest.mark.parametrize("name", ["serve", "serve/", "pool/a", "actor/a/b/c", "actor//b"])
def test_a_name_on_ray_is_serve_or_actor_with_one_or_two_names(name: str) -> None:
    with pytest.raises(Problem, match=r"write ray/serve/APP"):
        identity_of(Model(f"ray/{name}"))


def test_a_named_engine_needs_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(Problem, match=r"ray/actor/a is on a cluster; pass its address: --on"):
        fm.Study(models=["ray/actor/a"], datasets=["reviews"], test_size=5).run(tmp_path / "run")


def test_a_named_engine_has_one_option() -> None:
    assert identity_of(Model("ray/serve/a", options={"method": "rate"})) == "ray/serve/a by rate"
    with pytest.raises(Problem, match="takes no option 'device'; known: method"):
        identity_of(Model("ray/serve/a", options={"device": 1}))
