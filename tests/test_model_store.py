"""The reply store: what is stored is never lost and never asked again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import forked
from flipmeter.ask.leases import Leases
from flipmeter.ask.merge import convert, merge
from flipmeter.ask.store import SCHEMA, TABLES, Store
from flipmeter.errors import Problem
from flipmeter.types import Message, Reply, Request, Script, Usage
from forked import Forked
from old_stores import BY_KEY


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


def test_a_store_is_not_lost_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rater may do that."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    with Store("r.sqlite") as store:
        monkeypatch.chdir("other")
        store.put(request("a"), REPLY)
        assert not store.is_lost
    assert {path.name for path in tmp_path.iterdir()} == {"other", "r.sqlite"}


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
    assert path.stat().st_size / 300 < len(head) / 5


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
    with pytest.raises(Problem, match="use another file with --store"):
        Store(tmp_path / "file" / "r.sqlite")


WRITER = """
import sys
from flipmeter.ask.merge import convert, merge
from flipmeter.ask.store import Store
from flipmeter.ask.leases import Leases
from flipmeter.ask.store import SCHEMA, TABLES
from flipmeter.types import Message, Reply, Request, Script, Script
store = Store(sys.argv[1])
for k in range(100_000):
    request = Request("m", Script.of([Message("user", f"{sys.argv[2]} {k}")]))
    store.put(request, Reply(str(k), "stop"))
    print(request.key, flush=True)
"""


def start_writer(path: Path, name: str) -> subprocess.Popen[str]:
    return Forked(WRITER, path, name, stdout=subprocess.PIPE)


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
from flipmeter.ask.store import Store
sys.stdin.readline()
Store(sys.argv[1]).close()
"""


def test_many_processes_may_create_one_store_at_once(tmp_path: Path) -> None:
    streams = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    openers = [Forked(OPENER, tmp_path / "r.sqlite", **streams) for _ in range(8)]
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


# Disks that are full, folders that are sealed, files that are damaged

FULL = """
import subprocess, sys
from flipmeter.ask.merge import convert, merge
from flipmeter.ask.store import Store
from flipmeter.ask.leases import Leases
from flipmeter.ask.store import SCHEMA, TABLES
from flipmeter.types import Problem
sys.path.insert(0, sys.argv[2])
from test_model_store import REPLY, request

def mount(*options):
    return subprocess.run(["mount", *options, sys.argv[1]], capture_output=True).returncode == 0

if not mount("-t", "tmpfs", "-o", "size=400k", "tmpfs"):
    sys.exit(77)
store, kept = Store(sys.argv[1] + "/r.sqlite"), []
try:
    for k in range(10_000):
        store.put(request(f"question {k} " + "x" * 300), REPLY)
        kept.append(request(f"question {k} " + "x" * 300).key)
except Problem as problem:
    print(problem)
assert kept and len(store.get(kept)) == len(kept)
store.close()
mount("-o", "remount,size=40m")
with Store(sys.argv[1] + "/r.sqlite") as store:
    assert len(store.get(kept)) == len(kept)
    store.put(request("another"), REPLY)
"""


