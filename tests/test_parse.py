"""Reply -> Answer."""

from __future__ import annotations

import json
import math
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.prompt.levels import label_formats
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import natural, reversed_order
from flipmeter.types import Head, Item, Message, Prompt, Reply, Scale, Script, Style, Task, View

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


# Probabilities


@pytest.mark.parametrize("text", ["2", "no idea", ""])
def test_scores_become_probabilities_of_the_labels_whatever_the_text_says(text: str) -> None:
    scores = (math.log(0.1), math.log(0.3), math.log(0.2))
    answer = parse(Reply(text=text, finish="stop", scores=scores), prompt_with(["1", "2", "3"]))
    assert answer.probabilities == pytest.approx((1 / 6, 1 / 2, 1 / 3))
    assert answer.label_mass == pytest.approx(0.6)
    assert (answer.fault is None) == (text == "2")


def test_probabilities_are_by_slot_and_scores_by_the_text_of_the_answer() -> None:
    prompt = prompt_with(["very good", "bad", "good"])
    scores = (math.log(0.2), math.log(0.3), math.log(0.5))  # bad, good, very good
    answer = parse(Reply(text="good", finish="stop", scores=scores), prompt)
    assert answer.probabilities == pytest.approx((0.5, 0.2, 0.3))
    assert answer.slot == 3


def test_a_reply_without_scores_has_no_probabilities() -> None:
    answer = parse(Reply(text="2", finish="stop"), prompt_with(["1", "2"]))
    assert (answer.probabilities, answer.label_mass) == (None, None)


@pytest.mark.parametrize("finish", ["content_filter", "length"])
def test_a_fault_keeps_its_probabilities(finish: str) -> None:
    reply = Reply(text="well,", finish=finish, scores=(-1.0, -2.0))
    assert parse(reply, prompt_with(["1", "2"])).probabilities is not None


@given(st.lists(st.floats(-2_000, 0), min_size=2, max_size=7))
def test_probabilities_are_on_the_simplex_and_in_the_order_of_the_scores(
    scores: list[float],
) -> None:
    labels = [str(n) for n in range(len(scores))]
    answer = parse(Reply(text="0", scores=tuple(scores)), prompt_with(labels))
    assert answer.probabilities is not None
    assert sum(answer.probabilities) == pytest.approx(1)
    assert answer.label_mass is not None
    assert 0 <= answer.label_mass <= 1
    best = max(range(len(scores)), key=scores.__getitem__)
    assert answer.probabilities[best] == max(answer.probabilities)


def test_labels_that_have_nothing_have_no_probabilities() -> None:
    answer = parse(Reply(text="1", scores=(-math.inf, -math.inf)), prompt_with(["1", "2"]))
    assert (answer.probabilities, answer.label_mass) == (None, 0.0)


@pytest.mark.parametrize(
    ("text", "slot"), [("Passage A", 1), ("A", 1), ("(B)", 2), ("B.", 2), ("Passage B is", 2)]
)
def test_a_passage_may_be_named_by_its_letter(text: str, slot: int) -> None:
    script = Script.of([Message("user", "Which?")])
    prompt = Prompt(script, ("Passage A", "Passage B"), (1, 2), "passages")
    assert parse(Reply(text=text, finish="stop"), prompt).slot == slot
