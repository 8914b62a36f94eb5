"""A file of texts becomes a file of labels, whatever happens on the way."""

from __future__ import annotations

import asyncio
import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Cli
from flipmeter.data import load
from flipmeter.data.tables import stream_rows
from flipmeter.model import Ledger, Store
from flipmeter.ship.card import Card, read_card, write_card
from flipmeter.ship.classify import COLUMNS, Job, LabelCounts, LabelFile, classify
from flipmeter.ship.select import card_of, select
from flipmeter.study.entries import ModelEntry, PriceEntry
from flipmeter.types import Problem, Reply, Request
from misbehaving import Behaviour, answer, fails, says, serving
from report_runs import simulated

REVIEWS = load("reviews")
TEXTS = [item.text for item in REVIEWS.test]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Card:
    run = simulated(tmp_path_factory.mktemp("run"), probes=["label_order"], test_size=20)
    return card_of(run, select(run))


def write_csv(path: Path, texts: list[str], column: str = "body") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", column])
        rows.writerows([f"n{k}", text] for k, text in enumerate(texts))
    return path


def labelled(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def do(card: Card, job: Job, store: Store | None = None, **options: Any) -> LabelCounts:
    known = card.world() if card.selected else None
    work = classify(card, job, Store() if store is None else store, world=known, **options)
    return asyncio.run(work)


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
    about = out.with_name("out.csv.about.json")
    for torn in ("[1]", "{", ""):
        about.write_text(torn, encoding="utf-8")
        with pytest.raises(Problem, match="made by another command"):
            do(card, Job(source, out, "body"))
    about.unlink()
    with pytest.raises(Problem, match="made by another command"):
        do(card, Job(source, out, "body"))


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@settings(max_examples=40)  # each waits for the disk
@given(st.lists(FIELDS, max_size=6), st.integers(0, 200), st.sampled_from(["csv", "jsonl"]))
def test_whatever_is_torn_off_complete_rows_stay(
    tmp_path_factory: pytest.TempPathFactory, kept: list[str], cut: int, suffix: str
) -> None:
    output = LabelFile(tmp_path_factory.mktemp("torn") / f"out.{suffix}", ["row", "note"])
    output.begin({})
    rows = [{"row": k, "note": text} for k, text in enumerate(kept)]
    output.append(rows)
    whole = output.path.read_bytes()
    output.path.write_bytes(whole[: len(whole) - cut] if cut <= len(whole) else b"")
    n_rows = output.begin({})
    assert n_rows <= len(rows)
    if not cut:
        assert n_rows == len(rows)
    output.append(rows[n_rows:])
    assert output.path.read_bytes() == whole


SLOW = """
import asyncio, sys
from pathlib import Path
from flipmeter.ship.card import read_card
from flipmeter.ship.classify import Job, classify
from flipmeter.model import Store

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
        worker = subprocess.Popen([sys.executable, "-c", SLOW, *paths])
        while worker.poll() is None and (not out.exists() or len(labelled(out)) < 10):
            time.sleep(0.02)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        n_kept = len(labelled(out))
        assert 10 <= n_kept < 60
        assert all(row["label"] for row in labelled(out))
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
    assert labelled(Path("out.csv")) == []
    code, out, _ = cli(*command)
    assert code == 0
    assert "20 rows, 20 new" in out


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
    assert not (tmp_path / "out.csv").exists()


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
    ledger = Ledger()

    def interfere(request: Request, reply: Reply) -> None:
        if ledger.asked > 5 and out.is_file():
            out.unlink()
            out.mkdir()

    with Store(tmp_path / "r.sqlite") as store:
        with pytest.raises(Problem, match=r"Is a directory.*all replies so far are in the store"):
            do(card, Job(source, out, "body"), store, chunk=4, ledger=ledger, on_reply=interfere)
        ledger = Ledger()
        job = Job(source, tmp_path / "other.csv", "body")
        assert do(card, job, store, ledger=ledger) == LabelCounts(10, 10)
        assert (ledger.asked, ledger.stored) == (2, 8)


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
