"""A user's file becomes a dataset, or the error names the file, the row and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.data.files import load_file
from flipmeter.data.load import load
from flipmeter.data.tables import read_table
from flipmeter.errors import Problem
from flipmeter.types import Dataset, Scale, Task

LEVELS = ["low", "medium", "high"]
GOOD = "text,label\nprinter on fire,high\nnew mouse please,low\nscreen flickers,medium\n"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes, name: str = "tickets.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def golds(dataset: Dataset) -> list[int | None]:
    return [item.gold for item in dataset.test]


def complaint(path: Path, **options: Any) -> str:
    with pytest.raises(Problem) as raised:
        load_file(path, **{"scale": LEVELS, **options})
    return str(raised.value)


def test_a_csv_becomes_items_with_ranks(write: Write) -> None:
    dataset = load_file(write(GOOD), scale=LEVELS)
    assert dataset.test[0].text == "printer on fire"
    assert golds(dataset) == [3, 1, 2]
    assert [item.id for item in dataset.test] == ["test-2", "test-3", "test-4"]
    assert (dataset.name, dataset.pool, dict(dataset.left_out)) == ("tickets", (), {})


def test_all_formats_give_the_same_items(write: Write, tmp_path: Path) -> None:
    frame = pl.read_csv(write(GOOD))
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_ndjson(tmp_path / "t.jsonl")
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    digests = {load_file(tmp_path / f"t.{kind}", scale=LEVELS).digest for kind in _FORMATS}
    assert digests == {load_file(tmp_path / "tickets.csv", scale=LEVELS).digest}


_FORMATS = ("parquet", "jsonl", "tsv")


def test_the_digest_sees_texts_and_labels_but_not_ids(write: Write) -> None:
    first = load_file(write(GOOD), scale=LEVELS).digest
    blank_line = load_file(write(GOOD.replace("\nnew", "\n\nnew")), scale=LEVELS).digest
    other = load_file(write(GOOD.replace("fire,high", "fire,low")), scale=LEVELS).digest
    assert first == blank_line != other


@pytest.mark.parametrize(
    ("raw", "rank"),
    [
        (" HIGH ", 3),
        ("3", 3),
        ("2.0", 2),
        ("1 star", 1),
        ("3 stars", 3),
        ("2-star", 2),
        ("★★★", 3),
        ("★★☆", 2),
        ("⭐️⭐️", 2),
    ],
)
def test_a_label_may_be_a_word_a_rank_or_stars(write: Write, raw: str, rank: int) -> None:
    dataset = load_file(write(GOOD + f"one more,{raw}\n"), scale=LEVELS)
    assert golds(dataset)[-1] == rank


def test_numbers_in_json_count_as_ranks(write: Write) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 3.0}, {"text": "c", "label": "2"}]
    path = write("\n".join(map(json.dumps, rows)), "t.jsonl")
    assert golds(load_file(path, scale=LEVELS)) == [1, 3, 2]


def test_labels_from_zero_need_a_scale_that_says_so(write: Write) -> None:
    path = write("text,label\na,0\nb,2\nc,1\n")
    assert "scale: {0: low, 1: medium, 2: high}" in complaint(path)
    assert golds(load_file(path, scale={0: "low", 1: "medium", 2: "high"})) == [1, 3, 2]


def test_the_name_wins_over_the_rank(write: Write) -> None:
    path = write("text,label\na,0\nb,1\nc,10\n")
    dataset = load_file(path, scale=list(range(11)))
    assert golds(dataset) == [1, 2, 11]
    assert dataset.task.scale.names[-1] == "10"


def test_a_mapping_of_labels_may_name_a_class_or_a_rank(write: Write) -> None:
    path = write("text,label\na,P1\nb,P4\nc,high\n")
    dataset = load_file(path, scale=LEVELS, labels={"p1": "High", "P4": 1})
    assert golds(dataset) == [3, 1, 3]


def test_with_a_mapping_numbers_are_no_longer_ranks(write: Write) -> None:
    path = write("text,label\na,0\nb,2\nc,3\n")
    assert "the label '3' is not on the scale" in complaint(
        path, labels={0: "low", 1: "medium", 2: "high"}
    )


def test_a_mapping_to_no_class_is_an_error(write: Write) -> None:
    said = complaint(write(GOOD), labels={"x": "hihg"})
    assert "labels maps 'x' to 'hihg', which is not a class; did you mean 'high'?" in said


def test_a_demos_file_is_the_pool(write: Write) -> None:
    demos = write("text,label\nbroken,high\nfine,low\n", "demos.csv")
    dataset = load_file(write(GOOD), scale=LEVELS, demos=demos)
    assert [(item.text, item.role) for item in dataset.pool] == [
        ("broken", "demo"),
        ("fine", "demo"),
    ]


def test_a_demo_that_stands_in_the_test_file_is_a_leak(write: Write) -> None:
    demos = write("text,label\nPrinter  on FIRE,high\nfine,low\nmeh,medium\n", "demos.csv")
    said = complaint(write(GOOD), demos=demos)
    assert "demos.csv, row 2" in said
    assert re.search(r"is also in the test set \(.*tickets.csv, row 2\)", said)
    dropped = load_file(write(GOOD), scale=LEVELS, demos=demos, on_bad="drop")
    assert (len(dropped.pool), dropped.left_out) == (2, {"leak": 1})


def test_further_fields_and_ids_come_along(write: Write) -> None:
    path = write("nr,q,a,mark\n7,why?,because,2\n8,who?,me,1\n")
    dataset = load_file(
        path, text="a", label="mark", scale=["bad", "good"], id="nr", fields={"question": "q"}
    )
    assert dataset.test[0].fields == {"text": "because", "question": "why?"}
    assert [item.id for item in dataset.test] == ["7", "8"]


def test_the_main_field_is_named_once(write: Write) -> None:
    assert "fields lists 'text' again" in complaint(write(GOOD), fields={"text": "label"})


def test_the_same_answer_to_two_questions_is_no_duplicate(write: Write) -> None:
    path = write("q,text,label\nwhy?,yes,low\nwho?,yes,high\n")
    assert len(load_file(path, scale=LEVELS, fields={"question": "q"}).test) == 2


def test_long_texts_emoji_and_quoted_new_lines_survive(write: Write) -> None:
    texts = ["x" * 300_000, "👩‍👩‍👧 \U0001f4a9", 'a "quoted",\r\nbroken line', "left\u2028right"]
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    rows = [f"{text},{1 + n % 2}" for n, text in enumerate(quoted)]
    dataset = load_file(write("\ufefftext,label\n" + "\n".join(rows)), scale=LEVELS)
    assert [item.text for item in dataset.test] == texts
    assert [item.id for item in dataset.test] == ["test-2", "test-3", "test-4", "test-6"]


def test_windows_line_ends_are_fine(write: Write) -> None:
    for name, content in (("t.csv", GOOD), ("t.tsv", GOOD.replace(",", "\t"))):
        path = write(content.replace("\n", "\r\n"), name)
        assert golds(load_file(path, scale=LEVELS)) == [3, 1, 2]


def test_a_plain_tsv_keeps_its_quotes(write: Write) -> None:
    path = write('text\tlabel\n"Great" she said\thigh\n"never\tlow\n"No."\tlow\n', "t.tsv")
    texts = [item.text for item in load_file(path, scale=LEVELS).test]
    assert texts == ['"Great" she said', '"never', '"No."']


def test_a_tsv_that_doubles_its_quotes_is_unquoted(write: Write) -> None:
    path = write('text\tlabel\n"He said ""no"""\thigh\nplain\tlow\n', "t.tsv")
    assert load_file(path, scale=LEVELS).test[0].text == 'He said "no"'


