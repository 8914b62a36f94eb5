"""A real Ray cluster of several nodes on this machine: the same tables, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import World
from flipmeter.ask.names import open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.ray import RayBackend
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.run.rate import first_round, seat
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions, worlds
from flipmeter.types import Actors, Model, Reply
from misbehaving import KEY, answer, rates, says, serving
from slow_raters import SlowRater, Trial, open_slowly
from test_drain import RUN, late, start, study_in
from test_drain import wait_for as wait_for_requests
from test_faults import asked, receipts
from test_pair_order import judge
from test_planted_modules import COMMAND, MODULES, plant, planted_that_ran

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'flipmeter[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]

TESTS = Path(__file__).parent
N_NODES = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with two processors each, beside a head that holds no actor."""
    with pytest.MonkeyPatch.context() as patch:
        # Actors import what tests define.
        known = filter(None, (str(TESTS), os.environ.get("PYTHONPATH")))
        patch.setenv("PYTHONPATH", os.pathsep.join(known))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        client = {"ray_client_server_port": free_port()}
        head = {"num_cpus": 0, "include_dashboard": False, **client}
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        for _ in range(N_NODES):
            join(nodes)
        host = nodes.address.partition(":")[0]
        nodes.client_address = f"ray://{host}:{client['ray_client_server_port']}"
        ray.init(address=nodes.address, log_to_driver=False)
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def join(nodes: Any, attempts: int = 3, **has: Any) -> Any:
    """Add a node; Ray gives it 30 seconds to start, which a busy machine may not have."""
    for _ in range(attempts - 1):
        with suppress(Exception):
            return nodes.add_node(num_cpus=2, **has)
    return nodes.add_node(num_cpus=2, **has)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def study(model: str, n_items: int = 20, **changes: Any) -> Study:
    ray_entry = {"replicas": 4, "num_cpus": 0.5} | changes.pop("ray", {})
    content = {"models": [{"model": model, "ray": ray_entry}], "datasets": ["reviews"]}
    return read_study({**content, "test_size": n_items, "base": {"shots": 1}, **changes})


def run_of(asked: Study, folder: Path, *, on: str | None = None) -> Run:
    with Store(folder / "replies.sqlite") as store:
        return perform(asked, folder / "run", store, Terms(on=on))


def assert_same(here: Run, there: Run, *, but: Sequence[str] = ()) -> None:
    assert_frame_equal(here.decisions.drop(but), there.decisions.drop(but))
    calls = [run.calls.drop(but, strict=False) for run in (here, there)]
    assert_frame_equal(*calls)
    assert_frame_equal(here.estimates, there.estimates)
    assert_frame_equal(here.verdicts, there.verdicts)


# The same tables


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("model", ["sim/first-slot", "sim/biased-noisy", "sim/refusing"])
def test_tables_are_those_of_a_run_on_one_machine(model: str, tmp_path: Path) -> None:
    asked = study(model, seeds=[0, 1])
    assert_same(
        run_of(asked, tmp_path / "here"), run_of(asked, tmp_path / "there", on="ray"), but=()
    )


