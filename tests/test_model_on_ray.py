"""What needs no Ray: which replica answers, in which order groups are sent, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from flipmeter.entries import ModelEntry
from flipmeter.model import RayBackend, llama, ray_cluster
from flipmeter.model.affinity import Affinity, Replica, in_turns
from flipmeter.model.names import concurrency_of
from flipmeter.types import Actors, Head, Model, Problem, Request, Script

SIZES = st.lists(st.integers(1, 6), max_size=8)


def requests_of(sizes: list[int]) -> list[Request]:
    """Return groups of requests, each behind a head of its own."""
    return [
        Request("m", Script(Head(start=f"head {group}. "), f"item {place}"))
        for group, size in enumerate(sizes)
        for place in range(size)
    ]


def head_of(request: Request) -> Head:
    return request.script.head


# The order in which groups are sent


@given(SIZES, st.integers(1, 4))
def test_turns_leave_nothing_out_and_keep_the_order_within_a_group(
    sizes: list[int], n: int
) -> None:
    requests = requests_of(sizes)
    sent = list(in_turns(requests, n))
    assert sorted(sent, key=requests.index) == requests
    for head in map(head_of, requests):
        mine = [request for request in requests if head_of(request) == head]
        assert [request for request in sent if head_of(request) == head] == mine


@given(SIZES)
def test_one_replica_is_sent_one_group_after_the_other(sizes: list[int]) -> None:
    assert list(in_turns(requests_of(sizes), 1)) == requests_of(sizes)


@given(SIZES, st.integers(1, 4))
def test_no_more_groups_are_begun_than_there_are_replicas(sizes: list[int], n: int) -> None:
    sent = [head_of(request) for request in in_turns(requests_of(sizes), n)]
    for place in range(len(sent)):
        assert len(set(sent[: place + 1]) & set(sent[place:])) <= n


def test_as_many_groups_as_replicas_are_under_way_from_the_start() -> None:
    sent = [request.script.head.start for request in in_turns(requests_of([3, 3, 3]), 2)]
    assert sent == ["head 0. ", "head 1. "] * 3 + ["head 2. "] * 3


# Which replica answers


def test_a_group_keeps_to_its_replica_and_the_next_goes_to_the_least_busy() -> None:
    replicas, affinity = [Replica(4), Replica(4)], Affinity[Replica]()
    homes = []
    for request in in_turns(requests_of([4, 4]), 2):
        chosen = affinity.choose(head_of(request), replicas)
        chosen.n_under_way += 1
        homes.append((request.script.head.start, replicas.index(chosen)))
    assert {place for head, place in homes if head == "head 0. "} == {0}
    assert {place for head, place in homes if head == "head 1. "} == {1}


def test_a_lost_replicas_group_moves_and_stays_where_it_went() -> None:
    replicas, affinity, head = [Replica(4), Replica(4)], Affinity[Replica](), Head(start="a")
    first = affinity.choose(head, replicas)
    (other,) = (replica for replica in replicas if replica is not first)
    assert affinity.choose(head, [other]) is other
    assert affinity.choose(head, replicas) is other


def test_a_group_moves_before_another_replica_is_idle() -> None:
    replicas, affinity, head = [Replica(2), Replica(2)], Affinity[Replica](), Head(start="a")
    chosen = [affinity.choose(head, replicas)]
    for _ in range(3):
        chosen[-1].n_under_way += 1
        chosen.append(affinity.choose(head, replicas))
    assert chosen[0] is chosen[1]
    assert chosen[2] is chosen[3] is not chosen[0]


@given(SIZES, st.integers(1, 3), st.integers(1, 4))
def test_no_replica_gets_far_ahead_of_another(sizes: list[int], n: int, room: int) -> None:
    replicas, affinity = [Replica(room) for _ in range(n)], Affinity[Replica]()
    for request in in_turns(requests_of(sizes), n):
        affinity.choose(head_of(request), replicas).n_under_way += 1
        loads = [replica.n_under_way for replica in replicas]
        assert max(loads) - min(loads) <= room


@given(SIZES, st.integers(1, 3))
def test_groups_that_are_forgotten_do_not_pile_up(sizes: list[int], n: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flipmeter.model.affinity.MOST_HOMES", 2)
        affinity = Affinity[Replica]()
        for request in requests_of(sizes):
            affinity.choose(head_of(request), [Replica(1) for _ in range(n)])
            assert len(affinity.homes) <= 2


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
    with pytest.raises(Problem, match="several base URLs, which are asked without Ray"):
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
    assert llama._cores() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    assert llama._cores() >= 1
