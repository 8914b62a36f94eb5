"""One store, many processes: a request that another asks is waited for, not paid again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from flipmeter.ask import engine, leases
from flipmeter.ask.engine import Engine
from flipmeter.ask.leases import Leases
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.process import ProcessName, this_process
from flipmeter.run.folder import Run
from flipmeter.types import Reply, Request
from forked import Forked
from misbehaving import Behaviour, client, question, rates, receipt, says, serving
from misbehaving import tidy as tidy
from test_faults import asked, performed, study_at, table

pytestmark = pytest.mark.usefixtures("tidy")

ONE, TWO = question("one"), question("two")
KEYS = [ONE.key, TWO.key]
REPLY = Reply("2", "stop")


def two(tmp_path: Path) -> tuple[Leases, Leases]:
    """Two who send through stores of their own on one file."""
    return Leases(Store(tmp_path / "r.sqlite")), Leases(Store(tmp_path / "r.sqlite"))


def n_rows(mine: Leases, name: str) -> int:
    return int(next(mine.store.read(f"SELECT count(*) FROM {name}"))[0])


def test_what_one_has_leased_the_other_does_not_get(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    assert first.claim(KEYS[:1]).elsewhere == {}
    assert set(second.claim(KEYS).elsewhere) == {ONE.key}
    assert set(first.claim(KEYS).elsewhere) == {TWO.key}


def test_a_reply_ends_its_lease(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    first.claim(KEYS)
    first.store.put(ONE, REPLY)
    found = second.claim(KEYS)
    assert (found.stored, set(found.elsewhere)) == ({ONE.key: REPLY}, {TWO.key})


def test_what_is_given_back_is_for_others_and_leaves_nothing(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    first.claim(KEYS)
    first.release()
    assert second.claim(KEYS).elsewhere == {}
    second.release()
    assert (n_rows(second, "leases"), n_rows(second, "owners")) == (0, 0)


CLAIM = """
import sys, time
from flipmeter.ask.store import Store
from flipmeter.ask.leases import Leases
Leases(Store(sys.argv[1])).claim(sys.argv[2:])
print("claimed", flush=True)
time.sleep(60)
"""


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    holder = Forked(CLAIM, tmp_path / "r.sqlite", *KEYS, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    mine = Leases(Store(tmp_path / "r.sqlite"))
    assert set(mine.claim(KEYS).elsewhere) == set(KEYS)
    holder.kill()
    holder.communicate()
    assert mine.claim(KEYS).elsewhere == {}


def elsewhere(leases_: Leases, **fields: Any) -> None:
    """Let an owner be another process than this one."""
    other = replace(this_process(), **fields)
    with leases_.store.transaction() as db:
        db.execute(
            "UPDATE owners SET node = ?, boot = ?, space = ?, pid = ?, started = ? WHERE id = ?",
            [other.node, other.boot, other.space, other.pid, other.started, leases_.id],
        )


@pytest.mark.parametrize(
    ("fields", "is_gone"),
    [
        ({}, False),
        ({"started": "1"}, True),  # its number was given to another process
        ({"boot": "an earlier one"}, True),  # the machine was started again
        ({"pid": 2**22 + 1}, True),
        ({"node": "another", "boot": "its own", "pid": 2**22 + 1}, False),
        ({"space": "another container", "pid": 2**22 + 1}, False),
    ],
)
def test_a_process_is_known_by_machine_number_and_start(
    fields: dict[str, Any], is_gone: bool
) -> None:
    assert replace(this_process(), **fields).is_gone == is_gone


def test_another_machine_is_judged_by_its_beats_as_seen_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SILENT", 0.05)
    first, second = two(tmp_path)
    first.claim(KEYS)
    elsewhere(first, node="far", boot="away")
    assert set(second.claim(KEYS).elsewhere) == set(KEYS)
    time.sleep(0.1)
    with first.store.transaction() as db:
        db.execute("UPDATE owners SET beats = beats + 1 WHERE id = ?", [first.id])
    assert set(second.claim(KEYS).elsewhere) == set(KEYS)
    time.sleep(0.1)
    assert second.claim(KEYS).elsewhere == {}


def test_a_living_process_of_this_machine_keeps_its_lease_however_long_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = Forked(CLAIM, tmp_path / "r.sqlite", *KEYS, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    monkeypatch.setattr(leases, "SILENT", 0.0)
    mine = Leases(Store(tmp_path / "r.sqlite"))
    for _ in range(3):
        time.sleep(0.01)
        assert set(mine.claim(KEYS).elsewhere) == set(KEYS)
    holder.send_signal(signal.SIGSTOP)
    assert set(mine.claim(KEYS).elsewhere) == set(KEYS)
    holder.kill()
    holder.communicate()
    assert mine.claim(KEYS).elsewhere == {}


def test_a_sender_of_this_process_that_is_no_more_holds_nothing(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    first.claim(KEYS)
    first.store.close()
    with suppress(Problem):
        first.release()  # as on a full disk: what it held stays in the store
    assert second.claim(KEYS).elsewhere == {}


def test_an_owner_is_named_in_words() -> None:
    assert str(ProcessName("vm", "", "", 7, "")) == "process 7 on vm"


class Gated:
    """A backend that answers when it is let, and keeps what it was asked."""

    identity = "acme"
    is_reproducible = False
    concurrency = 4

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.open = asyncio.Event()

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request.key)
        await self.open.wait()
        return REPLY

    async def close(self) -> None: ...


def test_two_engines_on_one_store_share_the_work_and_pay_once(tmp_path: Path) -> None:
    requests = [question(f"question {k}") for k in range(300)]

    async def run() -> tuple[list[str], dict[str, Reply], dict[str, Reply]]:
        backend = Gated()
        engines = [Engine({"acme": backend}, Store(tmp_path / "r.sqlite")) for _ in range(2)]
        both = asyncio.gather(*(engine.ask(requests) for engine in engines))
        await asyncio.sleep(0.2)
        backend.open.set()
        first, second = await both
        return backend.asked, first, second

    sent, first, second = asyncio.run(run())
    assert len(sent) == len(set(sent)) == 300
    assert first == second


def stand_still() -> None:
    """Keep a loop from beating, as a stopped process does."""
    time.sleep(0.1)


def test_who_was_stopped_for_long_leases_again_before_it_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "SILENT", leases.BEAT + 0.05)
    requests = [question(f"question {k}") for k in range(20)]

    async def run() -> list[str]:
        backend = Gated()
        slow = Engine({"acme": backend}, Store(tmp_path / "r.sqlite"))
        asking = asyncio.create_task(slow.ask(requests))
        await asyncio.sleep(0.1)
        other = Leases(Store(tmp_path / "r.sqlite"))
        elsewhere(slow._leases, pid=2**22 + 1)  # as if another process had it, and died
        held = [request.key for request in requests if request.key not in backend.asked]
        assert other.claim(held).elsewhere == {}
        stand_still()
        backend.open.set()
        await asyncio.sleep(0.3)
        sent = list(backend.asked)
        other.release()
        await asking
        return sent

    assert len(asyncio.run(run())) == 4


def picky(body: Any) -> Behaviour:
    """Take no temperature, as some models do, and answer the rest after a while."""
    if "temperature" in body:
        refusal = {"message": "Unsupported parameter: 'temperature'", "param": "temperature"}
        return says({"error": refusal}, 400)
    return late(body)


@pytest.mark.parametrize("head_start", [0.0, 0.05])
def test_what_an_endpoint_taught_one_process_the_others_do_not_pay_for(
    tmp_path: Path, head_start: float
) -> None:
    requests = [question(f"question {k}", '{"temperature":0}') for k in range(30)]

    async def run(url: str) -> list[dict[str, Reply]]:
        async def ask(pause: float) -> dict[str, Reply]:
            await asyncio.sleep(pause)
            async with client(url, concurrency=4) as backend:
                mine = Engine({"acme": backend}, Store(tmp_path / "r.sqlite"))
                return await mine.ask(requests)

        return [*await asyncio.gather(ask(0.0), ask(head_start), ask(2 * head_start))]

    with serving(picky) as server:
        replies = asyncio.run(run(server.url))
        answered = Counter(receipt(body) for body in server.bodies if "temperature" not in body)
    assert (len(answered), set(answered.values())) == (30, {1})
    texts = [{key: one.text for key, one in heard.items()} for heard in replies]
    assert texts[0] == texts[1] == texts[2]


def test_a_run_says_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TELL_AFTER", 0.1)
    told: list[str] = []

    async def run() -> None:
        holder = Leases(Store(tmp_path / "r.sqlite"))
        holder.claim(KEYS[:1])
        backend = Gated()
        backend.open.set()
        mine = Engine({"acme": backend}, Store(tmp_path / "r.sqlite"), Ledger(on_wait=told.append))
        asking = asyncio.create_task(mine.ask([ONE, TWO]))
        await asyncio.sleep(1.0)
        holder.release()
        await asking

    asyncio.run(run())
    assert told == [
        f"1 request is being asked by {this_process()}; waiting for it (if that process hangs, "
        "stop it)"
    ]


CLIENT = """
import sys
from pathlib import Path
from flipmeter.ask.store import Store
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

folder = Path(sys.argv[1])
with Store(folder / "replies.sqlite") as store:
    perform(read_study(folder / "study.yaml"), folder / sys.argv[2], store)
"""


def late(body: Any) -> Behaviour:
    async def behave(request: Any) -> Any:
        await asyncio.sleep(0.03)
        return await rates(body)(request)

    return behave


def test_three_runs_of_one_study_pay_once_though_one_is_killed(tmp_path: Path) -> None:
    with serving(late) as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 60})
        patient = study.model_dump(mode="json")
        patient["models"][0]["timeout"] = 60  # a slow machine must not ask twice
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(patient))
        clients = [Forked(CLIENT, tmp_path, f"run-{k}", stderr=subprocess.PIPE) for k in range(3)]
        while len(server.bodies) < 100:
            time.sleep(0.005)
        os.kill(clients[0].pid, signal.SIGKILL)
        assert [one.communicate()[1] for one in clients][1:] == ["", ""]
        again = Counter(asked(server))
        clean = performed(study, tmp_path / "clean")
    assert len(again) == 420
    assert sum(again.values()) - 420 <= 16  # what the killed one had under way
    assert table(Run(tmp_path / "run-1")) == table(Run(tmp_path / "run-2")) == table(clean)