def test_a_full_disk_says_so_and_keeps_all_that_was_stored(tmp_path: Path) -> None:
    unshare = shutil.which("unshare") or pytest.skip("unshare gives a disk of our own")
    script = [sys.executable, "-c", FULL, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run([unshare, "-rm", *script], capture_output=True, text=True, check=False)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("no disk can be mounted here")
    assert (done.returncode, done.stderr) == (0, "")
    assert "database or disk is full); nothing stored is lost" in done.stdout


def test_a_write_that_fails_says_why_and_the_next_may_succeed(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        store.put(request("a"), REPLY)
        [(n_pages,)] = store.read("PRAGMA page_count")
        list(store.read(f"PRAGMA max_page_count={n_pages}"))
        with pytest.raises(Problem, match="database or disk is full"):
            store.put_many([(request(f"{k}" * 900), REPLY) for k in range(50)])
        assert len(store) == 1
        list(store.read("PRAGMA max_page_count=100000"))
        store.put_many([(request(f"{k}" * 900), REPLY) for k in range(50)])
        assert len(store) == 51


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """Return the bytes of a store with some replies."""
    with Store(tmp_path / "whole.sqlite") as store:
        store.put_many([(request(f"{k} " + "x" * 300), REPLY) for k in range(200)])
    return (tmp_path / "whole.sqlite").read_bytes()


PAGE, SECTOR = 16_384, 4096


def look_up_all(path: Path) -> list[Reply]:
    with Store(path) as store:
        keys = [request(f"{k} " + "x" * 300).key for k in range(200)]
        return list(store.get(keys).values())


def test_a_damaged_file_is_named_and_left_as_it_is(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "r.sqlite"
    damaged = [b"\0" * 100 + whole[100:], b"no store" * 12 + whole[96:]]
    damaged += [whole[: int(len(whole) * share)] for share in (0.1, 0.5, 0.9)]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(
            Problem,
            match=r"r\.sqlite cannot be used: it is damaged, or not a "
            "reply store",
        ):
            look_up_all(path)
        assert path.read_bytes() == content


@pytest.mark.parametrize("seed", [None, 1])
def test_a_damaged_page_never_passes_for_a_whole_store(
    tmp_path: Path, whole: bytes, seed: int | None
) -> None:
    path, chance = tmp_path / "r.sqlite", random.Random(seed)
    n_silent = 0
    for start in range(0, len(whole), PAGE):
        page = b"\0" * PAGE if seed is None else chance.randbytes(PAGE)
        path.write_bytes(whole[:start] + page + whole[start + PAGE :])
        with suppress(Problem):
            assert look_up_all(path) == [REPLY] * 200
            n_silent += 1
    assert n_silent <= 5  # pages that no look-up needs: a table without rows has one


@pytest.mark.parametrize("seed", [None, 1])
def test_a_damaged_sector_gives_no_other_reply(
    tmp_path: Path, whole: bytes, seed: int | None
) -> None:
    path, chance = tmp_path / "r.sqlite", random.Random(seed)
    for start in range(0, len(whole), SECTOR):
        lost = bytes(SECTOR) if seed is None else chance.randbytes(SECTOR)
        path.write_bytes(whole[:start] + lost + whole[start + SECTOR :])
        with suppress(Problem):  # what an index does not find is asked again
            assert set(look_up_all(path)) <= {REPLY}


def test_a_store_of_a_newer_version_keeps_every_byte(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    newer = path.read_bytes()
    for _ in range(2):
        with pytest.raises(Problem, match="newer flipmeter"):
            Store(path)
    assert path.read_bytes() == newer


def test_a_store_that_could_not_be_opened_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE replies (mine TEXT)")
    with pytest.raises(Problem, match="table replies already exists"):
        Store(path)
    with closing(sqlite3.connect(path, timeout=0)) as db:
        db.execute("INSERT INTO replies VALUES ('still mine')")
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("replies",)]
        db.rollback()


# Checksums


def with_replies(path: Path, n: int = 20) -> dict[str, Reply]:
    pairs = [(request(f"{k} " + "x" * 30), replace(REPLY, text=f"Label: {k}")) for k in range(n)]
    with Store(path) as store:
        store.put_many(pairs)
    return {one.key: reply for one, reply in pairs}


def test_no_damaged_bit_gives_another_reply(tmp_path: Path) -> None:
    path, chance = tmp_path / "r.sqlite", random.Random(3)
    stored = with_replies(path)
    whole = path.read_bytes()
    n_missing = 0
    for _ in range(1500):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        with suppress(Problem), Store(path) as store:
            found = store.get(stored)
            assert found.items() <= stored.items()
            n_missing += len(stored) - len(found)
    assert n_missing > 20


def changed(path: Path, sql: str) -> None:
    """Damage a store in a way that SQLite itself does not see."""
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(sql).rowcount > 0


def test_a_damaged_reply_is_asked_again_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    stored = with_replies(path)
    changed(path, "UPDATE replies SET text = 'Label: 9' WHERE text = 'Label: 8'")
    one = request("8 " + "x" * 30)
    with Store(path) as store:
        assert store.get(stored).keys() == store.among(stored) == stored.keys() - {one.key}
        assert store.damaged == {one.key} == set(store.check())
        assert Leases(store).claim([one.key]).elsewhere == {}
        assert store.put_many([(one, stored[one.key])]) == {}
        assert store.damaged == set(store.check()) == set()
    with Store(path) as store:
        assert store.get(stored) == stored


@pytest.mark.parametrize("column", ["finish", "scores", "seconds", "prompt_tokens", "rest"])
def test_every_part_of_a_reply_is_checked(tmp_path: Path, column: str) -> None:
    path = tmp_path / "r.sqlite"
    stored = with_replies(path, 2)
    for value in ("'7'", "x'ff'", "''"):
        changed(path, f"UPDATE replies SET {column} = {value}")
        with Store(path) as store:
            assert store.get(stored) == {}


@pytest.mark.parametrize(
    "sql", ["UPDATE texts SET text = text || 'x'", "UPDATE replies SET answered_by = 99"]
)
def test_what_many_replies_share_is_not_asked_again_but_refused(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "r.sqlite"
    stored = with_replies(path)
    changed(path, sql)
    with Store(path) as store, pytest.raises(Problem, match=r"r\.sqlite cannot be used.*share"):
        store.get(stored)


def older(path: Path, version: int) -> dict[str, Reply]:
    """A store as an earlier version left it, and what is in it."""
    new = path.with_name("new.sqlite")
    stored = with_replies(new)
    with closing(sqlite3.connect(path)) as db:
        for added in BY_KEY[:version]:
            db.executescript(added)
        db.execute("ATTACH ? AS new", [str(new)])
        texts = "id, text, checksum" if version == len(BY_KEY) else "id, text"
        db.execute(f"INSERT INTO texts SELECT {texts} FROM new.texts")
        columns = ",".join(row[1] for row in db.execute("PRAGMA main.table_info(replies)"))
        db.execute(f"INSERT INTO replies SELECT {columns} FROM new.replies")
        db.commit()
        db.execute(f"PRAGMA user_version={version}")
    return stored


@pytest.mark.parametrize("version", range(1, len(TABLES)))
def test_an_older_store_is_read_as_it_is_and_goes_on_with_checksums(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "r.sqlite"
    stored = older(path, version)
    with Store(path) as store:
        assert store.get(stored) == stored
        store.put(request("more"), REPLY)
    merge([path], tmp_path / "all.sqlite")
    changed(path, "UPDATE replies SET text = 'no'")
    with Store(path) as store:
        assert store.check() == [request("more").key]
    with Store(tmp_path / "all.sqlite") as store:
        assert store.get([*stored, request("more").key]) == {**stored, request("more").key: REPLY}


def scans(path: Path, keys: Sequence[str]) -> list[str]:
    """How SQLite would look some keys up."""
    with Store(path) as store:
        rows = store.rows_of("EXPLAIN QUERY PLAN SELECT key FROM replies", keys)
        return [str(row[3]) for row in rows]


@pytest.mark.parametrize("version", range(1, len(TABLES) + 1))
def test_a_converted_store_has_the_same_replies_in_the_order_they_came(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "r.sqlite"
    stored = older(path, version)
    told: list[tuple[int, int]] = []
    assert convert(path, lambda *so_far: told.append(so_far)) == len(stored)
    assert told[-1] == (len(stored), len(stored))
    with Store(path) as store:
        assert store.version == SCHEMA
        assert store.get(stored) == stored
        store.put(request("more"), REPLY)
        assert [text for (text,) in store.read("SELECT text FROM replies")][-1] == REPLY.text
    assert all("SEARCH" in line for line in scans(path, list(stored)))
    assert convert(path) == 0


def test_keys_are_looked_up_by_an_index_in_stores_of_every_layout(tmp_path: Path) -> None:
    stored = older(tmp_path / "r.sqlite", len(BY_KEY))
    for name in ("r.sqlite", "new.sqlite"):
        assert all("SEARCH" in line for line in scans(tmp_path / name, list(stored)))


def test_a_conversion_that_is_killed_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    stored = older(path, len(BY_KEY))
    script = (
        "import os, sys; from pathlib import Path; from flipmeter.ask.merge import convert;"
        "convert(Path(sys.argv[1]), lambda *so_far: os.kill(os.getpid(), 9))"
    )
    assert forked.run(path, code=script).returncode == -signal.SIGKILL
    with Store(path) as store:
        assert store.version == len(BY_KEY)
        assert store.get(stored) == stored


def test_a_store_in_use_is_not_converted(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    stored = older(path, len(BY_KEY))
    with Store(path) as store:
        store.among(stored)
        with pytest.raises(Problem, match="wait until that ends"):
            convert(path)
        assert store.get(stored) == stored


def test_merge_leaves_damaged_replies_out_and_replaces_them(tmp_path: Path) -> None:
    stored = with_replies(tmp_path / "a.sqlite")
    with_replies(tmp_path / "b.sqlite")
    changed(tmp_path / "a.sqlite", "UPDATE replies SET text = 'no' WHERE text = 'Label: 8'")
    (done,) = merge([tmp_path / "a.sqlite"], tmp_path / "c.sqlite")
    assert (done.n_replies, done.n_new, done.n_damaged) == (20, 19, 1)
    merge([tmp_path / "b.sqlite"], tmp_path / "a.sqlite")
    with Store(tmp_path / "a.sqlite") as store:
        assert store.get(stored) == stored


def test_values_that_sqlite_converts_keep_their_checksum(tmp_path: Path) -> None:
    odd = Reply("\0 \U0001fae9 \u2028", "stop", (-0.0, -1e-320), Usage(3, 2**62, 0, None), 1)
    with Store(tmp_path / "r.sqlite") as store:
        store.put(request("odd"), odd)
        assert store.get([request("odd").key]) == {request("odd").key: odd}
