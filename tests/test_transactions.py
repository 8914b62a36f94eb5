"""A run is a transaction: old or new, one writer at a time, room before money."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from flipmeter.ask import rescue as room
from flipmeter.ask.engine import Engine
from flipmeter.ask.leases import Leases
from flipmeter.ask.store import Store
from flipmeter.choose.card import Card, write_card
from flipmeter.choose.classify import Job, LabelCounts
from flipmeter.errors import Incomplete, Problem
from flipmeter.files import writing
from flipmeter.run import generation
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, DECISIONS, FILES, MANIFEST, STUDY, verify
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.entries import ModelEntry
from flipmeter.study.file import Study, read_study
from flipmeter.types import Reply
from forked import Forked
from full_disk import NO_DISK
from misbehaving import Behaviour, Process, question, run_at_once, serving
from misbehaving import tidy as tidy
from report_runs import simulated
from test_classify import TEXTS, do, labelled, slowly, write_csv
from test_classify import card as card
from test_faults import performed, study_at
from test_model_run import Scripted

pytestmark = pytest.mark.usefixtures("tidy")

COMMAND = "from flipmeter.cli import main; main()"


def start(folder: Path, *command: str, script: str = COMMAND) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return Forked(script, *command, cwd=folder, **streams)


# Generations

RERUNS = """
import sys
from pathlib import Path
from flipmeter.ask.store import Store
sys.path.insert(0, sys.argv[1])
from report_runs import simulated
for size in range(1_000):
    simulated(Path("run"), test_size=4 + size % 2, probes=["label_order"])
    print(size, flush=True)