@pytest.mark.usefixtures("cluster")
def test_pairs_are_swapped_there_as_here(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    asked = judge(write, models=[{"model": "sim/first-answer?noise=0.3"}], test_size=9)
    here, there = (run_of(asked, tmp_path / one, on=on) for one, on in (("a", None), ("b", "ray")))
    assert_same(here, there)
    assert set(here.decisions["view"]) == {"base", "swapped"}


@pytest.mark.real
@pytest.mark.usefixtures("cluster")
def test_the_embedded_model_says_the_same_on_two_actors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = study("local/smollm2-135m", 4, probes=["label_order"], repeats=1, ray={"replicas": 2})
    with monkeypatch.context() as two_threads:
        two_threads.setenv("OMP_NUM_THREADS", "2")
        here = run_of(asked, tmp_path / "here")
    there = run_of(asked, tmp_path / "there", on="ray")
    # What an engine had computed before depends on which one it was, and so do seconds.
    assert_same(here, there, but=["seconds", "cached_tokens"])
    assert here.decisions["probabilities"].null_count() == 0


@pytest.mark.usefixtures("cluster")
def test_a_second_run_asks_nothing_and_needs_no_actor(tmp_path: Path) -> None:
    first = run_of(study("sim/honest"), tmp_path, on="ray")
    ledger = Ledger()
    nowhere = study("sim/honest", ray={"resources": {"unobtainium": 1}, "patience": 0.1})
    with Store(tmp_path / "replies.sqlite") as store:
        second = perform(nowhere, tmp_path / "again", store, Terms(ledger, on="ray"))
    assert ledger.asked == 0
    assert_frame_equal(first.decisions, second.decisions)


@pytest.mark.parametrize("door", ["ray", "ray://", "ray:"])
def test_the_command_joins_a_cluster_by_any_address_and_runs_nothing_that_lies_there(
    cluster: Any, door: str, tmp_path: Path
) -> None:
    plant(tmp_path, MODULES)
    on = {"ray": "ray", "ray://": cluster.client_address, "ray:": f"ray:{cluster.address}"}[door]
    (tmp_path / "s.yaml").write_text(
        "models: [{model: sim/first-slot, ray: {replicas: 2, num_cpus: 0.5}}]\n"
        "datasets: [reviews]\ntest_size: 10\nprobes: [label_order]\n"
    )
    command = [COMMAND, "run", "s.yaml", "--on", on]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert planted_that_ran(tmp_path) == ""
    assert done.returncode == 0, done.stderr
    assert len(Run(tmp_path / "runs" / "study").decisions) > 20


# Nodes that die


def test_a_node_dies_and_nothing_is_lost_or_asked_again_that_was_stored(
    cluster: Any, tmp_path: Path
) -> None:
    room, replicas = 4, 4
    doomed = [join(cluster, resources={"rater": 2}) for _ in range(2)]
    actors = Actors(replicas, num_cpus=0.1, resources={"rater": 1})
    trial = Trial(actors, tmp_path / "log", room=room)

    async def run() -> dict[str, Reply]:
        with Store(tmp_path / "replies.sqlite") as store:
            await trial.backend.wait_for_all()
            asking = asyncio.create_task(trial.ask(store))
            await trial.wait_for(len(trial.requests) // 4)
            before = {line.process for line in trial.lines()}
            await asyncio.to_thread(cluster.remove_node, doomed[0], allow_graceful=False)
            await trial.wait_for(len(trial.requests) // 2)
            doomed[0] = join(cluster, resources={"rater": 2})
            replies = await asking
            await trial.backend.close()
            assert len(before) == replicas
            assert len(store) == len(trial.requests)
            return replies

    replies = asyncio.run(run())
    for node in doomed:
        cluster.remove_node(node)
    n_under_way_at_most = 2 * 2 * room
    asked = trial.n_asked()
    assert set(replies) == {request.key for request in trial.requests} == set(asked)
    assert not any(reply.error for reply in replies.values())
    assert trial.ledger.failed == 0
    assert trial.ledger.retried > 0
    assert trial.n_asked_though_stored() == 0
    assert 0 <= asked.total() - len(asked) <= n_under_way_at_most
    local = open_backend(trial.model, trial.world)
    for request in trial.requests[::17]:
        assert asyncio.run(local.ask(request)) == replies[request.key]


def test_an_actor_that_dies_alone_is_started_again_by_ray(cluster: Any, tmp_path: Path) -> None:
    trial = Trial(Actors(2, num_cpus=0.1), tmp_path / "log", n_items=40)

    async def run() -> dict[str, Reply]:
        with Store() as store:
            await trial.backend.wait_for_all()
            half = len(trial.requests) // 2
            asking = asyncio.create_task(trial.ask(store, trial.requests[:half]))
            await trial.wait_for(40)
            os.kill(trial.lines()[0].process, signal.SIGKILL)
            await asking
            await trial.backend.wait_for_all()
            replies = await trial.ask(store)
            await trial.backend.close()
            return replies

    replies = asyncio.run(run())
    assert len(replies) == len(trial.requests)
    assert not any(reply.error for reply in replies.values())
    assert len({line.process for line in trial.lines()}) == 3
    assert trial.n_asked_though_stored() == 0


# Groups keep to an actor


@pytest.mark.usefixtures("cluster")
def test_a_prefix_group_keeps_to_one_actor(tmp_path: Path) -> None:
    trial = Trial(Actors(2, num_cpus=0.1), tmp_path / "log")

    async def run() -> None:
        await trial.backend.wait_for_all()
        with Store() as store:
            await trial.ask(store)
        await trial.backend.close()

    asyncio.run(run())
    table = pl.DataFrame([vars(line) for line in trial.lines() if not line.is_reply])
    most = table.group_by("prefix", "process").len().group_by("prefix").agg(pl.col("len").max())
    # One that would be idle takes over part of a group: some requests move.
    assert most["len"].sum() / len(table) > 0.75
    assert table["process"].n_unique() == 2
    by_process = table.group_by("process").len()["len"]
    assert by_process.max() < 0.6 * len(table)  # type: ignore[operator]


# Endpoints


@pytest.mark.usefixtures("cluster")
def test_actors_share_the_limit_of_an_endpoint(tmp_path: Path) -> None:
    under_way, most = 0, 0

    def rule(body: Any) -> Any:
        async def behave(request: Any) -> Any:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                await asyncio.sleep(0.02)
                return await rates(body)(request)
            finally:
                under_way -= 1

        return behave

    with serving(rule) as server:
        model = {"model": "http/acme/rater", "base_url": server.url, "concurrency": 3}
        asked = read_study(
            {
                "models": [{**model, "ray": {"replicas": 3, "num_cpus": 0.1}}],
                "datasets": ["reviews"],
                "test_size": 20,
                "repeats": 1,
            }
        )
        there = run_of(asked, tmp_path / "there", on="ray")
        assert most == 3
        assert_same(run_of(asked, tmp_path / "here"), there, but=["seconds"])


@pytest.mark.usefixtures("cluster")
def test_what_an_endpoint_refuses_is_told_as_without_ray(tmp_path: Path) -> None:
    refused = says({"error": {"message": "no such model", "code": "model_not_found"}}, 404)
    with serving(lambda _: refused) as server:
        asked = study("http/acme/rater")
        entry = asked.entries[0].model_copy(update={"base_url": server.url})
        asked = asked.model_copy(update={"models": [entry]})
        with pytest.raises(Problem, match="no such model; is 'acme/rater' the name"):
            run_of(asked, tmp_path, on="ray")


@pytest.mark.usefixtures("cluster")
def test_what_may_pass_is_asked_again(tmp_path: Path) -> None:
    seen: set[str] = set()

    def rule(body: Any) -> Any:
        text = body["messages"][-1]["content"]
        if text in seen:
            return says(answer("2"))
        seen.add(text)
        return says({"error": {"message": "busy", "code": 503}}, 503)

    with serving(rule) as server:
        asked = study("http/acme/rater", 5, probes=["label_order"], repeats=1)
        entry = asked.entries[0].model_copy(update={"base_url": server.url, "concurrency": 4})
        done = run_of(asked.model_copy(update={"models": [entry]}), tmp_path, on="ray")
    assert done.environment["asked"]["retried"] == done.environment["asked"]["asked"] == 10


# What is refused


def refused(backend: RayBackend) -> str:
    async def run() -> None:
        try:
            with Store() as store:
                await Engine({backend.identity: backend}, store).ask([request])
        finally:
            await backend.close()

    grid = conditions(study("sim/honest", 5))
    request = first_round(grid, {seat(grid[0]): backend.identity}).requests[0]
    with pytest.raises(Problem) as caught:
        asyncio.run(run())
    return str(caught.value)


def sim(actors: Actors, **options: Any) -> RayBackend:
    asked = study("sim/honest", 5)
    world = worlds(asked, asked.load(), conditions(asked))["reviews"]
    return RayBackend(Model("sim/honest", actors=actors), world, **options)


@pytest.mark.usefixtures("cluster")
def test_resources_that_nobody_has_are_named_with_what_there_is() -> None:
    said = refused(sim(Actors(2, num_cpus=1, num_gpus=9, patience=1.0)))
    assert "no actor of sim/honest for 1 s: each needs 1 CPU, 9 GPU" in said
    assert f"the cluster has {ray.cluster_resources()['CPU']:g} CPU" in said


@pytest.mark.usefixtures("cluster")
def test_an_actor_that_holds_another_model_is_not_asked() -> None:
    said = refused(sim(Actors(1, num_cpus=0.1), open_one=_another))
    assert "sim/honest" in said
    assert "same packages and files on all nodes" in said


@pytest.mark.usefixtures("cluster")
def test_a_model_that_an_actor_cannot_open_is_a_problem() -> None:
    assert refused(sim(Actors(1, num_cpus=0.1), open_one=_broken)) == "no weights on this node"


@pytest.mark.usefixtures("cluster")
def test_an_actor_that_dies_while_it_opens_a_model_is_given_up() -> None:
    said = refused(sim(Actors(1, num_cpus=0.1), open_one=_deadly))
    assert said.startswith("an actor died while opening sim/honest")


def _another(model: Model, world: World | None) -> SlowRater:
    rater = open_slowly(model, world)
    rater.identity = "sim/other@0"
    return rater


def _broken(model: Model, world: World | None) -> SlowRater:
    raise Problem("no weights on this node")


def _deadly(model: Model, world: World | None) -> SlowRater:
    os._exit(1)


# Signals


def test_a_signal_drains_a_run_whose_actors_ask_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    with serving(late) as server:
        study_in(tmp_path, server.url)
        run = start(tmp_path, *RUN, "--on", "ray")
        wait_for_requests(server, 40)
        run.send_signal(signal.SIGTERM)  # Ray sets a handler of its own
        said = run.communicate()[1]
        assert (run.returncode, "run the same command again" in said) == (4, True), said
        assert sorted(receipts(tmp_path)) == sorted(asked(server))


# The head of a cluster


def test_a_lost_head_costs_no_stored_reply_and_another_cluster_asks_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    head = {"num_cpus": 2, "include_dashboard": False}
    with serving(late) as server:
        study_in(tmp_path, server.url)
        doomed = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
        run = start(tmp_path, *RUN, "--on", f"ray:{doomed.address}")
        wait_for_requests(server, 60)
        doomed.remove_node(doomed.head_node, allow_graceful=False)
        said = run.communicate(timeout=300)[1]
        assert run.returncode != 0, said
        stored, n_asked = receipts(tmp_path), len(server.bodies)
        assert stored
        again = start(tmp_path, *RUN, "--on", "ray")
        said = again.communicate(timeout=300)[1]
        assert again.returncode == 0, said
        later = asked(server)[n_asked:]
        assert not set(stored) & set(later)
        assert sorted(stored + later) == sorted(receipts(tmp_path))


# Engines that the cluster holds already


class StandIn:
    """An engine as a user holds it: a chat body goes in, a response comes out."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        said = {"role": "assistant", "content": str(1 + len(body["messages"][-1]["content"]) % 5)}
        return {"model": "stand-in", "choices": [{"message": said, "finish_reason": "stop"}]}

    async def refuse(self, body: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(f"no model {body['model']} here")

    def asked(self) -> list[str]:
        return [body["messages"][-1]["content"] for body in self.bodies]


def named(model: str, **entry: Any) -> Study:
    content = {"models": [{"model": model, **entry}], "datasets": ["reviews"], "test_size": 10}
    return read_study({**content, "repeats": 1, "base": {"shots": 1}})


@pytest.mark.usefixtures("cluster")
def test_a_named_actor_is_asked_once_for_each_prompt(tmp_path: Path) -> None:
    actor = ray.remote(num_cpus=0.1)(StandIn).options(name="engine", namespace="mine").remote()
    run = run_of(named("ray/actor/mine/engine"), tmp_path, on="ray")
    prompts = ray.get(actor.asked.remote())
    assert set(run.decisions["fault"]) == {""}
    assert set(run.calls["answered_by"]) == {"stand-in"}
    assert len(prompts) == run.calls["key"].n_unique()
    again = run_of(named("ray/actor/mine/engine"), tmp_path, on="ray")
    assert ray.get(actor.asked.remote()) == prompts
    assert_same(run, again)
    ray.kill(actor)


@pytest.mark.usefixtures("cluster")
def test_the_error_of_a_named_engine_is_told_and_an_unknown_name_is_a_problem(
    tmp_path: Path,
) -> None:
    actor = ray.remote(num_cpus=0.1)(StandIn).options(name="stern", namespace="mine").remote()
    with pytest.raises(Problem, match="no model actor/mine/stern here"):
        run_of(
            named("ray/actor/mine/stern", options={"method": "refuse"}), tmp_path / "a", on="ray"
        )
    with pytest.raises(Problem, match="the cluster has no actor 'mine/nobody'"):
        run_of(named("ray/actor/mine/nobody"), tmp_path / "b", on="ray")
    ray.kill(actor)