def test_a_tsv_with_broken_lines_says_how_to_read_quotes(write: Write) -> None:
    path = write('text\tlabel\n"two\nlines"\thigh\nplain\tlow\n', "t.tsv")
    assert "row 2: 1 fields where the header has 2; set quotes: true" in complaint(path)
    assert load_file(path, scale=LEVELS, quotes=True).test[0].text == "two\nlines"


def test_a_csv_may_separate_by_semicolons(write: Write) -> None:
    path = write('text;label\n"a, b; c";low\nd;high\n', "t.csv")
    assert [item.text for item in load_file(path, scale=LEVELS).test] == ["a, b; c", "d"]


BAD_FILES = {
    "missing": (None, "nothing.csv", "nothing.csv does not exist"),
    "suffix": ("x", "notes.docx", "cannot read '.docx' files; use one of .csv, .tsv"),
    "empty": ("", "tickets.csv", "has no rows"),
    "header only": ("text,label\n", "tickets.csv", "has no rows"),
    "column": (
        "txt,label\na,low\n",
        "tickets.csv",
        "no column 'text'; did you mean 'txt'? (known: txt",
    ),
    "two columns": ("text,label,text\na,low,b\n", "tickets.csv", "more than one column named"),
    "label": (GOOD + "a,hgih\n", "tickets.csv", "row 5: the label 'hgih' is not on the scale; did"),
    "no label": (GOOD + "a,\n", "tickets.csv", "row 5: the field 'label' is empty"),
    "fraction": (GOOD + "a,2.5\n", "tickets.csv", "row 5: the label '2.5' is not on the scale"),
    "no text": (GOOD + " ,low\n", "tickets.csv", "row 5: the field 'text' is empty"),
    "invisible": (GOOD + "\u200b\u00a0,low\n", "tickets.csv", "row 5: the field 'text' is empty"),
    "ragged": (GOOD + "a,b,low\n", "tickets.csv", "row 5: 3 fields where the header has 2; quote"),
    "one class": ("text,label\na,low\nb,low\n", "tickets.csv", "every row has the class 'low'"),
    "duplicate": (GOOD + "Printer on  FIRE,high\n", "tickets.csv", "row 5: the text 'Printer on"),
    "two labels": (GOOD + "printer on fire,low\n", "tickets.csv", "row 5, with a different label"),
    "latin-1": (b"text,label\nna\xefve,low\n", "tickets.csv", "line 2 (byte offset 13): byte 0xef"),
    "latin-1, mark": (b"\xef\xbb\xbftext,label\n\xe9,low\n", "t.csv", "line 2 (byte offset 14)"),
    "utf-16": (GOOD.encode("utf-16"), "tickets.csv", "is UTF-16; save it as UTF-8"),
    "nul": (GOOD + "a\0b,low\n", "tickets.csv", "line 5 (byte offset 77): a NUL byte"),
    "open quote": (GOOD + '"abc,low\nd,low\n', "tickets.csv", "row 5: broken quoting"),
    "json": ('{"text": "a", "label": "low"}\n{"text": \n', "t.jsonl", "row 2: malformed JSON"),
    "json list": ('{"text": "a", "label": "low"}\n[1]\n', "t.jsonl", "row 2: a JSON list"),
    "json only bad": ("{\n{\n", "t.jsonl", "row 1: malformed JSON"),
    "json number": ('{"text": 5, "label": "low"}', "t.ndjson", "contains 5 (int); it must be text"),
    "json null": ('{"text": null, "label": "low"}', "t.jsonl", "row 1: the field 'text' is empty"),
    "surrogate": ('{"text": "a\\ud83d", "label": 1}', "t.jsonl", "half a surrogate pair"),
    "json nul": ('{"text": "a\\u0000", "label": 1}', "t.jsonl", "contains a NUL"),
    "json true": ('{"text": "a", "label": true}', "t.jsonl", "the label True is not on the scale"),
    "not parquet": ("PAR1 not really", "t.parquet", "is not a readable Parquet file"),
}


