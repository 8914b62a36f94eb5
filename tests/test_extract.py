"""Structured replies: the label by JSON path or by pattern."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import extract, parse, read_path
from flipmeter.prompt.probes import natural
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Extract, Head, Prompt, Reply, Script

TEN = Prompt(Script(Head(), ""), tuple(str(n) for n in range(11)), natural(11))
LABEL = Extract(json="$.label")
FINAL = Extract(regex=r"Final: *(\d+)")


@pytest.mark.parametrize(
    ("text", "path", "slot", "fault"),
    [
        ('{"label": 10}', "$.label", 11, None),
        ('{"label": "1", "why": "not 10"}', "$.label", 2, None),
        ('```json\n{"label": 3.0}\n```', "$.label", 4, None),
        ('Sure: {"a": {"b": ["0", "7"]}} as asked', "$.a.b[1]", 8, None),
        ('[{"x": 1}, {"x": 2}]', "$[-1].x", 3, None),
        ('a list that was never closed: [{"label": 3} and so on', "$.label", 4, None),
        ('{"final label": 4}', "$['final label']", 5, None),
        ("7", "$", 8, None),
        ('{"labl": 4}', "$.label", 0, "unparsed"),
        ('{"label": null}', "$.label", 0, "unparsed"),
        ('{"label": true}', "$.label", 0, "unparsed"),
        ('{"label": {"label": 4}}', "$.label", 0, "unparsed"),
        ('{"label": 11}', "$.label", 0, "unparsed"),
        ('{"label": [4]}', "$.label[1]", 0, "unparsed"),
        ("4", "$.label", 0, "unparsed"),
        ('{"label": 4} {"label": 5}', "$.label", 0, "ambiguous"),
        ("I cannot rate this.", "$.label", 0, "refused"),
        ('<think>{"label": 2}</think>{"label": 3}', "$.label", 4, None),
    ],
)
def test_a_label_is_read_at_its_path_and_nowhere_else(
    text: str, path: str, slot: int, fault: str | None
) -> None:
    answer = parse(Reply(text, "stop"), TEN, Extract(json=path))
    assert (answer.slot, answer.fault) == (slot, fault)


@pytest.mark.parametrize(
    ("text", "finish", "slot", "fault"),
    [
        ("Between 3 and 9. Final: 10", "stop", 11, None),
        ("Final: 1\nFinal: 1", "stop", 2, None),
        ("Final: 1, no, Final: 2", "stop", 0, "ambiguous"),
        ("It is 4.", "stop", 0, "unparsed"),
        ("Thinking about 4", "length", 0, "truncated"),
        ("First\nFinal: 1", "length", 0, "truncated"),
        ("First\nFinal: 1.", "length", 2, None),
    ],
)
def test_a_label_is_read_by_its_pattern(
    text: str, finish: str, slot: int, fault: str | None
) -> None:
    answer = parse(Reply(text, finish), TEN, FINAL)
    assert (answer.slot, answer.fault) == (slot, fault)


def test_a_group_named_label_wins() -> None:
    assert extract("x=1 y=2", Extract(regex=r"x=(\d) y=(?P<label>\d)")) == ["2"]
    assert extract("x=1", Extract(regex=r"\d")) == ["1"]


@given(st.integers(0, 10), st.dictionaries(st.text(max_size=5), st.integers(), max_size=4))
def test_what_is_written_at_a_path_is_read_back(number: int, others: dict[str, int]) -> None:
    text = json.dumps({**others, "label": number})
    assert parse(Reply(text, "stop"), TEN, LABEL).slot == number + 1
    assert parse(Reply(f"Here: {text}", "stop"), TEN, LABEL).slot == number + 1


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading(text: str) -> None:
    for how in (LABEL, FINAL):
        answer = parse(Reply(text, "stop"), TEN, how)
        assert (answer.rank == 0) == (answer.fault is not None)


def test_a_structured_reply_has_no_probabilities() -> None:
    reply = Reply('{"label": 3}', "stop", scores=(-1.0,) * 11)
    assert parse(reply, TEN, LABEL).probabilities is None
    assert parse(reply, TEN).probabilities is not None


@pytest.mark.parametrize("path", ["label", "$.label", "$['label']", '$["label"]'])
def test_a_name_may_be_written_in_several_ways(path: str) -> None:
    assert read_path(path) == ("label",)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"json": "$..label"}, "is not a JSON path; write"),
        ({"json": "$.a["}, "is not a JSON path"),
        ({"regex": "("}, "is not a valid pattern"),
        (
            {"regex": "[[AB]]"},
            "may not mean what they seem to (possible nested set",
        ),
        ({"regex": "[1||2]"}, "has brackets that may not mean what they seem to"),
        ({"json": "$.a", "regex": "a"}, "set either json"),
        ({"xpath": "/a"}, "answer"),
    ],
)
def test_a_study_says_what_is_wrong_with_its_answer(keys: dict[str, str], complaint: str) -> None:
    with pytest.raises(Problem, match=re.escape(complaint)):
        read_study({"models": "sim/honest", "datasets": "reviews", "answer": keys})


def test_labels_of_structured_replies_have_no_scores() -> None:
    study = {"models": "sim/honest", "datasets": "reviews", "answer": {"json": "$.label"}}
    with pytest.raises(Problem, match="have no probabilities"):
        read_study({**study, "scores": True})


def test_a_study_reads_its_replies_by_pattern(tmp_path: Path) -> None:
    content: dict[str, Any] = {"models": "sim/honest", "datasets": "reviews", "test_size": 5}
    content |= {"probes": ["label_order"], "repeats": 1}
    for regex, faults in ((r"\d", {""}), (r"label=(\d)", {"unparsed"})):
        study = read_study({**content, "answer": {"regex": regex}})
        assert {c.rater.extract for c in conditions(study)} == {Extract(regex=regex)}
        with Store(tmp_path / "replies.sqlite") as store:
            run = perform(study, tmp_path / "run", store, Terms(anyway=True))
        assert set(run.decisions["fault"]) == faults
