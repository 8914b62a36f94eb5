"""Reply -> Answer."""

from __future__ import annotations

import json
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.parse import parse
from flipmeter.probe import natural, reversed_order
from flipmeter.prompt import label_formats, render
from flipmeter.types import Head, Item, Prompt, Reply, Scale, Script, Style, Task, View

CASES = json.loads((Path(__file__).parent / "cases" / "parse.json").read_text(encoding="utf-8"))


def prompt_with(answers: list[str], *, is_reversed: bool = False) -> Prompt:
    n = len(answers)
    return Prompt(
        Script(Head(), ""), tuple(answers), reversed_order(n) if is_reversed else natural(n)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_replies_are_read_as_the_cases_say(case: dict[str, Any]) -> None:
    reply = Reply(text=case["text"], finish=case.get("finish", "stop"))
    answer = parse(reply, prompt_with(case["answers"]))
    assert (answer.slot, answer.fault) == (case.get("slot", 0), case.get("fault"))


def test_a_reversed_slot_means_the_mirrored_class() -> None:
    prompt = prompt_with(["1", "2", "3", "4", "5"], is_reversed=True)
    answer = parse(Reply(text="2", finish="stop"), prompt)
    assert (answer.slot, answer.rank) == (2, 4)


def test_a_reply_with_an_error_is_an_error_whatever_its_text() -> None:
    assert parse(Reply(text="3", error="HTTP 500"), prompt_with(["1", "2", "3"])).fault == "error"


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
def test_a_filtered_reply_is_refused_whatever_its_text(finish: str) -> None:
    assert parse(Reply(text="3", finish=finish), prompt_with(["1", "2", "3"])).fault == "refused"


SCALES = [
    Scale(("non-hate", "hate")),
    Scale(("negative", "neutral", "positive")),
    Scale(("very negative", "negative", "neutral", "positive", "very positive")),
    Scale(tuple(str(k) for k in range(11))),
]


@pytest.mark.parametrize("scale", SCALES, ids=len)
@pytest.mark.parametrize("form", list(label_formats))
def test_render_then_parse_is_the_identity(scale: Scale, form: str) -> None:
    task, item = Task(scale), Item("q", {"text": "x"})
    orders = [
        natural(len(scale)),
        reversed_order(len(scale)),
        *islice(permutations(scale.ranks), 1, 4),
    ]
    for order in orders:
        prompt = render(task, Style(label_format=form), View("v", order), (), item)
        for slot, written in enumerate(prompt.answers, 1):
            answer = parse(Reply(text=f" {written}\n", finish="stop"), prompt)
            assert (answer.slot, answer.rank, answer.fault) == (slot, order[slot - 1], None)


@given(st.text(max_size=200), st.sampled_from(["stop", "length", "", "content_filter"]))
def test_no_text_breaks_the_parser(text: str, finish: str) -> None:
    answer = parse(Reply(text=text, finish=finish), prompt_with(["A", "B", "C"]))
    assert (answer.rank == 0) == (answer.fault is not None)


def test_a_hundred_thousand_characters_are_read() -> None:
    text = "no label here " * 7_000 + "\n3"
    assert parse(Reply(text=text, finish="stop"), prompt_with(["1", "2", "3"])).slot == 3
