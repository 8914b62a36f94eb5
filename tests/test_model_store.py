"""The reply store: what is stored is never lost and never asked again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flipmeter.model import Store
from flipmeter.types import Message, Problem, Reply, Request, Script, Usage


def request(text: str, *, anchor: int = 0, repeat: int = 0) -> Request:
    script = Script.of([Message("user", text)], anchor)
    return Request("model@1", script, '{"temperature":0}', repeat=repeat)


REPLY = Reply("4", "stop", (-0.1, -2.5), Usage(100, 90, 2, 0), 0.5, "m", "p", "f")


def test_a_reply_comes_back_as_it_went_in(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        store.put(request("a 🙂"), REPLY)
    with Store(tmp_path / "r.sqlite") as store:
        assert store.get([request("a 🙂").key]) == {request("a 🙂").key: REPLY}


def test_a_key_keeps_its_first_reply() -> None:
    with Store() as store:
        store.put(request("a"), Reply("1", "stop"))
        store.put(request("a"), Reply("2", "stop"))
        assert store.get([request("a").key])[request("a").key].text == "1"


def test_an_error_is_not_stored() -> None:
    with Store() as store, pytest.raises(ValueError, match="not a reply"):
        store.put(request("a"), Reply(error="HTTP 500"))


def test_thousands_of_keys_can_be_looked_up_at_once() -> None:
    with Store() as store:
        for k in range(2_500):
            store.put(request(f"q{k}", repeat=k), REPLY)
        assert len(store.get(request(f"q{k}", repeat=k).key for k in range(3_000))) == 2_500


def test_a_shared_prefix_is_stored_once(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    head = "demonstration " * 500
    with Store(path) as store:
        for k in range(300):
            store.put(request(f"{head}{k}", anchor=len(head)), REPLY)
    sqlite3.connect(path).execute("VACUUM")
    assert path.stat().st_size / 300 < 600


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "r.sqlite").close()
    with sqlite3.connect(tmp_path / "r.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(Problem, match="newer flipmeter"):
        Store(tmp_path / "r.sqlite")


def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not a database\n" * 50)
    with pytest.raises(Problem, match=r"notes\.txt cannot be used"):
        Store(path)
    assert path.read_text().startswith("these are my notes")


def test_a_folder_that_cannot_be_written_gives_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Problem, match="name another file with --store"):
        Store(tmp_path / "file" / "r.sqlite")


WRITER = """
import sys
from flipmeter.model import Store
from flipmeter.types import Message, Reply, Request, Script, Script
store = Store(sys.argv[1])
for k in range(100_000):
    request = Request("m", Script.of([Message("user", f"{sys.argv[2]} {k}")]))
    store.put(request, Reply(str(k), "stop"))
    print(request.key, flush=True)
"""


def start_writer(path: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True
    )


def test_kill_9_loses_no_reply_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    writer = start_writer(path, "only")
    assert writer.stdout is not None
    keys = [writer.stdout.readline().strip() for _ in range(200)]
    os.kill(writer.pid, signal.SIGKILL)
    keys += [key for key in writer.communicate()[0].split() if len(key) == 64]
    with Store(path) as store:
        assert set(store.get(keys)) == set(keys)


OPENER = """
import sys
from flipmeter.model import Store
sys.stdin.readline()
Store(sys.argv[1]).close()
"""


def test_many_processes_may_create_one_store_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(tmp_path / "r.sqlite")]
    openers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    assert [opener.communicate()[1] for opener in openers] == [""] * 8


def test_two_processes_share_one_store(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    writers = [start_writer(path, name) for name in ("one", "two")]
    keys = [w.stdout.readline().strip() for w in writers for _ in range(50) if w.stdout]
    for writer in writers:
        writer.kill()
        writer.communicate()
    with Store(path) as store:
        assert set(store.get(keys)) == set(keys)
