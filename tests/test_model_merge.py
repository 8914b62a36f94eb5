"""Stores of several machines in one: nothing lost, nothing twice, conflicts named."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Cli
from flipmeter.ask.export import export
from flipmeter.ask.family import Capability
from flipmeter.ask.merge import merge
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.types import Message, Reply, Request, Script, Usage

HEADS = ("Rate it.\n", "Judge this.\n")
Content = dict[int, str]
"""The text of a reply by the number of its request."""
contents = st.dictionaries(st.integers(0, 30), st.just("2"), max_size=20)


def request(number: int) -> Request:
    head = HEADS[number % 2]
    script = Script.of([Message("user", f"{head}Item {number}")], len(head))
    return Request(f"m@{number % 3}", script, f'{{"max_tokens":{number % 4}}}')


def reply(number: int, text: str) -> Reply:
    return Reply(text, "stop", (-0.5, -number), Usage(number, 1, 2, None), 0.5, "m", f"p{number}")


def written(path: Path, content: Content) -> Path:
    with Store(path) as store:
        store.put_many((request(n), reply(n, text)) for n, text in content.items())
    return path


def read(path: Path) -> dict[str, Reply]:
    with Store(path) as store:
        return store.get(request(n).key for n in range(40))


def expected(*contents: Content) -> dict[str, Reply]:
    """The naive twin: a dictionary that keeps what it has."""
    whole: Content = {}
    for content in contents:
        whole = content | whole
    return {request(n).key: reply(n, text) for n, text in whole.items()}


@given(st.lists(contents, min_size=1, max_size=4))
def test_every_reply_of_every_store_is_there_once_and_as_it_was(some: Sequence[Content]) -> None:
    with TemporaryDirectory() as name:
        paths = [written(Path(name) / f"{n}.sqlite", one) for n, one in enumerate(some)]
        into = Path(name) / "into.sqlite"
        done = merge(paths, into)
        assert read(into) == expected(*some)
        assert sum(one.n_new for one in done) == len(expected(*some))
        assert [one.n_replies for one in done] == [len(one) for one in some]
        assert [read(path) for path in paths] == [expected(one) for one in some]


def test_merging_again_changes_nothing(tmp_path: Path) -> None:
    paths = [written(tmp_path / "a", {1: "2", 2: "3"}), written(tmp_path / "b", {2: "3", 5: "1"})]
    merge(paths, tmp_path / "c")
    before = read(tmp_path / "c")
    again = merge([*paths, tmp_path / "c"], tmp_path / "c")
    assert [one.n_new for one in again] == [0, 0]
    assert read(tmp_path / "c") == before


def test_two_replies_to_one_request_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    paths = [written(tmp_path / "a", {1: "2", 2: "3"}), written(tmp_path / "b", {2: "4", 5: "1"})]
    with pytest.raises(Problem, match=r"1 requests have a different reply.*'3' and '4'.*--prefer"):
        merge(paths, tmp_path / "c")
    assert read(tmp_path / "c") == {}


def test_the_first_can_be_preferred_and_what_was_there_is_before_all(tmp_path: Path) -> None:
    paths = [written(tmp_path / "a", {1: "2", 2: "3"}), written(tmp_path / "b", {2: "4", 5: "1"})]
    into = written(tmp_path / "c", {5: "9"})
    done = merge(paths, into, prefers_first=True)
    assert read(into) == expected({5: "9"}, {1: "2", 2: "3"})
    assert [one.n_differing for one in done] == [0, 2]


def test_another_time_or_token_count_is_no_conflict(tmp_path: Path) -> None:
    with Store(tmp_path / "a") as a, Store(tmp_path / "b") as b:
        a.put(request(1), Reply("2", "stop", seconds=0.1))
        b.put(request(1), Reply("2", "stop", seconds=7.0, usage=Usage(prompt=3)))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert read(tmp_path / "c")[request(1).key].seconds == 0.1


def test_a_damaged_store_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = written(tmp_path / "a", {1: "2"})
    bad = written(tmp_path / "b", dict.fromkeys(range(30), "3" * 500))
    whole = bytearray(bad.read_bytes())
    for place in range(4096 * 2, len(whole), 4096):
        whole[place : place + 64] = b"\xff" * 64
    bad.write_bytes(whole)
    with pytest.raises(Problem, match="b is damaged"):
        merge([good, bad], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_store_whose_texts_are_gone_is_damaged(tmp_path: Path) -> None:
    bad = written(tmp_path / "b", {1: "2", 2: "3"})
    db = sqlite3.connect(bad)
    db.execute("DELETE FROM texts WHERE text = 'm@1'")
    db.commit()
    db.close()
    with pytest.raises(Problem, match="1 replies without their texts"):
        merge([bad], tmp_path / "c")


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("a letter to a friend, not a store of replies " * 40)
    with pytest.raises(Problem, match="not a reply store"):
        merge([tmp_path / "b"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_of_two_examinations_the_later_counts(tmp_path: Path) -> None:
    for name, is_there, seen in (("a", True, "2026-02-02"), ("b", False, "2026-01-01")):
        with Store(tmp_path / name) as store:
            store.note_capabilities("m", "{}", [Capability("seed", is_there, "asked", seen)])
    for order in (("a", "b"), ("b", "a")):
        into = tmp_path / "".join(order)
        merge([tmp_path / name for name in order], into)
        with Store(into) as store:
            assert store.capabilities("m", "{}")["seed"].is_there is True


def test_the_command_says_what_each_store_brought(cli: Cli, tmp_path: Path) -> None:
    written(tmp_path / "a", {1: "2", 2: "3"})
    written(tmp_path / "b", {2: "4", 5: "1"})
    code, _, err = cli("cache", "merge", "a", "b", "--into", "c")
    assert code == 2
    assert "--prefer first" in err
    code, out, _ = cli("cache", "merge", "a", "b", "--into", "c", "--prefer", "first")
    assert code == 0
    assert out.splitlines() == [
        "a: 2 replies, 2 new, 0 already in c",
        "b: 2 replies, 1 new, 1 already in c (1 with a different reply)",
    ]
    assert cli("cache", "merge", "a", "--into", "c", "--prefer", "last")[0] == 2
    assert "no reply store at none" in cli("cache", "merge", "none", "--into", "c")[2]


# --- exports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_prompts", [True, False])
def test_an_export_brings_its_replies_to_another_store(tmp_path: Path, has_prompts: bool) -> None:
    content = dict.fromkeys(range(7), "2")
    with Store(written(tmp_path / "a.sqlite", content)) as store:
        export(store, tmp_path / "a.jsonl", has_prompts=has_prompts)
    (done,) = merge([tmp_path / "a.jsonl"], tmp_path / "b.sqlite")
    assert (done.path, done.n_new) == (tmp_path / "a.jsonl", 7)
    assert read(tmp_path / "b.sqlite") == expected(content)


def test_a_score_of_minus_infinity_survives_an_export(tmp_path: Path) -> None:
    said = Reply("2", "stop", (-0.25, float("-inf")), Usage(1, 0, 1, None), 0.5, "m", "p")
    with Store(tmp_path / "a.sqlite") as store:
        store.put(request(1), said)
        export(store, tmp_path / "a.jsonl", has_prompts=False)
    merge([tmp_path / "a.jsonl"], tmp_path / "b.sqlite")
    assert read(tmp_path / "b.sqlite") == {request(1).key: said}


def test_an_export_without_prompts_has_no_text_of_the_data(tmp_path: Path) -> None:
    with Store(written(tmp_path / "a.sqlite", {3: "2"})) as store:
        export(store, tmp_path / "a.jsonl", has_prompts=False)
        export(store, tmp_path / "a.parquet", has_prompts=False)
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert "Item 3" not in line
    assert request(3).key in line
    assert "prompt" not in pl.read_parquet(tmp_path / "a.parquet").columns


def test_an_export_that_contradicts_the_store_is_named(tmp_path: Path) -> None:
    with Store(written(tmp_path / "a.sqlite", {3: "2"})) as store:
        export(store, tmp_path / "a.jsonl", has_prompts=False)
    into = written(tmp_path / "b.sqlite", {3: "5"})
    with pytest.raises(Problem, match=r"1 requests have a different reply in .*a\.jsonl"):
        merge([tmp_path / "a.jsonl"], into)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "is not a row"),
        ('{"key": "ab"}', "no 'answered_by'"),
        ("{", "line 1"),
    ],
)
def test_a_file_that_is_no_export_is_refused_by_its_line(
    tmp_path: Path, line: str, said: str
) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(Problem, match=said):
        merge([tmp_path / "a.jsonl"], tmp_path / "b.sqlite")
    assert not (tmp_path / "b.sqlite").exists()


def test_the_command_exports_without_prompts_and_merges_it(cli: Cli, tmp_path: Path) -> None:
    source, lines, into = (str(tmp_path / name) for name in ("a.sqlite", "a.jsonl", "b.sqlite"))
    written(Path(source), {3: "2", 4: "2"})
    assert cli("cache", "export", source, "--out", lines, "--no-prompts")[0] == 0
    code, out, _ = cli("cache", "merge", lines, "--into", into)
    assert (code, "2 new" in out) == (0, True)
