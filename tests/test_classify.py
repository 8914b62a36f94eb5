"""A file of texts becomes a file of labels, whatever happens on the way."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from flipmeter.ask.limits import Budget
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.choose.card import Card, read_card, write_card
from flipmeter.choose.classify import COLUMNS, Job, LabelCounts, classify
from flipmeter.choose.select import select
from flipmeter.data.load import load
from flipmeter.data.tables import stream_rows
from flipmeter.errors import Incomplete, Problem
from flipmeter.run.progress import Terms
from flipmeter.study.entries import ModelEntry, PriceEntry
from flipmeter.types import Reply, Request
from forked import Forked
from misbehaving import Behaviour, answer, fails, says, serving
from report_runs import simulated

REVIEWS = load("reviews")
TEXTS = [item.text for item in REVIEWS.test]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Card:
    run = simulated(tmp_path_factory.mktemp("run"), probes=["label_order"], test_size=20)
    return select(run).card()


def write_csv(path: Path, texts: list[str], column: str = "body") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", column])
        rows.writerows([f"n{k}", text] for k, text in enumerate(texts))
    return path


def labelled(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        with path.open(encoding="utf-8", newline="\n") as file:
            return [json.loads(line) for line in file]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def do(
    card: Card,
    job: Job,
    store: Store | None = None,
    *,
    ledger: Ledger | None = None,
    budget: Budget | None = None,
    on_reply: Callable[[Request, Reply], None] | None = None,
    **options: Any,
) -> LabelCounts:
    known = card.world() if card.selected else None
    terms = Terms(ledger or Ledger(), budget)
    if on_reply is not None:
        terms.listener.on_reply = on_reply  # type: ignore[method-assign, assignment]
    replies = Store() if store is None else store
    return asyncio.run(classify(card, job, replies, terms, world=known, **options))


# Labels


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_every_format_gets_the_same_labels(card: Card, tmp_path: Path, suffix: str) -> None:
    source = write_csv(tmp_path / "texts.csv", TEXTS[:30])
    frame = pl.read_csv(source)
    if suffix == "jsonl":
        frame.write_ndjson(source.with_suffix(".jsonl"))
    elif suffix == "parquet":
        frame.write_parquet(source.with_suffix(".parquet"))
    job = Job(source.with_suffix(f".{suffix}"), tmp_path / "out.csv", "body", keep=("id",))
    assert do(card, job, chunk=7) == LabelCounts(30, 30)
    rows = labelled(job.out)
    assert list(rows[0]) == ["id", *COLUMNS]
    assert [row["row"] for row in rows] == [str(k) for k in range(1, 31)]
    assert [row["id"] for row in rows] == [f"n{k}" for k in range(30)]
    for row in rows:
        assert row["label"] == card.task.scale[int(row["rank"]) - 1]
        assert (row["calls"], row["fault"], row["agreement"]) == ("1", "", "")
        assert int(row["prompt_tokens"]) > 10


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_all_columns_of_the_input_are_kept_and_clashing_names_get_a_prefix(
    card: Card, tmp_path: Path, suffix: str
) -> None:
    rows = [
        {"label": "old", "body": TEXTS[0], "note": "a,b", "input_label": "older"},
        {"label": "own", "body": "", "note": "", "input_label": ""},
    ]
    source = tmp_path / f"t.{suffix}"
    table = pl.DataFrame(rows)
    (table.write_csv if suffix == "csv" else table.write_ndjson)(source)
    job = Job(source, tmp_path / f"out.{suffix}", "body")
    do(card, job)
    first, second = labelled(job.out)
    assert list(first) == ["input_input_label", "body", "note", "input_label", *COLUMNS]
    assert [first[name] for name in ("input_input_label", "body", "note", "input_label")] == [
        *("old", TEXTS[0], "a,b", "older")
    ]
    assert first["label"] in card.task.scale
    assert (second["input_input_label"], second["fault"]) == ("own", "empty")


def test_a_column_of_json_lines_that_comes_late_is_kept(card: Card, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    lines = [{"body": TEXTS[0]}, {"body": TEXTS[1], "late": "yes"}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for name, absent in (("out.csv", ""), ("out.jsonl", None)):
        do(card, Job(source, tmp_path / name, "body"))
        assert [row["late"] for row in labelled(tmp_path / name)] == [absent, "yes"]


@pytest.mark.parametrize("value", [{"a": ["é", None]}, [1, 2.5], True, "True", 7])
def test_a_column_of_any_type_can_be_read_back(card: Card, tmp_path: Path, value: Any) -> None:
    source = tmp_path / "t.jsonl"
    source.write_text(json.dumps({"body": TEXTS[0], "kept": value}) + "\n", encoding="utf-8")
    for name in ("out.csv", "out.jsonl"):
        do(card, Job(source, tmp_path / name, "body"))
    (cell,), (whole,) = labelled(tmp_path / "out.csv"), labelled(tmp_path / "out.jsonl")
    assert whole["kept"] == value
    assert cell["kept"] == value if isinstance(value, str) else json.loads(cell["kept"]) == value


def test_json_lines_come_out_with_numbers(card: Card, tmp_path: Path) -> None:
    averaged = Card.model_validate(card.model_dump() | {"average": ["label_order"]})
    priced = averaged.model_copy(
        update={
            "model": ModelEntry(model=card.model.model, price=PriceEntry(prompt=1, completion=2))
        }
    )
    job = Job(write_csv(tmp_path / "t.csv", TEXTS[:9]), tmp_path / "out.jsonl", "body")
    do(priced, job)
    for row in labelled(job.out):
        assert row["agreement"] in (0.0, 0.5, 1.0)
        assert row["calls"] == 2
        tokens = row["prompt_tokens"] + 2 * row["completion_tokens"]
        assert row["usd"] == pytest.approx(tokens / 1e6)


def test_where_positions_disagree_it_may_abstain(card: Card, tmp_path: Path) -> None:
    tilted = card.with_model("sim/first-slot?strength=3")
    averaged = Card.model_validate(tilted.model_dump() | {"average": ["label_order"]})
    source = write_csv(tmp_path / "t.csv", TEXTS[:60])
    done = do(averaged, Job(source, tmp_path / "out.jsonl", "body", abstain_below=0.9))
    rows = labelled(tmp_path / "out.jsonl")
    assert 0 < done.faults["abstained"] < 60
    for row in rows:
        assert (row["fault"] == "abstained") == (row["agreement"] < 0.9) == (row["label"] is None)
    with pytest.raises(Problem, match="abstaining needs several views"):
        do(card, Job(source, tmp_path / "other.csv", "body", abstain_below=0.9))


# Going on


def test_a_second_run_asks_nothing_and_a_larger_limit_goes_on(card: Card, tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "t.csv", TEXTS[:40]), tmp_path / "out.csv"
    with Store(tmp_path / "r.sqlite") as store:
        assert do(card, Job(source, out, "body", limit=15), store, chunk=4) == LabelCounts(15, 15)
        ledger = Ledger()
        again = do(card, Job(source, out, "body", limit=15), store, ledger=ledger)
        assert again == LabelCounts(15, 0)
        assert ledger.wanted == 0
        assert do(card, Job(source, out, "body"), store, chunk=4) == LabelCounts(40, 25)
    whole = tmp_path / "whole.csv"
    do(card, Job(source, whole, "body"))
    assert out.read_bytes() == whole.read_bytes()


def test_starting_over_costs_nothing(card: Card, tmp_path: Path) -> None:
    job = Job(write_csv(tmp_path / "t.csv", TEXTS[:20]), tmp_path / "out.csv", "body")
    with Store(tmp_path / "r.sqlite") as store:
        do(card, job, store)
        before, ledger = job.out.read_bytes(), Ledger()
        assert do(card, job, store, anew=True, ledger=ledger) == LabelCounts(20, 20)
        assert (ledger.asked, ledger.stored) == (0, 20)
    assert job.out.read_bytes() == before


def test_an_output_of_something_else_is_not_continued(card: Card, tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "t.csv", TEXTS[:5]), tmp_path / "out.csv"
    do(card, Job(source, out, "body"))
    other = Card.model_validate(card.model_dump() | {"seed": 9})
    with pytest.raises(Problem, match=r"different rater.*--anew"):
        do(other, Job(source, out, "body"))
    about = out.with_name("out.csv.about.jsonl")
    for torn in ("[1]", "{", "", '{"settings": 5}'):
        about.write_text(torn, encoding="utf-8")
        with pytest.raises(Problem, match="does not say what made"):
            do(card, Job(source, out, "body"))
    about.write_text('{"settings": {"columns": []}}', encoding="utf-8")
    with pytest.raises(Problem, match="made by another command"):
        do(card, Job(source, out, "body"))
    about.unlink()
    with pytest.raises(Problem, match=r"about\.jsonl does not say what made .*out\.csv; use"):
        do(card, Job(source, out, "body"))


SLOW = """
import asyncio, sys
from pathlib import Path
from flipmeter.choose.card import read_card
from flipmeter.choose.classify import Job, classify
from flipmeter.ask.store import Store