@pytest.mark.parametrize(("content", "name", "message"), BAD_FILES.values(), ids=list(BAD_FILES))
def test_a_bad_file_is_named_with_its_row(
    write: Write, tmp_path: Path, content: str | bytes | None, name: str, message: str
) -> None:
    path = tmp_path / name if content is None else write(content, name)
    said = complaint(path)
    assert name in said
    assert message in said


@given(content=st.binary(), kind=st.sampled_from(["csv", "tsv", "jsonl", "parquet"]))
def test_random_bytes_are_a_problem_and_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, kind: str
) -> None:
    path = tmp_path_factory.mktemp("any") / f"any.{kind}"
    path.write_bytes(content)
    with pytest.raises(Problem, match=f"any.{kind}"):
        load_file(path, scale=LEVELS, on_bad="drop")


_CELLS = st.text(max_size=6) | st.sampled_from(["low", "high", '"', "a,b", "★", "5 stars", "\\"])


@given(rows=st.lists(st.tuples(_CELLS, _CELLS), max_size=6), kind=st.sampled_from(["csv", "tsv"]))
def test_whatever_the_cells_hold_it_is_a_dataset_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], kind: str
) -> None:
    path = tmp_path_factory.mktemp("any") / f"any.{kind}"
    gap = "," if kind == "csv" else "\t"
    body = [f"text{gap}label", *(f"{text}{gap}{label}" for text, label in rows)]
    path.write_bytes("\n".join(body).encode())
    with suppress(Problem):
        dataset = load_file(path, scale=LEVELS, on_bad="drop")
        assert all(item.text and item.gold in (1, 2, 3) for item in dataset.test)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    assert "is a folder, not a file" in complaint(tmp_path / "a.csv")


