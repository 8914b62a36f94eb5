"""Whole runs over servers, disks and processes that fail: the tables are those of a clean run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

import forked
from flipmeter.ask.pool import PERSISTENCE, Ledger
from flipmeter.ask.store import Store
from flipmeter.cli.asking import resumable
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import Study, read_study
from forked import Forked
from misbehaving import (
    KEY,
    MODEL,
    Behaviour,
    Process,
    Rule,
    Server,
    answer,
    breaks_off,
    chaos,
    client,
    fails,
    misbehaving,
    question,
    rates,
    receipt,
    repeats_itself,
    says,
    serving,
)
from misbehaving import tidy as tidy

pytestmark = [pytest.mark.usefixtures("tidy"), pytest.mark.long]

SMALL = {"seeds": [0], "test_size": 20}
LARGE = {"seeds": [0, 1], "test_size": 150}  # 150 items x 7 views x 2 seeds
N_LARGE = 2_100
CONCURRENCY = 16
UNDER_WAY = 2 * CONCURRENCY
"""What may be gone with a process: what was sent, and what came in the same moment before."""
HURRY = {"attempts": 12, "first_pause": 0.001, "crowded_pause": 0.01, "longest_pause": 0.05}
OVERFLOW = "This model's maximum context length is 4097 tokens; your messages have 4,120 of them."


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs be as persistent as ever, but with short pauses."""
    for name, value in HURRY.items():
        monkeypatch.setitem(vars(PERSISTENCE), name, value)


def study_at(url: str, size: dict[str, Any] = SMALL, timeout: float = 60) -> Study:
    """Return a study whose prompts are all different, so that a receipt names a request.

    A busy machine must not ask twice: the timeout is short only where an answer never ends.
    """
    limits = {"concurrency": CONCURRENCY, "timeout": timeout}
    model = {"model": f"http/{MODEL}", "base_url": url, **limits}
    fixed = {"models": [model], "datasets": ["reviews"], "repeats": 1, "base": {"shots": 1}}
    return read_study({**fixed, **size})


def performed(study: Study, folder: Path, ledger: Ledger | None = None) -> Run:
    """Perform a study in a folder that also holds its replies."""
    with Store(folder / "replies.sqlite") as store:
        return perform(study, folder / "run", store, Terms(ledger or Ledger(), anyway=True))


def table(run: Run) -> list[tuple[object, ...]]:
    """Return the decisions but for how long they took."""
    return run.decisions.drop("seconds").rows()


def receipts(folder: Path) -> list[int]:
    """Return the receipts of all stored replies."""
    with Store(folder / "replies.sqlite") as store:
        return [number for (number,) in store.read("SELECT prompt_tokens FROM replies")]


def asked(server: Server) -> list[int]:
    return [receipt(body) for body in server.bodies]


def grep(folder: Path, secret: str) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if secret.encode() in path.read_bytes()]


# Ten faults in a hundred requests


def sick(seed: int) -> Rule:
    """Return a rule of random faults by which some prompts fail whenever they are asked."""
    random_faults = chaos(seed)

    def rule(body: Any) -> Behaviour:
        if receipt(body) % 100 == 7:
            return fails(400, OVERFLOW)
        return fails(500, "always") if receipt(body) % 100 == 8 else random_faults(body)

    return rule


@pytest.mark.usefixtures("hurried")
def test_two_thousand_requests_with_faults_end_in_the_table_of_a_clean_run(tmp_path: Path) -> None:
    with serving() as server:
        study = study_at(server.url, LARGE)
        clean = performed(study, tmp_path / "clean")
        n_clean, server.rule = len(server.bodies), sick(5)
        run = performed(study_at(server.url, LARGE, timeout=2), tmp_path / "sick")
        n_sick, server.rule = len(server.bodies) - n_clean, rates
        named = run.calls.filter(pl.col("error") != "")
        stored = run.calls.filter(pl.col("error") == "")
        assert n_clean == len(run.calls) == run.calls["key"].n_unique() == N_LARGE
        assert n_sick > 1.1 * N_LARGE
        assert 0.01 * N_LARGE < len(named) < 0.03 * N_LARGE
        assert set(named["error"].str.extract(r"(maximum context length|always)")) == {
            "maximum context length",
            "always",
        }
        with Store(tmp_path / "sick" / "replies.sqlite") as store:
            assert set(store.get(run.calls["key"])) == set(stored["key"])
        again = Ledger()
        healed = performed(study, tmp_path / "sick", again)
        assert (again.stored, again.asked, again.failed) == (len(stored), len(named), 0)
    assert table(healed) == table(clean)
    assert healed.estimates.equals(clean.estimates)


