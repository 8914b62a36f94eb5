"""The verbs of the reply store: why a request is new, what is in it, what no run needs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from flipmeter.ask.export import export, open_stored, plan_prune, prune
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.types import Message, Reply, Request, Script, Usage, canonical_json

Cli = Callable[..., tuple[int, str, str]]
HEAD = "Rate it.\n\nSentence: Nice.\nLabel: 2\n\n"
REPLY = Reply("2", "stop", (-0.1, float("-inf")), Usage(100, 90, 2, None), 0.5, "m", "p", "f")


def request(
    query: str = "Dull.", head: str = HEAD, model: str = "m@1", repeat: int = 0, **params: object
) -> Request:
    text = f"{head}Sentence: {query}\nLabel:"
    body = canonical_json({"max_tokens": 32, "temperature": 0.0} | params)
    return Request(model, Script.of([Message("user", text)], len(head)), body, repeat=repeat)


def stored(*requests: Request) -> Store:
    store = Store()
    for one in requests:
        store.put(one, REPLY)
    return store


# --- export -----------------------------------------------------------------------------------


@pytest.fixture
def replies(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "r.sqlite") as store:
        for query in ("a", "b", "c"):
            store.put(request(query), REPLY)
        yield store


def test_an_export_has_every_request_with_its_reply(replies: Store, tmp_path: Path) -> None:
    assert export(replies, tmp_path / "all.jsonl") == 3
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    row = next(row for row in rows if row["key"] == request("b").key)
    assert (row["model"], row["prompt"]) == ("m@1", request("b").script.messages[0].content)
    assert (row["reply"], row["finish"], row["scores"]) == ("2", "stop", [-0.1, None])
    assert (row["cached_tokens"], row["reasoning_tokens"], row["seconds"]) == (90, None, 0.5)
    assert (row["answered_by"], row["provider"], row["fingerprint"]) == ("m", "p", "f")


def test_both_formats_hold_the_same(replies: Store, tmp_path: Path) -> None:
    for suffix in ("jsonl", "parquet"):
        export(replies, tmp_path / f"all.{suffix}")
    table = pl.read_parquet(tmp_path / "all.parquet")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert table.to_dicts() == [json.loads(line) for line in lines]


def test_an_export_of_some_keys_keeps_their_order(replies: Store, tmp_path: Path) -> None:
    keys = [request(query).key for query in ("c", "absent", "a", "c")]
    assert export(replies, tmp_path / "some.parquet", keys) == 2
    assert pl.read_parquet(tmp_path / "some.parquet")["key"].to_list() == [keys[0], keys[2]]


def test_the_messages_before_the_last_are_part_of_the_prompt(tmp_path: Path) -> None:
    messages = (Message("system", "Be brief."), Message("user", "Sentence: a"))
    with stored(Request("m", Script.of(messages, 4))) as store:
        export(store, tmp_path / "one.jsonl")
    row = json.loads((tmp_path / "one.jsonl").read_text())
    assert row["prompt"] == "Be brief.\n\nSentence: a"


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("all.csv", None, r"must end in \.jsonl or \.parquet"),
        ("all.jsonl", ["00" * 32], "none of the wanted replies"),
        ("nowhere/all.jsonl", None, "use another file"),
    ],
)
def test_an_export_that_fails_leaves_nothing_behind(
    replies: Store, tmp_path: Path, name: str, keys: list[str] | None, message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Problem, match=message):
        export(replies, tmp_path / name, keys)
    assert sorted(tmp_path.iterdir()) == before


# --- prune ------------------------------------------------------------------------------------


def test_pruning_keeps_only_the_named_replies_and_their_texts(
    replies: Store, tmp_path: Path
) -> None:
    replies.put(request("d", head="Another head. "), REPLY)
    replies.close()
    done = prune(tmp_path / "r.sqlite", [request("b").key])
    assert (done.n_kept, done.n_removed) == (1, 3)
    with Store(tmp_path / "r.sqlite") as store:
        assert store.get([request("b").key]) == {request("b").key: REPLY}
        assert {text for (text,) in store.read("SELECT text FROM texts")}.isdisjoint(
            {"Another head. "}
        )


def test_a_pruned_store_takes_new_replies(replies: Store, tmp_path: Path) -> None:
    replies.close()
    prune(tmp_path / "r.sqlite", [request("b").key])
    with Store(tmp_path / "r.sqlite") as store:
        store.put(request("d", head="Another head. "), REPLY)
        assert len(store.get([request("d", head="Another head. ").key])) == 1


def test_a_plan_to_prune_changes_nothing(replies: Store) -> None:
    planned = plan_prune(replies, [request("b").key, request("absent").key])
    assert (planned.n_kept, planned.n_removed, len(replies)) == (1, 2, 3)


def test_a_store_that_is_in_use_is_not_pruned(replies: Store, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="wait until that ends"):
        prune(tmp_path / "r.sqlite", [request("b").key])
    assert len(replies) == 3


def test_a_store_that_no_kept_run_needs_is_left_alone(replies: Store, tmp_path: Path) -> None:
    replies.close()
    with pytest.raises(Problem, match="delete the file to remove everything"):
        prune(tmp_path / "r.sqlite", [request("absent").key])
    with sqlite3.connect(tmp_path / "r.sqlite") as db:
        assert db.execute("SELECT count(*) FROM replies").fetchone() == (3,)
    db.close()


def test_pruning_gives_the_space_back(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    with Store(path) as store:
        for k in range(300):
            store.put(request(f"{k} " + "word " * 2000), REPLY)
    before = path.stat().st_size
    prune(path, [request("0 " + "word " * 2000).key])
    assert path.stat().st_size < before / 5


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"no reply store at .*absent\.sqlite"):
        open_stored(tmp_path / "absent.sqlite")
    assert not (tmp_path / "absent.sqlite").exists()


def test_thousands_of_keys_can_be_looked_for_at_once(replies: Store) -> None:
    keys = [request(f"q{k}").key for k in range(2_000)]
    assert replies.among([*keys, request("a").key]) == {request("a").key}


# --- as a user types it -----------------------------------------------------------------------

SMALL = ["demo", "-m", "sim/first-slot", "--limit", "9", "--set", "probes=[label_order]"]
SMALL += ["--set", "repeats=1", "--set", "base.shots=1"]


def test_a_run_is_exported_without_the_other_replies_of_its_store(cli: Cli) -> None:
    cli("run", *SMALL)
    cli("run", *SMALL, "--set", "decoding.max_tokens=5", "-o", "runs/other")
    assert cli("cache", "export", "runs/demo", "--out", "run.parquet")[0] == 0
    assert cli("cache", "export", ".flipmeter/replies.sqlite", "--out", "all.parquet")[0] == 0
    assert pl.read_parquet("run.parquet").height == 18
    assert pl.read_parquet("all.parquet").height == 36


def test_prune_removes_nothing_without_yes(cli: Cli) -> None:
    cli("run", *SMALL)
    cli("run", *SMALL, "--set", "decoding.max_tokens=5", "-o", "runs/other")
    command = ["cache", "prune", "--keep", "runs/other"]
    assert "would remove 18 replies" in cli(*command)[1]
    assert "removed 18 replies" in cli(*command, "--yes")[1]
    assert "would remove 0 replies" in cli(*command)[1]
    assert json.loads(cli("plan", *SMALL, "--offline", "--json")[1])["stored"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "absent.sqlite", "--out", "all.jsonl"], "no reply store at absent.sqlite"),
        (["export", ".", "--out", "all.jsonl"], "not a run folder"),
        (["prune", "--keep", "."], "not a run folder"),
        (["prune"], "--keep"),
    ],
)
def test_what_is_asked_wrongly_is_named(cli: Cli, arguments: list[str], message: str) -> None:
    code, out, err = cli("cache", *arguments)
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")