def test_a_repeated_id_is_an_error(write: Write) -> None:
    path = write("id,text,label\n1,a,low\n1,b,high\n")
    assert "row 3: the id '1' is also in row 2" in complaint(path, id="id")


def test_an_error_says_how_many_more_rows_are_bad(write: Write) -> None:
    assert "row 5: the label 'x' " in (said := complaint(write(GOOD + "a,x\nb,y\nc,z\n")))
    assert "2 more rows are bad (on_bad: drop leaves" in said


def test_dropped_rows_are_counted_by_reason(write: Write) -> None:
    bad = "a,x\n ,low\na,b,c\nprinter on fire,high\nscreen flickers,low\nfine,\n"
    dataset = load_file(write(GOOD + bad), scale=LEVELS, on_bad="drop")
    assert golds(dataset) == [3, 1]
    assert dataset.left_out == {
        "contradictory": 2,
        "duplicate": 1,
        "empty": 1,
        "malformed": 1,
        "no label": 1,
        "unknown label": 1,
    }


def test_a_file_with_no_good_row_is_an_error_even_when_dropping(write: Write) -> None:
    assert "has no usable row" in complaint(write("text,label\na,x\n"), on_bad="drop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": None}, "no scale given"),
        ({"scale": "low"}, "the scale is 'low'; list the classes"),
        ({"scale": ["low", "Low "]}, "more than once"),
        ({"scale": [False, True]}, "YAML reads no, yes, on and off"),
        ({"scale": ["low", None]}, "the scale contains None"),
        ({"on_bad": "skip"}, "on_bad is 'skip'; known: error, drop"),
        ({"task": {"titel": "x"}}, "a task has no 'titel'; did you mean 'title'?"),
        ({"task": {"noun": 5}}, "task: noun is 5; it must be text"),
        ({"task": Task(Scale(("a", "b")))}, "the task is about ['a', 'b'], the scale is"),
    ],
)
def test_a_bad_option_is_an_error(write: Write, options: dict[str, Any], message: str) -> None:
    assert message in complaint(write(GOOD), **options)