card, source, out, store = map(Path, sys.argv[1:])
job = Job(source, out, "body")
asyncio.run(classify(read_card(card), job, Store(store), chunk=5))
"""


def slowly(body: Any) -> Behaviour:
    async def behave(request: Any) -> Any:
        await asyncio.sleep(0.05)
        return await says(answer(str(1 + len(body["messages"][-1]["content"]) % 5)))(request)

    return behave


def test_after_a_kill_the_rows_are_whole_and_the_rest_is_asked(card: Card, tmp_path: Path) -> None:
    source, out, store = (tmp_path / name for name in ("t.csv", "out.csv", "r.sqlite"))
    write_csv(source, TEXTS[:60])
    with serving(slowly) as server:
        endpoint = ModelEntry(model="http/slow", base_url=server.url, concurrency=1)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        write_card(remote, tmp_path / "rater.yaml")
        paths = [str(path) for path in (tmp_path / "rater.yaml", source, out, store)]
        worker = Forked(SLOW, *paths)
        part = tmp_path / "out.csv.part"
        while worker.poll() is None and (not part.exists() or len(labelled(part)) < 10):
            time.sleep(0.02)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert not out.exists()
        n_kept = len(labelled(part))
        assert 10 <= n_kept < 60
        assert all(row["label"] for row in labelled(part))
        with Store(store) as replies:
            n_stored = len(replies)
            ledger = Ledger()
            done = do(remote, Job(source, out, "body"), replies, ledger=ledger)
        assert done == LabelCounts(60, 60 - n_kept)
        assert ledger.asked == 60 - n_stored
        do(remote, Job(source, tmp_path / "whole.csv", "body"), Store(store))
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_budget_stops_between_parts(card: Card, tmp_path: Path, cli: Cli) -> None:
    write_card(card, Path("rater.yaml"))
    write_csv(Path("t.csv"), TEXTS[:20])
    command = ("classify", "rater.yaml", "t.csv", "--text", "body", "--out", "out.csv")
    code, _, err = cli(*command, "--max-calls", "8")
    assert code == 4
    assert "budget" in err
    assert not Path("out.csv").exists()
    assert labelled(Path("out.csv.part")) == []
    code, out, _ = cli(*command)
    assert code == 0
    assert "20 rows, 20 new" in out


# An output belongs to the rows that it labels

Rows = list[list[str]]
HEADER = ["id", "body", "note"]
JANUARY = [[f"n{k}", text, f"note {k}"] for k, text in enumerate(TEXTS[:12])]
FEBRUARY = [[f"n{k}", text, f"note {k}"] for k, text in enumerate(TEXTS[20:36])]
OTHERS: dict[str, Rows] = {
    "another month": FEBRUARY,
    "a row inserted at the start": [FEBRUARY[0], *JANUARY],
    "a row inserted among the labelled": [*JANUARY[:5], FEBRUARY[0], *JANUARY[5:]],
    "a row twice": [*JANUARY[:3], *JANUARY[2:]],
    "a row removed": [*JANUARY[:3], *JANUARY[4:]],
    "the first row removed": JANUARY[1:],
    "rows swapped": [JANUARY[1], JANUARY[0], *JANUARY[2:]],
    "reversed": JANUARY[::-1],
    "a text edited": [*JANUARY[:2], ["n2", f"{TEXTS[2]}!", "note 2"], *JANUARY[3:]],
    "a kept cell edited": [*JANUARY[:2], ["n2", TEXTS[2], "Note 2"], *JANUARY[3:]],
    "a text emptied": [*JANUARY[:2], ["n2", "", "note 2"], *JANUARY[3:]],
    "fewer rows": JANUARY[:6],
    "one row": JANUARY[:1],
}


def write_rows(path: Path, rows: Rows) -> Path:
    table = pl.DataFrame(rows, schema=HEADER, orient="row")
    {
        ".csv": table.write_csv,
        ".tsv": lambda to: table.write_csv(to, separator="\t"),
        ".jsonl": table.write_ndjson,
        ".parquet": table.write_parquet,
    }[path.suffix](path)  # type: ignore[operator]
    return path


def stop_after(card: Card, job: Job, store: Store, n: int = 8) -> Path:
    """Label the first rows only, as a budget would have it."""
    with pytest.raises(Incomplete):
        do(card, job, store, chunk=4, budget=Budget(calls=n))
    assert not job.out.exists()
    return job.out.with_name(f"{job.out.name}.part")


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.parent.glob(f"{out.name}*")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "r.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("rows", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("is_whole", [True, False], ids=["finished", "part"])
def test_an_output_of_other_rows_is_refused_by_name(
    card: Card, tmp_path: Path, store: Store, rows: Rows, is_whole: bool
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job, n_kept = Job(source, out, "body"), 12 if is_whole else 8
    do(card, job, store) if is_whole else stop_after(card, job, store)
    name, before, ledger = "out.csv" if is_whole else "out.csv.part", files_of(out), Ledger()
    write_rows(source, rows)
    with pytest.raises(Problem, match=rf"t\.csv.*{name}.*use another --out, or --anew") as found:
        do(card, job, store, ledger=ledger)
    assert not isinstance(found.value, Incomplete)
    assert (ledger.wanted, files_of(out)) == (0, before)
    assert len(labelled(tmp_path / name)) == n_kept
    other = Job(source, tmp_path / "other.csv", "body")
    do(card, other, store)
    do(card, job, store, anew=True)
    assert out.read_bytes() == other.out.read_bytes()
    assert [row["body"] for row in labelled(out)] == [row[1] for row in rows]
    assert set(files_of(out)) == {"out.csv", "out.csv.about.jsonl"}


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_every_format_is_held_to_its_rows(
    card: Card, tmp_path: Path, store: Store, suffix: str, ending: str
) -> None:
    source, out = write_rows(tmp_path / f"t.{suffix}", JANUARY), tmp_path / f"out.{ending}"
    stop_after(card, Job(source, out, "body"), store)
    write_rows(source, FEBRUARY)
    with pytest.raises(Problem, match=rf"row 1 of .*t\.{suffix} is not the one that .*out"):
        do(card, Job(source, out, "body"), store)
    write_rows(source, JANUARY)
    assert do(card, Job(source, out, "body"), store) == LabelCounts(12, 4)
    whole = tmp_path / f"whole.{ending}"
    do(card, Job(source, whole, "body"), store)
    assert out.read_bytes() == whole.read_bytes()
    write_rows(source, FEBRUARY)
    with pytest.raises(Problem, match=r"row 1 of .*out\."):
        do(card, Job(source, out, "body"), store)


def test_rows_that_were_added_continue_a_part_but_not_what_is_finished(
    card: Card, tmp_path: Path, store: Store
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    stop_after(card, Job(source, out, "body"), store)
    write_rows(source, [*JANUARY, *FEBRUARY])
    assert do(card, Job(source, out, "body"), store) == LabelCounts(28, 20)
    write_rows(source, [*JANUARY, *FEBRUARY, ["n", "one more", "note"]])
    for limit in (None, 5, 100):
        with pytest.raises(Problem, match=r"t\.csv has more rows than the 28 of .*out\.csv; use"):
            do(card, Job(source, out, "body", limit=limit), store)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another text": ({"text": "note"}, "different fields"),
    "another field": ({"fields": {"question": "note"}}, "different fields"),
    "fewer columns": ({"keep": ("id",)}, "different columns"),
}


@pytest.mark.parametrize(("options", "what"), OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("is_whole", [True, False], ids=["finished", "part"])
def test_an_output_of_another_command_is_refused_by_name(
    card: Card, tmp_path: Path, store: Store, options: dict[str, Any], what: str, is_whole: bool
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job = Job(source, out, "body")
    do(card, job, store) if is_whole else stop_after(card, job, store)
    name, before = "out.csv" if is_whole else "out.csv.part", files_of(out)
    with pytest.raises(Problem, match=rf"{name} was made by another command.*{what}"):
        do(card, replace(job, **options), store)
    with pytest.raises(Problem, match=rf"{name} was made by another command.*different rater"):
        do(Card.model_validate(card.model_dump() | {"seed": 9}), job, store)
    table = pl.DataFrame(JANUARY, schema=["id", "body", "Note"], orient="row")
    table.write_csv(source)
    with pytest.raises(Problem, match=rf"{name} was made by another command.*different columns"):
        do(card, job, store)
    assert files_of(out) == before


def rows_of(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "header": lambda old: old.replace(b"note", b"Note", 1),
    "no header": lambda old: b"".join(rows_of(old)[1:]),
    "label": lambda old: b"".join(
        [*rows_of(old)[:2], swap_class(rows_of(old)[2]), *rows_of(old)[3:]]
    ),
    "last label": lambda old: b"".join([*rows_of(old)[:-1], swap_class(rows_of(old)[-1])]),
    "row removed": lambda old: b"".join(rows_of(old)[:3] + rows_of(old)[4:]),
    "rows swapped": lambda old: b"".join([rows_of(old)[k] for k in (0, 2, 1, *range(3, 9))]),
    "row twice": lambda old: old + rows_of(old)[-1],
    "row added": lambda old: old + b"n99,by hand,note,99,negative,1,,,1,1,1,\n",
    "line added": lambda old: old + b"\n",
    "byte order mark": lambda old: b"\xef\xbb\xbf" + old,
    "line ends": lambda old: old.replace(b"\n", b"\r\n"),
    "sorted": lambda old: b"".join(rows_of(old)[:1] + sorted(rows_of(old)[1:], reverse=True)),
    "binary": lambda old: bytes(range(256)) * 20,
}


def swap_class(row: bytes) -> bytes:
    """Another class in a row, whose name is shorter or longer."""
    names = ("very negative", "negative", "neutral", "positive", "very positive")
    name = next(name for name in names if f",{name},".encode() in row)
    return row.replace(f",{name},".encode(), b",good," if name != "good" else b",bad,")


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("is_whole", [True, False], ids=["finished", "part"])
def test_an_output_that_was_edited_is_refused_by_name(
    card: Card, tmp_path: Path, store: Store, edit: Callable[[bytes], bytes], is_whole: bool
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY[:8]), tmp_path / "out.csv"
    job = Job(source, out, "body")
    if is_whole:
        do(card, job, store)
    else:
        write_rows(source, JANUARY)
        stop_after(card, job, store)
    path = out if is_whole else tmp_path / "out.csv.part"
    path.write_bytes(edit(path.read_bytes()))
    before, ledger = files_of(out), Ledger()
    with pytest.raises(Problem, match=rf"{path.name}.*use another --out, or --anew"):
        do(card, job, store, ledger=ledger)
    assert (ledger.wanted, files_of(out)) == (0, before)


@pytest.mark.parametrize("n_cut", [1, 40, 10_000])
def test_a_finished_output_that_was_cut_is_refused(
    card: Card, tmp_path: Path, store: Store, n_cut: int
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    do(card, Job(source, out, "body", limit=8), store)
    out.write_bytes(out.read_bytes()[:-n_cut])
    for limit in (8, None):
        with pytest.raises(Problem, match=r"row \d of .*out\.csv was changed since"):
            do(card, Job(source, out, "body", limit=limit), store)


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@settings(max_examples=40)  # each waits for the disk
@given(
    st.lists(FIELDS, min_size=9, max_size=9),
    st.integers(0, 900),
    st.sampled_from(["", '["0", "1", 5, "', '["0", "1", 5, ""]\n', "\ufeff", "[]\n"]),
    st.sampled_from(["csv", "jsonl"]),
)
def test_whatever_is_torn_off_complete_rows_stay(
    card: Card,
    tmp_path_factory: pytest.TempPathFactory,
    notes: list[str],
    cut: int,
    about: str,
    suffix: str,
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    source = folder / "t.jsonl"
    rows = [{"body": text, "note": note} for text, note in zip(TEXTS, notes, strict=False)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    job, store = Job(source, folder / f"out.{suffix}", "body"), Store()
    part = stop_after(card, job, store, 4)
    whole = part.read_bytes()
    part.write_bytes(whole[: max(0, len(whole) - cut)])
    with (folder / f"out.{suffix}.about.jsonl").open("a", encoding="utf-8") as file:
        file.write(about)
    ledger = Ledger()
    done = do(card, job, store, ledger=ledger)
    assert (done.n_rows, ledger.asked) == (9, 5)
    assert done.n_new == 5 or cut
    do(card, Job(source, folder / f"whole.{suffix}", "body"), store)
    assert job.out.read_bytes() == (folder / f"whole.{suffix}").read_bytes()
    assert [row["note"] for row in labelled(job.out)] == notes


ODD = [
    'say "so"',
    "two\nlines",
    "a\rb",
    "\r\n",
    '"',
    "\0",
    "🙂\u202e",
    "a,b;c\td",
    "\ufeff",
    " ",
    "'",
]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_cells_of_any_character_come_back_after_a_stop(
    card: Card, tmp_path: Path, store: Store, ending: str
) -> None:
    source, out = tmp_path / "t.jsonl", tmp_path / f"out.{ending}"
    rows = [{"body": text, "note": note} for text, note in zip(TEXTS, ODD, strict=False)]
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    stop_after(card, Job(source, out, "body"), store)
    do(card, Job(source, out, "body"), store)
    assert [row["note"] for row in labelled(out)] == ODD


def append_line(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"n,one more,note\n")


def make_again(path: Path) -> None:
    path.unlink()
    path.touch()


def put_another(path: Path) -> None:
    path.with_name("new").write_text("id,body,note\n")
    path.with_name("new").replace(path)


MEDDLING: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "renamed": lambda path: path.rename(path.with_name("elsewhere")),
    "replaced": put_another,
    "removed and made again": make_again,
    "emptied": lambda path: os.truncate(path, 0),
    "cut short": lambda path: os.truncate(path, 40),
    "added to": append_line,
}


def meddled(
    card: Card, job: Job, store: Store, meddle: Callable[[], object], after: int = 6
) -> tuple[Problem, Ledger]:
    """Label rows while something happens to a file."""
    ledger, happened = Ledger(), list[bool]()

    def on_reply(request: Request, reply: Reply) -> None:
        if ledger.asked >= after and not happened:
            happened.append(True)
            meddle()

    with pytest.raises(Incomplete) as found:
        do(card, job, store, chunk=4, ledger=ledger, on_reply=on_reply)
    assert happened
    return found.value, ledger


@pytest.mark.parametrize("meddle", MEDDLING.values(), ids=MEDDLING)
@pytest.mark.parametrize("name", ["out.csv.part", "out.csv.about.jsonl"])
@pytest.mark.parametrize("after", [6, 11], ids=["early", "in the last rows"])
def test_what_happens_to_a_part_that_is_written_is_noticed(
    card: Card,
    tmp_path: Path,
    store: Store,
    meddle: Callable[[Path], object],
    name: str,
    after: int,
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job = Job(source, out, "body")
    error, ledger = meddled(card, job, store, lambda: meddle(tmp_path / name), after)
    assert re.search(rf"{name} was removed, replaced or changed.*same command.*--anew", str(error))
    assert not out.exists()
    assert ledger.asked < 12 or after > 6
    again = Ledger()
    assert do(card, job, store, anew=True, ledger=again) == LabelCounts(12, 12)
    assert ledger.asked + again.asked == 12
    assert [row["row"] for row in labelled(out)] == [str(k) for k in range(1, 13)]


@pytest.mark.parametrize("meddle", MEDDLING.values(), ids=MEDDLING)
def test_what_happens_to_an_output_before_it_grows_is_noticed(
    card: Card, tmp_path: Path, store: Store, meddle: Callable[[Path], object]
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    do(card, Job(source, out, "body", limit=4), store)
    error, _ = meddled(card, Job(source, out, "body"), store, lambda: meddle(out), after=2)
    assert "out.csv was removed, replaced or changed" in str(error)
    assert not (tmp_path / "out.csv.part").exists()
    assert do(card, Job(source, out, "body"), store, anew=True) == LabelCounts(12, 12)


def test_after_a_part_was_removed_the_same_command_starts_it_over(
    card: Card, tmp_path: Path, store: Store
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job = Job(source, out, "body")
    meddled(card, job, store, (tmp_path / "out.csv.part").unlink)
    assert do(card, job, store) == LabelCounts(12, 12)
    assert len(labelled(out)) == 12


def test_a_folder_that_is_renamed_is_noticed(card: Card, tmp_path: Path, store: Store) -> None:
    source, folder = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "labels"
    job = Job(source, folder / "out.csv", "body")
    error, _ = meddled(card, job, store, lambda: folder.rename(tmp_path / "moved"))
    assert "was removed" in str(error)
    assert not folder.exists()
    assert do(card, replace(job, out=tmp_path / "moved" / "out.csv"), store) == LabelCounts(12, 8)


SOURCES = MEDDLING | {
    "another month": lambda path: write_rows(path, FEBRUARY),
    "another month by name": lambda path: write_rows(
        path.with_name(f"n{path.suffix}"), FEBRUARY
    ).replace(path),
}


@pytest.mark.parametrize("meddle", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_texts_that_change_while_they_are_labelled_are_noticed(
    card: Card, tmp_path: Path, store: Store, meddle: Callable[[Path], object], suffix: str
) -> None:
    source, out = write_rows(tmp_path / f"t.{suffix}", JANUARY), tmp_path / "out.csv"
    job, before = Job(source, out, "body"), source.read_bytes()
    error, _ = meddled(card, job, store, lambda: meddle(source))
    assert f"t.{suffix} was changed while it was being labelled" in str(error)
    rows = labelled(tmp_path / "out.csv.part")
    assert [row["body"] for row in rows] == [row[1] for row in JANUARY[: len(rows)]]
    source.write_bytes(before)
    assert do(card, job, store) == LabelCounts(12, 12 - len(rows))
    assert [row["body"] for row in labelled(out)] == [row[1] for row in JANUARY]


def test_a_file_that_comes_into_the_place_of_the_output_stays(
    card: Card, tmp_path: Path, store: Store
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job = Job(source, out, "body")
    error, ledger = meddled(card, job, store, lambda: out.write_text("mine"))
    assert "out.csv is in the place of" in str(error)
    assert (ledger.asked, out.read_text()) == (12, "mine")
    with pytest.raises(Incomplete, match=r"out\.csv is in the place of .*out\.csv\.part; move it"):
        do(card, job, store)
    out.rename(tmp_path / "mine.csv")
    assert do(card, job, store) == LabelCounts(12, 0)
    assert len(labelled(out)) == 12


def test_what_was_finished_stays_until_its_successor_is(
    card: Card, tmp_path: Path, store: Store
) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    job = Job(source, out, "body")
    do(card, job, store)
    old = out.read_bytes()
    write_rows(source, FEBRUARY)
    with pytest.raises(Incomplete):
        do(card, job, store, anew=True, chunk=4, budget=Budget(calls=8))
    assert out.read_bytes() == old
    assert do(card, job, store) == LabelCounts(16, 8)
    assert [row["body"] for row in labelled(out)] == [row[1] for row in FEBRUARY]


def test_a_part_that_is_whole_only_needs_its_name(card: Card, tmp_path: Path, store: Store) -> None:
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    do(card, Job(source, out, "body"), store)
    before, ledger = files_of(out), Ledger()
    out.rename(tmp_path / "out.csv.part")
    assert do(card, Job(source, out, "body"), store, ledger=ledger) == LabelCounts(12, 0)
    assert (files_of(out), ledger.wanted) == (before, 0)


def test_the_verb_refuses_and_resumes_by_exit_code(card: Card, cli: Cli) -> None:
    write_card(card, Path("rater.yaml"))
    source = write_rows(Path("t.csv"), JANUARY)
    command = ("classify", "rater.yaml", "t.csv", "--text", "body", "--out", "out.csv")
    assert cli(*command)[0] == 0
    code, out, _ = cli(*command)
    assert (code, "12 rows, 0 new" in out, "the file is complete" in out) == (0, True, True)
    write_rows(source, FEBRUARY)
    code, _, err = cli(*command)
    assert code == 2
    assert "row 1 of t.csv is not the one that out.csv labels; use another --out, or" in (
        " ".join(err.split())
    )
    assert cli(*command, "--anew")[0] == 0
    assert len(labelled(Path("out.csv"))) == 16


def test_a_row_that_failed_is_still_said_to_have(card: Card, tmp_path: Path, store: Store) -> None:
    heard = list[int]()

    def rule(body: Any) -> Behaviour:
        heard.append(1)
        is_odd = TEXTS[1] in body["messages"][-1]["content"] and not is_mended
        return fails(400, "no") if is_odd else says(answer("2"))

    is_mended: list[bool] = []
    source, out = write_rows(tmp_path / "t.csv", JANUARY), tmp_path / "out.csv"
    with serving(rule) as server:
        endpoint = ModelEntry(model="http/any", base_url=server.url)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        job = Job(source, out, "body")
        assert do(remote, job, store).faults == {"error": 1}
        assert out.exists()
        asked, is_mended[:] = len(heard), [True]
        assert do(remote, job, store).faults == {"error": 1}
        assert len(heard) == asked
        assert do(remote, job, store, anew=True) == LabelCounts(12, 12)
        assert len(heard) == asked + 1
    assert all(row["label"] for row in labelled(out))


# Texts as they come


def test_odd_texts_are_rows_like_any_other(card: Card, tmp_path: Path) -> None:
    texts = [
        "🙂🙃 naïve – “quoted”, \u202eturned",
        "line\nbreak\r\nand, comma",
        "x" * 100_000,
        "",
        "  ",
    ]
    endpoint_texts = [TEXTS[0], *texts, TEXTS[1]]
    source = write_csv(tmp_path / "t.csv", endpoint_texts)
    with serving(lambda body: says(answer("2"))) as server:
        endpoint = ModelEntry(model="http/any", base_url=server.url)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        do(remote, Job(source, tmp_path / "out.csv", "body", keep=("body",)))
    rows = labelled(tmp_path / "out.csv")
    assert [row["body"] for row in rows] == endpoint_texts
    assert [row["fault"] for row in rows] == ["", "", "", "", "empty", "empty", ""]
    assert [bool(row["label"]) for row in rows] == [True, True, True, True, False, False, True]


def test_a_text_that_the_endpoint_refuses_is_a_fault(card: Card, tmp_path: Path) -> None:
    def too_long(body: Any) -> Behaviour:
        is_long = len(body["messages"][-1]["content"]) > 50_000
        return fails(400, "context length exceeded") if is_long else says(answer("2"))

    source = write_csv(tmp_path / "t.csv", [TEXTS[0], "y" * 100_000])
    with serving(too_long) as server:
        endpoint = ModelEntry(model="http/any", base_url=server.url)
        remote = card.model_copy(update={"model": endpoint, "selected": None})
        done = do(remote, Job(source, tmp_path / "out.csv", "body"))
    assert done.faults == {"error": 1}
    assert [row["label"] for row in labelled(tmp_path / "out.csv")] == ["negative", ""]


def test_malformed_rows_are_named_and_passed_by(card: Card, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    lines = [json.dumps({"body": TEXTS[0]}), "{not json", '{"body": 5}', "[1]", '{"other": "x"}']
    source.write_text("\n".join(lines), encoding="utf-8")
    do(card, Job(source, tmp_path / "out.jsonl", "body"))
    faults = [row["fault"] for row in labelled(tmp_path / "out.jsonl")]
    assert faults == ["", "malformed", "not text", "malformed", "empty"]
    ragged = tmp_path / "r.csv"
    ragged.write_text(f'id,body\n1,"{TEXTS[0]}"\n2\n', encoding="utf-8")
    do(card, Job(ragged, tmp_path / "r.out.csv", "body"))
    assert [row["fault"] for row in labelled(tmp_path / "r.out.csv")] == ["", "malformed"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_large_files_are_read_a_few_rows_at_a_time(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"t.{suffix}"
    frame = pl.DataFrame({"body": [f"text {k}" for k in range(9_000)]})
    write = {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}
    cast(Callable[[Path], None], write[suffix])(path)
    rows = stream_rows(path, ["body"])
    assert [record.values["body"] for record in rows] == frame["body"].to_list()


@pytest.mark.parametrize(
    ("name", "content", "says_"),
    [
        ("t.csv", "", "has no rows"),
        ("t.csv", "body\n", "has no rows"),
        ("t.jsonl", "\n\n", "has no rows"),
        ("t.csv", "bdy\nhello\n", "did you mean 'bdy'"),
        ("t.jsonl", '{"txt": "x"}\n', "no column 'body'; known: txt"),
        ("t.xls", "body\nx\n", r"cannot read '\.xls' files"),
        ("t.parquet", "no parquet", "not a readable Parquet file"),
        ("t.csv", 'body\n"open', "broken quoting"),
        ("nowhere.csv", None, "does not exist"),
    ],
)
def test_a_file_that_cannot_be_labelled_says_why(
    card: Card, tmp_path: Path, name: str, content: str | None, says_: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(Problem, match=says_):
        do(card, Job(path, tmp_path / "out.csv", "body"))
    assert not list(tmp_path.glob("out.csv*"))


def test_latin_1_is_refused_behind_what_could_be_read(card: Card, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("body\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(Problem, match="not UTF-8"):
        do(card, Job(path, tmp_path / "out.csv", "body"))


@pytest.mark.parametrize(
    ("options", "says_"),
    [({"out": Path("x.parquet")}, r"ends in \.csv or \.jsonl")],
)
def test_an_output_that_cannot_be_is_refused(options: dict[str, Any], says_: str) -> None:
    with pytest.raises(Problem, match=says_):
        Job(**{"source": Path("t.csv"), "out": Path("o.csv"), **options})


# The verb


def test_the_verb_writes_beside_the_file_and_warns_of_another_model(card: Card, cli: Cli) -> None:
    write_card(card, Path("rater.yaml"))
    write_csv(Path("t.csv"), TEXTS[:6])
    code, out, err = cli("classify", "rater.yaml", "t.csv", "--text", "body", "--limit", "4")
    assert (code, err) == (0, "")
    assert "labels: t.labelled.csv (4 rows, 4 new)" in out
    other = ("-m", "sim/recency", "--out", "other.csv", "--average", "label_order")
    code, out, err = cli("classify", "rater.yaml", "t.csv", "--text", "body", *other)
    assert code == 0
    assert "does not transfer" in err
    assert {row["calls"] for row in labelled(Path("other.csv"))} == {"2"}


def test_several_fields_come_from_several_columns(card: Card, tmp_path: Path) -> None:
    source = tmp_path / "t.jsonl"
    source.write_text(json.dumps({"a": TEXTS[0], "q": "Why?"}) + "\n", encoding="utf-8")
    job = Job(source, tmp_path / "out.csv", "a", {"question": "q"})
    assert do(card, job) == LabelCounts(1, 1)


@pytest.mark.parametrize(
    ("arguments", "says_"),
    [
        (["nowhere.yaml", "t.csv"], "no rater card nowhere.yaml"),
        (["rater.yaml", "t.csv", "--text", "bod"], "did you mean 'body'"),
        (["rater.yaml", "t.csv", "--text", "body", "--field", "q"], "write NAME=COLUMN"),
        (["rater.yaml", "t.csv", "--text", "body", "--max-usd", "1"], "needs `price`"),
        (["rater.yaml", "t.csv", "--text", "body", "--average", "labels"], "label_order"),
    ],
)
def test_what_is_asked_wrongly_has_a_way_out(
    card: Card, cli: Cli, arguments: list[str], says_: str
) -> None:
    write_card(card, Path("rater.yaml"))
    write_csv(Path("t.csv"), TEXTS[:3])
    code, _, err = cli("classify", *arguments)
    assert code == 2
    assert says_ in " ".join(err.split())


# Raters of one's own


def test_fields_are_the_text_where_a_file_has_none_as_in_a_study(
    card: Card, tmp_path: Path
) -> None:
    source = tmp_path / "t.csv"
    source.write_text("q,a\nWhy?,Because.\n", encoding="utf-8")
    prompt = {"prompt": "{{ question }} {{ answer }} [{{ labels }}] {{ text }}"}
    judge = card.model_copy(update={"style": card.style | prompt})
    job = Job(source, tmp_path / "out.csv", fields={"question": "q", "answer": "a"})
    assert do(judge, job).n_rows == 1
    with pytest.raises(Problem, match="no column 'text'"):
        do(judge, Job(source, tmp_path / "other.csv"))


def test_a_prompt_that_the_columns_do_not_fill_is_refused(card: Card, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    judge = card.model_copy(update={"style": card.style | {"prompt": "{{ question }} {{ text }}"}})
    with pytest.raises(Problem, match="no placeholder named 'question'"):
        do(judge, Job(source, tmp_path / "out.csv", "body"))


def test_draws_are_not_positions_that_agree(card: Card, tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    drawn = card.model_copy(update={"score_samples": 3})
    do(drawn, Job(source, tmp_path / "out.csv", "body"))
    rows = labelled(tmp_path / "out.csv")
    assert {row["agreement"] for row in rows} == {""}
    assert {row["calls"] for row in rows} == {"4"}


def test_a_file_of_semicolons_is_read_as_in_a_study(card: Card, tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    with source.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(
            [("id", "body"), ("n;1", TEXTS[0]), ("n2", TEXTS[1])]
        )
    job = Job(source, tmp_path / "out.csv", "body", keep=("id",))
    assert do(card, job) == LabelCounts(2, 2)
    assert [row["id"] for row in labelled(job.out)] == ["n;1", "n2"]


def test_labels_never_take_the_place_of_the_texts(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    with pytest.raises(Problem, match="contains the texts"):
        Job(source, tmp_path / "." / "t.csv", "body")


def test_a_link_to_the_texts_is_the_texts(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    (tmp_path / "hard.csv").hardlink_to(source)
    with pytest.raises(Problem, match="contains the texts"):
        Job(source, tmp_path / "hard.csv", "body")


def test_a_column_that_stands_twice_is_refused_if_it_is_read(card: Card, tmp_path: Path) -> None:
    source = tmp_path / "t.csv"
    source.write_text(f'body,note,note\n"{TEXTS[0]}",a,b\n', encoding="utf-8")
    assert do(card, Job(source, tmp_path / "out.csv", "body")) == LabelCounts(1, 1)
    with pytest.raises(Problem, match=r"t\.csv has more than one column named \['note'\]"):
        do(card, Job(source, tmp_path / "kept.csv", "body", keep=("note",)))


def test_a_name_without_room_for_a_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"cannot write .*too long.*use another --out"):
        Job(tmp_path / "t.csv", tmp_path / f"{'o' * 246}.csv", "body")


@pytest.mark.parametrize("name", ["out.csv.part", "out.csv.about.jsonl"])
def test_a_pipe_in_the_place_of_a_part_is_not_waited_for(
    card: Card, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / name)
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    with pytest.raises(Problem, match=rf"{name} is not a file"):
        do(card, Job(source, tmp_path / "out.csv", "body"))


@pytest.mark.parametrize("anew", [False, True])
def test_a_folder_in_the_place_of_the_output_is_named(
    card: Card, tmp_path: Path, anew: bool
) -> None:
    source = write_csv(tmp_path / "t.csv", TEXTS[:3])
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(Problem, match=r"out\.csv.*use another --out"):
        do(card, Job(source, tmp_path / "out.csv", "body"), anew=anew)


def test_an_output_that_goes_away_loses_no_reply(card: Card, tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "t.csv", TEXTS[:10]), tmp_path / "out.csv"
    ledger, part = Ledger(), tmp_path / "out.csv.part"

    def interfere(request: Request, reply: Reply) -> None:
        if ledger.asked > 5 and part.is_file():
            part.unlink()
            part.mkdir()

    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(Incomplete, match=r"out\.csv\.part was removed.*are in the store"):
            do(card, Job(source, out, "body"), store, chunk=4, ledger=ledger, on_reply=interfere)
        ledger = Ledger()
        job = Job(source, tmp_path / "other.csv", "body")
        assert do(card, job, store, ledger=ledger) == LabelCounts(10, 10)
        assert (ledger.asked, ledger.stored) == (2, 8)


def test_an_output_that_finds_no_room_is_incomplete(card: Card, tmp_path: Path) -> None:
    """As on a disk that others fill: everything asked is stored, and the command continues."""
    job = Job(write_csv(tmp_path / "t.csv", TEXTS[:10]), tmp_path / "out.csv", "body")
    before, ledger = resource.getrlimit(resource.RLIMIT_FSIZE), Ledger()

    def fill(request: Request, reply: Reply) -> None:
        if ledger.asked > 5:
            full = (tmp_path / "out.csv.part").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (full, before[1]))

    store = Store()
    try:
        with pytest.raises(Incomplete, match=r"cannot write .*out\.csv.*are in the store"):
            do(card, job, store, chunk=4, ledger=ledger, on_reply=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    again = Ledger()
    assert do(card, job, store, ledger=again).n_rows == 10
    assert (ledger.asked, again.asked) == (8, 2)
    assert [row["row"] for row in labelled(job.out)] == [str(k) for k in range(1, 11)]


def test_rows_that_failed_say_which_and_why(card: Card, cli: Cli) -> None:
    Path("mine.py").write_text(
        "def rate(question):\n"
        "    if 'odd' in question.text:\n"
        "        return {'probabilities': [1.0]}\n"
        "    return 2\n",
        encoding="utf-8",
    )
    endpoint = ModelEntry(model="python/mine.py:rate")
    mine = card.model_copy(update={"model": endpoint, "selected": None, "identity": ""})
    write_card(mine, Path("rater.yaml"))
    write_csv(Path("t.csv"), ["fine", "an odd one", "fine too"])
    code, _, err = cli("classify", "rater.yaml", "t.csv", "--text", "body", "--trust")
    assert code == 4
    told = " ".join(err.split())
    assert (
        "1 rows failed after retries (row-2: ValueError: it returned 1 probabilities, but" in told
    )
    assert "there are 5 labels" in told
    rows = labelled(Path("t.labelled.csv"))
    assert [(row["rank"], row["fault"]) for row in rows] == [("2", ""), ("0", "error"), ("2", "")]


def test_a_callable_of_a_card_is_looked_for_beside_it(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: None
) -> None:
    folder = tmp_path / "cards"
    folder.mkdir()
    (folder / "mine.py").write_text("def rate(question): return 4\n", encoding="utf-8")
    endpoint = ModelEntry(model="python/mine.py:rate")
    mine = card.model_copy(update={"model": endpoint, "selected": None, "identity": ""})
    write_card(mine, folder / "rater.yaml")
    source = write_csv(tmp_path / "t.csv", TEXTS[:2])
    monkeypatch.chdir(tmp_path)
    do(read_card(Path("cards/rater.yaml")), Job(source, tmp_path / "out.csv", "body"))
    assert [row["rank"] for row in labelled(tmp_path / "out.csv")] == ["4", "4"]


def test_parquet_columns_of_any_kind_are_rows_or_faults(card: Card, tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "body": [TEXTS[0], None, TEXTS[1]],
            "meta": [{"x": 1}, None, {"x": 3}],
            "tags": [["a"], [], None],
            "score": [1.0, float("nan"), 2.5],
        }
    )
    table.write_parquet(tmp_path / "t.parquet")
    job = Job(
        tmp_path / "t.parquet", tmp_path / "out.jsonl", "body", keep=("meta", "tags", "score")
    )
    do(card, job)
    rows = labelled(job.out)
    assert [row["fault"] for row in rows] == ["", "empty", ""]
    assert [(row["meta"], row["tags"], row["score"]) for row in rows] == [
        ({"x": 1}, ["a"], 1.0),
        (None, [], None),
        ({"x": 3}, None, 2.5),
    ]
    do(card, Job(tmp_path / "t.parquet", tmp_path / "nested.csv", "meta"))
    assert {row["fault"] for row in labelled(tmp_path / "nested.csv")} == {"not text", "empty"}


def test_the_same_texts_are_labelled_alike_from_every_kind_of_file(
    card: Card, tmp_path: Path
) -> None:
    rows = [{"body": text} for text in TEXTS[:6]]
    table = pl.DataFrame(rows)
    table.write_csv(tmp_path / "t.csv")
    table.write_csv(tmp_path / "t.tsv", separator="\t")
    table.write_ndjson(tmp_path / "t.jsonl")
    table.write_parquet(tmp_path / "t.parquet")
    found = set()
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        out = tmp_path / f"{ending}.out.csv"
        do(card, Job(tmp_path / f"t.{ending}", out, "body"))
        found.add(out.read_bytes())
    assert len(found) == 1