# Faults that are the answer


def one_view(rule: Callable[[Any], Behaviour], tmp_path: Path) -> Run:
    with serving(rule) as server:
        return performed(study_at(server.url), tmp_path)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("choice", "fault"),
    [
        ({"message": {"content": None}, "finish_reason": "stop"}, "unparsed"),
        ({"message": {"content": ""}, "finish_reason": "length"}, "truncated"),
        ({"message": {"content": "3"}, "finish_reason": "content_filter"}, "refused"),
        ({"message": {"content": OVERFLOW}, "finish_reason": "stop"}, "unparsed"),
        ({"message": {"content": OVERFLOW}, "finish_reason": "length"}, "truncated"),
    ],
)
def test_an_answer_without_a_class_is_stored_once_and_counted_by_its_name(
    tmp_path: Path, choice: dict[str, Any], fault: str
) -> None:
    with serving(lambda _: says(answer(choices=[choice]))) as server:
        run = performed(study_at(server.url), tmp_path)
        performed(study_at(server.url), tmp_path)
        assert len(asked(server)) == len(set(asked(server))) == 140
    assert Counter(run.decisions["fault"]) == {fault: 140}
    assert set(run.decisions["rank"]) == {0}


def test_another_models_name_in_the_answer_is_on_record(tmp_path: Path) -> None:
    run = one_view(lambda _: says(answer("3", model="acme/substitute-8b")), tmp_path)
    assert set(run.calls["answered_by"]) == {"acme/substitute-8b"}


def test_of_two_choices_with_one_index_the_first_counts(tmp_path: Path) -> None:
    choices = [{"index": 0, "message": {"content": digit}} for digit in "42"]
    run = one_view(lambda _: says(answer(choices=choices)), tmp_path)
    assert set(run.decisions["slot"]) == {4}


def test_a_second_response_to_one_request_is_not_the_answer_to_the_next() -> None:
    async def run() -> list[str]:
        async with misbehaving(repeats_itself) as server, client(server.url) as backend:
            first = await backend.ask(question("one"))
            await asyncio.sleep(0.1)
            return [first.text, (await backend.ask(question("two"))).text]

    assert asyncio.run(run()) == ["one", "two"]


# A server that dies


@contextmanager
def dying(server: Process, after: int, seconds: float) -> Iterator[None]:
    """Kill a server when it has been asked a number of times; it comes back after some seconds."""

    def watch() -> None:
        while len(server.lines()) < after:
            time.sleep(0.01)
        server.kill()
        time.sleep(seconds)
        server.start()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        watcher.join()


def test_a_server_that_is_killed_and_comes_back_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"attempts": 10_000, "first_pause": 0.1, "longest_pause": 0.2}.items():
        monkeypatch.setitem(vars(PERSISTENCE), name, value)
    (tmp_path / "log").touch()
    with Process(tmp_path / "log") as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 100})
        ledger = Ledger()
        with dying(server, after=200, seconds=2.0):
            run = performed(study, tmp_path / "died", ledger)
        clean = performed(study, tmp_path / "clean")
    assert ledger.failed == 0
    assert ledger.retried > 0
    assert table(run) == table(clean)


def test_the_usual_persistence_outlasts_twenty_seconds() -> None:
    pauses = [PERSISTENCE.pause(attempt, None) for attempt in range(PERSISTENCE.attempts - 1)]
    assert sum(pauses) > 20


# What stops a run at once


@pytest.mark.usefixtures("hurried")
def test_a_wrong_key_stops_a_run_at_once_and_writes_nothing(tmp_path: Path) -> None:
    with serving(lambda _: fails(401, f"no account for {KEY}")) as server:
        with pytest.raises(Problem, match="variable HTTP_API_KEY is set but not accepted") as said:
            performed(study_at(server.url), tmp_path)
        assert len(server.bodies) <= CONCURRENCY
    assert not (tmp_path / "run").exists()
    assert KEY not in str(said.value)