def test_a_task_is_worded_after_the_label_column(write: Write) -> None:
    path = write(GOOD.replace("label", "severity"))
    task = load_file(path, label="severity", scale=LEVELS).task
    assert (task.title, task.noun, task.aspect) == ("Severity Classification", "Text", "severity")
    assert (task.scale.low, task.scale.high) == ("low", "high")


def test_classes_that_are_sentiments_make_a_sentiment_task(write: Write) -> None:
    path = write("text,label\na,positive\nb,negative\n")
    task = load_file(path, scale=["negative", "neutral", "positive"]).task
    assert task == Task(Scale(("negative", "neutral", "positive")))


def test_a_study_file_words_its_task(write: Write) -> None:
    words = {"title": "Triage", "noun": "Ticket", "aspect": "urgency", "low": "mild", "high": "bad"}
    path = write(GOOD)
    dataset = load({"file": path.name, "scale": LEVELS, "task": words}, folder=path.parent)
    assert dataset.task == Task(Scale(tuple(LEVELS), "mild", "bad"), "Triage", "Ticket", "urgency")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"file": "a.csv", "tezt": "x"},
            "a dataset from a file has no 'tezt'; did you mean 'text'?",
        ),
        ({"catalog": "sst5", "data_dir": "x"}, "a dataset from a catalog has no 'data_dir'"),
        ({"text": "x"}, "has one of file, hub, catalog; got ['text']"),
        ({"file": "a.csv", "hub": "b"}, "has one of file, hub, catalog"),
        ({"file": None}, "file: None is not a name"),
        ({"file": "a.csv", "demos": 5}, "demos is 5 in the dataset a.csv; it must be the path"),
        ({"file": "a.csv", "quotes": "no"}, "quotes is 'no' in the dataset a.csv; it must be true"),
        ({"file": "a.csv", "scale": 5}, "scale is 5 in the dataset a.csv; it must be a list"),
        ({"file": "a.csv", "scale": []}, "a scale needs at least two classes"),
        (None, "None does not describe a dataset"),
        ("sst-5", "no dataset named 'sst-5'; did you mean 'sst5'?"),
        ("tickets.csv", "a file needs a scale too: {file: tickets.csv"),
    ],
)
def test_a_bad_description_of_a_dataset_is_an_error(spec: Any, message: str) -> None:
    with pytest.raises(Problem, match=re.escape(message)):
        load(spec)


def test_a_dataset_is_loaded_already(write: Write) -> None:
    dataset = load_file(write(GOOD), scale=LEVELS)
    assert load(dataset) is dataset


def test_a_damaged_page_of_a_parquet_file_is_a_message(tmp_path: Path) -> None:
    texts = {
        "text": ["a", "b", "c", None],
        "label": [1, 2, 3, 4],
        "marks": [[0.1], [0.3], None, []],
    }
    path = tmp_path / "texts.parquet"
    pl.DataFrame(texts).write_parquet(path)
    good, n_refused = path.read_bytes(), 0
    for place in range(4, 260):
        path.write_bytes(good[:place] + bytes([good[place] ^ 64]) + good[place + 1 :])
        try:
            read_table(path)
        except Problem as problem:
            n_refused += str(path) in str(problem)
    assert n_refused > 50


@pytest.mark.parametrize("name", ["texts.csv", "texts.jsonl"])
def test_rows_that_are_not_held_are_the_same_whenever_they_are_read(
    tmp_path: Path, name: str
) -> None:
    lines = {
        "texts.csv": ["text,label", '"a, b",1', "c", "d,3"],
        "texts.jsonl": ['{"text": "a"}', "[1]", '{"text": "b", "label": 2}'],
    }
    path = tmp_path / name
    path.write_text("\n".join(lines[name]) + "\n")
    held, reread = read_table(path), read_table(path, is_held=False)
    assert reread.columns == held.columns
    assert [[*reread.records], [*reread.records]] == [[*held.records]] * 2
    assert len(reread.records) == len(held.records) == 3
