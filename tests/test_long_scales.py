"""Scales of up to eleven classes, 0 to 10: one number is never read as another."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.label_scores import Step, scores_along, written
from flipmeter.prompt.levels import label_formats
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import natural, reversed_order
from flipmeter.types import Head, Item, Prompt, Reply, Scale, Script, Style, Task, View

SIZES = range(2, 12)
ZERO_TO_TEN = tuple(str(number) for number in range(11))
WAYS = ("{}", " {}\n", "{}.", "**{}**", "Label: {}", '"{}"', "I would say {}.", "({})")


def prompt_of(answers: tuple[str, ...]) -> Prompt:
    return Prompt(Script(Head(), ""), answers, natural(len(answers)))


def numbers(first: int, n_classes: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(first, first + n_classes))


@pytest.mark.parametrize("way", WAYS)
def test_every_number_of_every_scale_is_read_as_itself(way: str) -> None:
    for prompt in (prompt_of(numbers(first, n)) for first in (0, 1) for n in SIZES):
        for slot, label in enumerate(prompt.answers, 1):
            answer = parse(Reply(way.format(label), "stop"), prompt)
            assert (answer.slot, answer.fault) == (slot, None), prompt.answers


@pytest.mark.parametrize("form", list(label_formats))
def test_render_then_parse_is_the_identity_on_every_scale(form: str) -> None:
    item = Item("q", {"text": "x"})
    for order in (order(n) for n in SIZES for order in (natural, reversed_order)):
        task = Task(Scale(numbers(0, len(order))))
        prompt = render(task, Style(label_format=form), View("v", order), (), item)
        read = [parse(Reply(label, "stop"), prompt).rank for label in prompt.answers]
        assert tuple(read) == order


@pytest.mark.parametrize(
    "way", ["{}/{}", "{} out of {}", "{} / {}", "{} (on a scale of {first} to {})"]
)
def test_the_end_of_the_scale_beside_a_label_is_not_an_answer(way: str) -> None:
    for prompt in (prompt_of(numbers(first, n)) for first in (0, 1) for n in SIZES):
        first, *_, last = prompt.answers
        for slot, label in enumerate(prompt.answers, 1):
            text = way.format(label, last, first=first)
            assert parse(Reply(text, "stop"), prompt).slot == slot, text


@given(st.integers(11, 10**6))
def test_a_number_beyond_the_scale_is_no_label(number: int) -> None:
    assert parse(Reply(str(number), "stop"), prompt_of(ZERO_TO_TEN)).fault == "unparsed"


@pytest.mark.parametrize("text", ["1", " 1", "Label: 1"])
def test_a_one_that_was_cut_may_have_been_a_ten(text: str) -> None:
    prompt = prompt_of(ZERO_TO_TEN)
    assert parse(Reply(text, "length"), prompt).fault == "truncated"
    assert parse(Reply(text, "stop"), prompt).slot == 2
    assert parse(Reply(f"{text}\n", "length"), prompt).slot == 2


def test_a_cut_label_that_cannot_go_on_is_an_answer() -> None:
    assert parse(Reply("10", "length"), prompt_of(ZERO_TO_TEN)).slot == 11
    assert parse(Reply("1", "length"), prompt_of(("1", "2", "3"))).slot == 1


def test_a_scale_of_numbers_is_shown_as_it_is_by_its_own_names() -> None:
    task, item = Task(Scale(ZERO_TO_TEN, "low", "high")), Item("q", {"text": "x"})
    style = Style(label_format="natural_language")
    natural_text = render(task, style, View("base", natural(11)), (), item).text
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" in natural_text


@pytest.mark.parametrize("n_classes", SIZES)
def test_digits_one_by_one_give_every_label_its_own_probability(n_classes: int) -> None:
    """A tokenizer of single characters: "10" goes on from "1", and both are told apart."""
    answers = numbers(0, n_classes)
    tree = written(answers, "", lambda text: [ord(character) for character in text])
    digit, space = math.log(0.09), math.log(0.05)

    def shown_after(place: tuple[int, ...]) -> dict[int, float]:
        if place in ((), (ord(" "),)):
            first = {ord(str(number)): digit for number in range(10)}
            return first if place else {**first, ord(" "): space}
        return {ord("0"): math.log(0.25)}

    scores = dict(zip(answers, map(math.exp, tree.scores(shown_after)), strict=True))
    assert scores["0"] == pytest.approx(0.09 * 1.05)
    assert scores["1"] == pytest.approx(0.09 * 1.05 * (0.75 if n_classes == 11 else 1))
    if n_classes == 11:
        assert scores["10"] == pytest.approx(0.09 * 1.05 * 0.25)


def test_a_reply_of_ten_in_two_tokens_scores_ten_above_one() -> None:
    steps = [
        Step("1", {"1": math.log(0.8), "7": math.log(0.1)}),
        Step("0", {"0": math.log(0.9), "": math.log(0.05)}),
    ]
    scores = scores_along(steps, ZERO_TO_TEN)
    assert scores is not None
    assert math.exp(scores[10]) == pytest.approx(0.72)
    assert math.exp(scores[1]) == pytest.approx(0.08)