@pytest.mark.usefixtures("hurried")
def test_a_host_without_an_address_stops_a_run_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"no-such-host\.invalid.*is the server running"):
        performed(study_at("http://no-such-host.invalid/v1"), tmp_path)


# A client that dies

CLIENT = f"""
import sys
from pathlib import Path
from flipmeter.ask.store import Store
from flipmeter.ask.pool import PERSISTENCE
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

vars(PERSISTENCE).update({HURRY!r})
folder = Path(sys.argv[1])
with Store(folder / "replies.sqlite") as store:
    perform(read_study(folder / "study.yaml"), folder / "run", store)
"""


def start_client(study: Study, folder: Path, **options: Any) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
    return Forked(CLIENT, folder, stderr=subprocess.PIPE, **options)


def kill_after(process: subprocess.Popen[str], server: Server, n_more: int) -> None:
    """Kill a client with -9 when it has asked a number of requests more."""
    goal = len(server.bodies) + n_more
    while len(server.bodies) < goal and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_client_killed_again_and_again_asks_nothing_twice_that_is_stored(tmp_path: Path) -> None:
    chance, stored = random.Random(9), set[int]()
    with serving() as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 200})
        for _ in range(8):
            n_before = len(server.bodies)
            kill_after(start_client(study, tmp_path / "a"), server, chance.randint(1, 160))
            assert not stored & set(asked(server)[n_before:])
            stored = set(receipts(tmp_path / "a"))
            assert len(set(asked(server)) - stored) <= UNDER_WAY
        n_before = len(server.bodies)
        assert start_client(study, tmp_path / "a").communicate()[1] == ""
        assert not stored & set(asked(server)[n_before:])
        assert sorted(receipts(tmp_path / "a")) == sorted(set(asked(server)))
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "a" / "run")) == table(clean)


# Two clients


def test_two_processes_may_ask_for_one_run_folder_at_once(tmp_path: Path) -> None:
    with serving() as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 100})
        clients = [start_client(study, tmp_path / "both") for _ in range(2)]
        assert [client.communicate()[1] for client in clients] == ["", ""]
        n_replies = len(receipts(tmp_path / "both"))
        assert n_replies == len(set(asked(server))) == 700
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "both" / "run")) == table(clean)


WRITER = """
import sys
from pathlib import Path
from flipmeter.ask.store import Store
from flipmeter.run.folder import Run; from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

folder = Path(sys.argv[1])
small = {"test_size": 5, "probes": ["label_order"], "repeats": 1, "base": {"shots": 0}}
study = read_study({"models": ["sim/honest"], "datasets": ["reviews"], **small})
with Store(folder / "replies.sqlite") as store:
    sys.stdin.readline()
    for _ in range(15):
        Run(perform(study, folder / "run", store).folder).estimates
"""


def test_two_processes_may_write_one_run_folder_at_once(tmp_path: Path) -> None:
    writers = [
        Forked(WRITER, tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.communicate()[1] for writer in writers] == [""] * 4
    assert Run(tmp_path / "run").decisions.height


# Disks and permissions

COMMAND = "from flipmeter.cli import main; main()"
SMALL_FILES = (
    f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1_500_000, 1_500_000)); {COMMAND}"
)
LIKE_ANYBODY = """
import ctypes, os, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)  # root may write anywhere: take that right away
prctl and prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", %r, *sys.argv[1:]])
"""


def run_command(
    study: Study, folder: Path, *options: str, script: str = COMMAND
) -> tuple[int, str]:
    """Run a study as a user would; return the exit code and all that was printed."""
    folder.mkdir(exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with Forked(script, "run", "study.yaml", *options, cwd=folder, **streams) as run:
        said = run.communicate()[0]
    return run.returncode, said


def test_a_disk_that_is_full_stops_a_run_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    options = ("--store", "replies.sqlite", "--out", "run")
    with serving() as server:
        study = study_at(server.url, {"seeds": [0], "test_size": 100})
        code, said = run_command(study, tmp_path / "a", *options, script=SMALL_FILES)
        assert (code, "Traceback" in said, "nothing stored is lost" in said) == (4, False, True)
        stored, n_before = set(receipts(tmp_path / "a")), len(server.bodies)
        assert 50 < len(stored) < 700
        assert not set(asked(server)) - stored  # what the file did not take was rescued
        assert run_command(study, tmp_path / "a", *options)[0] == 0
        assert not stored & set(asked(server)[n_before:])
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "a" / "run")) == table(clean)


@contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    folder.chmod(0o555)
    try:
        yield folder
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("--store", "replies.sqlite"),
        ("--out", "run"),
    ],
)
def test_a_folder_that_is_read_only_is_said_before_anything_is_asked(
    tmp_path: Path, option: str, other: str
) -> None:
    with serving() as server, read_only(tmp_path / "sealed") as sealed:
        command = LIKE_ANYBODY % COMMAND
        options = (option, str(sealed / other))
        code, said = run_command(study_at(server.url), tmp_path / "a", *options, script=command)
        assert (code, "Traceback" in said, str(sealed) in said) == (2, False, True)
        assert server.bodies == []


# The key


def telling(body: Any) -> Behaviour:
    """Put the key of the client into all that is answered."""
    number = receipt(body)
    if number % 7 == 1:
        return fails(400, f"bad request with {KEY}", KEY)
    named = {"model": KEY, "provider": KEY, "system_fingerprint": KEY}
    return says(answer(f"{1 + number % 5} {KEY}", **named))


def test_no_file_of_a_run_and_nothing_printed_holds_the_key(tmp_path: Path) -> None:
    with serving(telling) as server:
        code, said = run_command(study_at(server.url), tmp_path, "--trust-host", "127.0.0.1")
    export = ["cache", "export", "runs/study", "--out", "all.jsonl"]
    for verb in (["measure", "runs/study", "--json"], export):
        done = forked.run(*verb, cwd=tmp_path)
        assert done.returncode == 0
        said += done.stdout + done.stderr
    assert (code, "bad request with [key]" in said, KEY in said) == (4, True, False)
    assert grep(tmp_path, "[key]")
    assert grep(tmp_path, KEY) == []


FRANK = f"""
import logging
logging.basicConfig(level=logging.DEBUG)
from flipmeter.ask.store import Store
Store.put_many = lambda *_: 1 / 0
{CLIENT}
"""


def test_no_traceback_and_no_log_shows_the_key(tmp_path: Path) -> None:
    with serving(telling) as server:
        (tmp_path / "study.yaml").write_text(
            yaml.safe_dump(study_at(server.url).model_dump(mode="json"))
        )
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", FRANK, str(tmp_path)],
            env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert "ZeroDivisionError" in done.stderr
    assert "DEBUG:" in done.stderr
    assert KEY not in done.stdout + done.stderr


@pytest.mark.usefixtures("hurried")
def test_another_key_finds_the_same_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger()
    with serving() as server:
        performed(study_at(server.url), tmp_path)
        monkeypatch.setenv("HTTP_API_KEY", "sk-another-one")
        performed(study_at(server.url), tmp_path, ledger)
    assert (ledger.stored, ledger.asked) == (140, 0)


# What may be billed twice


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("fault", "is_billed"),
    [(breaks_off, True), (says(b""), True), (says({"choices": []}), True), (fails(503), False)],
    ids=["broken off", "empty", "no choice", "refused"],
)
def test_answers_that_cannot_be_read_are_counted_and_refusals_are_not(
    tmp_path: Path, fault: Behaviour, *, is_billed: bool
) -> None:
    ledger, sick = Ledger(), set[int]()

    def once(body: Any) -> Behaviour:
        number = receipt(body)
        if number % 5 or number in sick:
            return rates(body)
        sick.add(number)
        return fault

    with serving(once) as server:
        performed(study_at(server.url), tmp_path, ledger)
    assert sick
    assert ledger.unheard == (len(sick) if is_billed else 0)
    assert ledger.failed == 0


def test_a_command_warns_of_requests_that_may_be_billed_twice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ledger = Ledger()
    with resumable(ledger, tmp_path / "replies.sqlite"):
        ledger.unheard = 1234
    assert "1,234 requests were sent without a readable answer" in capsys.readouterr().err
    with resumable(Ledger(), tmp_path / "replies.sqlite"):
        pass
    assert not capsys.readouterr().err
