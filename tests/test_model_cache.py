"""The verbs of the reply store: why a request is new, what is in it, what no run needs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from flipmeter.model import Store, explain, export, open_stored, plan_prune, prune
from flipmeter.types import Message, Problem, Reply, Request, Script, Usage, canonical_json

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


def why(new: Request, *old: Request) -> str:
    with stored(*old) as store:
        (reason,) = explain([new], store).reasons
    return reason.why


# --- why a request is new ---------------------------------------------------------------------


def test_an_empty_store_says_that_nothing_is_stored() -> None:
    with Store() as store:
        (line,) = explain([request("a"), request("b")], store).lines()
    assert line == "nothing stored: all 2 requests are new"


def test_a_complete_store_says_that_everything_is_stored() -> None:
    with stored(request("a"), request("b")) as store:
        (line,) = explain([request("b")], store).lines()
    assert line == "everything is stored: 1 request"


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (request(max_tokens=8), "params.max_tokens is 8, stored: 32"),
        (request(seed=3), "params.seed is 3, stored: not set"),
        (request(model="m@2"), "model is m@2, stored: m@1"),
        (request(repeat=2), "repeat is 2, stored: 0"),
        (request(head=f"Please. {HEAD}"), "the prompt differs in the shared part"),
        (request("Fine."), "the prompt differs after the shared part"),
        (request("Fine.", head="Hm. "), "the prompt differs"),
        (request("Fine.", "Hm. ", "m@2"), "the prompt differs and model is m@2, stored: m@1"),
        (
            request(max_tokens=8, repeat=1),
            "params.max_tokens is 8, stored: 32 and repeat is 1, stored: 0",
        ),
    ],
)
def test_the_reason_names_the_field_that_differs(new: Request, reason: str) -> None:
    assert why(new, request()) == reason


def test_another_anchor_in_the_same_prompt_is_named() -> None:
    new = Request("m@1", Script.of(request().script.messages, 3), request().params)
    assert why(new, request()) == f"anchor is 3, stored: {len(HEAD)}"


def test_other_wanted_answers_are_named() -> None:
    new = Request("m@1", request().script, request().params, ("A", "B"))
    assert why(new, request()) == 'answers is ["A", "B"], stored: []'


def test_another_role_is_the_last_explanation() -> None:
    new = Request(
        "m@1",
        Script.of([Message("system", request().script.messages[0].content)], len(HEAD)),
        request().params,
    )
    assert why(new, request()) == "the role of a message differs"


def test_the_same_prompt_is_nearer_than_the_same_model() -> None:
    old = [request(model="m@2"), request("Fine."), request(head="Hm. ")]
    assert why(request(), *old) == "model is m@1, stored: m@2"


def test_the_same_query_is_nearer_than_the_same_demonstrations() -> None:
    old = [request("Fine."), request(head="Hm. ")]
    assert why(request(), *old) == "the prompt differs in the shared part"


def test_the_nearest_has_the_fewest_differences_and_the_closest_repeat() -> None:
    old = [request(repeat=0), request(repeat=4), request(repeat=5, max_tokens=8)]
    assert why(request(repeat=5), *old) == "params.max_tokens is 32, stored: 8"
    assert why(request(repeat=5), *old[:2]) == "repeat is 5, stored: 4"


def test_reasons_are_counted_and_the_most_frequent_comes_first() -> None:
    queries = [f"Number {k}." for k in range(30)]
    new = [request("Number 0.", repeat=1), *(request(query, max_tokens=8) for query in queries)]
    with stored(*(request(query) for query in queries)) as store:
        lines = list(explain([*new, request("Number 3.")], store).lines())
    assert lines[0] == "1 of 32 requests are stored"
    assert lines[1] == "30 requests are new because params.max_tokens is 8, stored: 32"
    assert lines[3] == "1 request is new because repeat is 1, stored: 0"


def test_an_example_shows_the_first_difference_of_the_prompts() -> None:
    with stored(request("Dull and long.")) as store:
        (reason,) = explain([request("Dull but short.")], store).reasons
    start = len(f"{HEAD}Sentence: Dull ") + 1
    assert reason.example.startswith(
        f'from character {start} on: "but short.\\nLabel:", stored: "a'
    )


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


def test_explain_goes_from_nothing_to_everything_to_a_reason(cli: Cli) -> None:
    assert cli("cache", "explain", *SMALL)[1] == "nothing stored: all 18 requests are new\n"
    cli("run", *SMALL)
    assert cli("cache", "explain", *SMALL)[1] == "everything is stored: 18 requests\n"
    _, out, _ = cli("cache", "explain", *SMALL, "--set", "decoding.max_tokens=5")
    assert "18 requests are new because params.max_tokens is 5, stored: 8" in out


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
    assert cli("cache", "explain", *SMALL)[1].startswith("0 of 18 requests are stored")


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