"""


def test_killed_at_any_instant_a_folder_is_one_run_or_the_other(tmp_path: Path) -> None:
    chance = random.Random(4)
    for _ in range(4):
        writer = start(tmp_path, str(Path(__file__).parent), script=RERUNS)
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 3)):
            writer.stdout.readline()
        time.sleep(chance.random() / 20)
        writer.kill()
        writer.communicate()
        verify(tmp_path / "run")
        run = Run(tmp_path / "run")
        assert len(run.study.test_size * run.views) == len(run.decisions.filter(repeat=0))


@pytest.mark.parametrize("fails_at", ["rename", "write_text"])
def test_a_disk_full_at_the_commit_leaves_the_old_run_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    before = simulated(tmp_path, test_size=5, probes=["label_order"]).estimates
    kept = sorted(path.name for path in tmp_path.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    where = Path if fails_at == "rename" else generation
    with monkeypatch.context() as patch:
        patch.setattr(where, fails_at, full)
        with pytest.raises(Problem, match=r"No space left.*every reply so far is in the store"):
            simulated(tmp_path, test_size=6, probes=["label_order"])
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert Run(tmp_path).estimates.equals(before)


@pytest.mark.parametrize("name", [STUDY, CALLS, DECISIONS])
def test_a_file_of_another_run_is_refused_by_name(tmp_path: Path, name: str) -> None:
    here = simulated(tmp_path / "here", test_size=5, probes=["label_order"])
    there = simulated(tmp_path / "there", test_size=6, probes=["label_order"])
    shutil.copy(there.path(name), here.path(name))
    with pytest.raises(Problem, match=rf"{name} is damaged"):
        verify(tmp_path / "here")
    with pytest.raises(Problem, match=rf"{name} is damaged"):
        Run(tmp_path / "here").path(name)


def test_the_manifest_of_another_run_is_refused(tmp_path: Path) -> None:
    simulated(tmp_path / "here", test_size=5, probes=["label_order"])
    simulated(tmp_path / "there", test_size=6, probes=["label_order"])
    shutil.copy(tmp_path / "there" / MANIFEST, tmp_path / "here" / MANIFEST)
    with pytest.raises(Problem, match=r"run\.json is damaged"):
        _ = Run(tmp_path / "here").decisions


@pytest.mark.parametrize(
    "edit",
    [{"state": "stopped"}, {"study": "another"}, {"facts": {"reproducible": []}}, {"seal": ""}],
)
def test_an_edited_manifest_is_refused(tmp_path: Path, edit: dict[str, Any]) -> None:
    simulated(tmp_path, test_size=5, probes=["label_order"])
    told = json.loads((tmp_path / MANIFEST).read_text())
    assert any(told[name] != value for name, value in edit.items())
    (tmp_path / MANIFEST).write_text(json.dumps(told | edit))
    with pytest.raises(Problem, match=r"run\.json is damaged \(its content has changed"):
        _ = Run(tmp_path).decisions


def test_every_file_of_a_generation_is_sealed(tmp_path: Path) -> None:
    run = simulated(tmp_path, test_size=5, probes=["label_order"])
    assert set(run.manifest.files) == set(FILES)


# One writer at a time


def test_a_second_run_in_a_folder_waits_and_says_so(tmp_path: Path) -> None:
    told, terms = list[str](), Terms()
    terms.listener.on_note = told.append  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(1) as pool:
        with writing(tmp_path / "run", lambda: None):
            second = pool.submit(perform, study_of(5), tmp_path / "run", Store(), terms)
            while not told and not second.done():
                time.sleep(0.01)
            assert not second.done()
        second.result()
    assert told == [
        f"{tmp_path / 'run'} is being written by another process; waiting for it to finish"
    ]
    verify(tmp_path / "run")


def study_of(n_items: int) -> Study:
    fixed = {"models": ["sim/first-slot"], "datasets": ["reviews"], "probes": ["label_order"]}
    return read_study({**fixed, "test_size": n_items, "base": {"shots": 0}})


def test_a_second_classification_into_a_file_is_refused(card: Card, tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", TEXTS[:5])
    job = Job(tmp_path / "t.csv", tmp_path / "out.csv", "body")

    def begin_another(request: object, reply: object) -> None:
        with pytest.raises(Problem, match=r"out\.csv is being written by another process; wait"):
            begin_once.submit(do, card, job, anew=True).result()

    with ThreadPoolExecutor(1) as begin_once:
        assert do(card, job, on_reply=begin_another) == LabelCounts(5, 5)
    assert len(labelled(job.out)) == 5


def test_of_two_classifications_into_one_file_the_second_is_refused(
    card: Card, tmp_path: Path
) -> None:
    write_csv(tmp_path / "t.csv", TEXTS[:40])
    is_told = threading.Event()

    def held(body: Any) -> Behaviour:
        async def behave(request: Any) -> Any:
            await asyncio.to_thread(is_told.wait)
            return await slowly(body)(request)

        return behave

    with serving(held) as server:
        endpoint = ModelEntry(model="http/slow", base_url=server.url, concurrency=4)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        write_card(remote, tmp_path / "rater.yaml")
        command = ("classify", "rater.yaml", "t.csv", "--text", "body", "--out", "out.csv")
        first = start(tmp_path, *command)
        while not server.bodies:
            time.sleep(0.01)
        for more in ([], ["--anew"], ["--limit", "3"]):
            second = start(tmp_path, *command, *more)
            said = second.communicate()[0]
            assert second.returncode == 2, said
            assert "out.csv is being written by another process" in said
        is_told.set()
        said = first.communicate()[0]
        assert (first.returncode, len(server.bodies)) == (0, 40), said
    assert [row["row"] for row in labelled(tmp_path / "out.csv")] == [str(k) for k in range(1, 41)]


def test_a_drained_classification_goes_on_where_it_was(card: Card, tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", TEXTS[:40])
    with serving(slowly) as server:
        endpoint = ModelEntry(model="http/slow", base_url=server.url, concurrency=2)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        write_card(remote, tmp_path / "rater.yaml")
        command = ("classify", "rater.yaml", "t.csv", "--text", "body", "--out", "out.csv")
        first = start(tmp_path, *command)
        while len(server.bodies) < 10:
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGTERM)
        assert "run the same command again" in first.communicate()[0]
        assert first.returncode == 4
        assert (tmp_path / "out.csv.part").exists()
        assert not (tmp_path / "out.csv").exists()
        again = start(tmp_path, *command)
        said = again.communicate()[0]
        assert (again.returncode, len(server.bodies)) == (0, 40), said
    assert len(labelled(tmp_path / "out.csv")) == 40


# Room before money


def test_nothing_is_sent_that_there_is_no_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Scripted()
    monkeypatch.setattr(room, "RESERVE", 10**18)
    with (
        Store(tmp_path / "r.sqlite") as store,
        pytest.raises(Problem, match=r"free, but 3 replies need about .*r\.sqlite-wal \("),
    ):
        run_at_once(Engine({"acme": backend}, store).ask([question(f"{k}") for k in range(3)]))
    assert backend.asked == []


def test_the_journal_of_a_store_takes_less_room_than_the_reserve(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        for k in range(300):
            store.put(question(f"{k}"), Reply("1", "stop"))
        assert (tmp_path / "r.sqlite-wal").stat().st_size < room.RESERVE / 2


def test_a_lease_that_finds_the_disk_full_stops_the_sending(tmp_path: Path) -> None:
    keys = [question(f"{k}").key for k in range(2_000)]
    with Store(tmp_path / "r.sqlite") as store, store.room.held([question()]):
        list(store.read("PRAGMA max_page_count=1"))  # the least is what the file has
        with pytest.raises(Incomplete, match="is full; sending has stopped"):
            Leases(store).claim(keys)
        with pytest.raises(Incomplete, match="is full"):
            store.room.check()
        list(store.read("PRAGMA max_page_count=1000"))
        store.put(question(), Reply("1", "stop"))  # what was under way


def test_a_disk_that_others_fill_loses_nothing_and_stops_the_sending(tmp_path: Path) -> None:
    unshare = shutil.which("unshare") or pytest.skip("unshare gives a disk of our own")
    (tmp_path / "disk").mkdir()
    script = Path(__file__).with_name("full_disk.py")
    with Process(tmp_path / "log", latency=0.02) as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 60})
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
        paths = [str(tmp_path / name) for name in ("disk", "study.yaml", "log")]
        command = [unshare, "-rm", sys.executable, str(script), *paths]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == NO_DISK or "unshare" in done.stderr:
            pytest.skip("no disk can be mounted here")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["no room"]["code"], told["no room"]["sent"]) == (2, 0)
        assert "replies.sqlite" in told["no room"]["said"]
        assert told["filled"]["code"] == 4, told
        assert "the disk of the reply store" in told["filled"]["said"]
        assert told["filled"]["lost"] == 0
        assert (told["again"]["code"], told["again"]["twice"]) == (0, 0), told
        clean = performed(study, tmp_path / "clean")
    assert told["table"] == clean.decisions.drop("seconds").write_json()
