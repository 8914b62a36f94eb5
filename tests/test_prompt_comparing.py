"""Prompts that compare: golden for three tasks, both label orders; the paper's words exactly."""

from __future__ import annotations

from itertools import product

import pytest

from flipmeter.prompt.comparing import class_groups, listed, plural
from flipmeter.prompt.pointwise import paradigms
from flipmeter.prompt.probes import natural, order_demos, reversed_order
from flipmeter.types import Item, Prompt, Style, Task, View
from test_prompt import TASKS, compare, demos_for

QUERY = Item("q", {"text": "The text in question."})
PARTS = {
    "pairwise": ("d3 forward", "d3 backward"),
    "listwise": ("0",),
    "listwise_compare": ("0",),
    "listwise_relabel": ("0",),
    "windows": ("1",),
}


def prompt_of(paradigm: str, task: Task, order: str, part: str, demo_order: str = "base") -> Prompt:
    n = len(task.scale)
    view = View(order, natural(n) if order == "natural" else reversed_order(n), demo_order)
    demos = order_demos(demos_for(task), demo_order, 0)
    return paradigms[paradigm](task, Style(), view, demos)(QUERY, part)


CASES = [(paradigm, part) for paradigm, parts in PARTS.items() for part in parts]


@pytest.mark.parametrize(("paradigm", "part"), CASES)
@pytest.mark.parametrize(
    ("name", "order"), list(product(("sst5", "hate", "tickets"), ("natural", "reversed")))
)
def test_every_comparing_prompt_is_as_written(
    paradigm: str, part: str, name: str, order: str
) -> None:
    prompt = prompt_of(paradigm, TASKS[name], order, part)
    where = f"{paradigm}-{part.split()[-1]}-{name}-{order}"
    compare(f"comparing/{where}", prompt.text)


def test_the_pairwise_prompt_is_the_papers() -> None:
    assert prompt_of("pairwise", TASKS["sst5"], "natural", "d3 forward").text == (
        "Please perform Sentiment Classification task.\n"
        "Given two Passages, compare their sentiments with labels from ['very negative', "
        "'negative', 'neutral', 'positive', 'very positive'].\n"
        "Passage A: The text in question.\n"
        "Passage B: Shown text 3.\n"
        "Which Passage is more positive in terms of its sentiment?\n"
        "Output Passage A or Passage B:"
    )


def test_the_listwise_prompt_is_the_papers() -> None:
    shown = "\n".join(f"Sentence: {_text(rank)}" for rank in range(1, 6))
    assert prompt_of("listwise", TASKS["sst5"], "natural", "0").text == (
        "Please perform Sentiment Classification task.\n"
        "Below are sentences ordered by sentiment from most negative to most positive.\n"
        "Insert the new sentence into this ordered scale and return only its position (1-5).\n"
        f"\n{shown}\n\nSentence: The text in question.\nPosition:"
    )


def _text(rank: int) -> str:
    """Return the text of the first group's demonstration of a class."""
    return class_groups(demos_for(TASKS["sst5"]))[0][rank].text


def test_the_listwise_compare_prompt_is_the_papers() -> None:
    shown = "\n".join(f"Sentence: {_text(rank)}\nLabel: {rank}" for rank in range(1, 6))
    assert prompt_of("listwise_compare", TASKS["sst5"], "natural", "0").text == (
        "Please perform a Sentiment Classification task. Given the sentence, assign a label from "
        "[1: very negative, 2: negative, 3: neutral, 4: positive, 5: very positive].\n\n"
        "Given 5 reference passages ordered by sentiment from very negative to very positive:\n\n"
        f"{shown}\n\n"
        "New passage: The text in question.\n\n"
        "Which reference (1-5) is closest in sentiment to the new passage?\n"
        "Answer with ONLY a single number (1, 2, 3, 4, or 5). No explanation."
    )


@pytest.mark.parametrize("paradigm", ["pairwise", "listwise", "listwise_compare"])
@pytest.mark.parametrize("demo_order", ["ascending", "descending", "random"])
def test_no_order_of_the_demonstrations_changes_a_comparison(
    paradigm: str, demo_order: str
) -> None:
    part = PARTS[paradigm][0]
    base, other = (
        prompt_of(paradigm, TASKS["sst5"], "natural", part, order) for order in ("base", demo_order)
    )
    assert base.digest == other.digest


def test_a_vote_shows_the_same_demonstrations_in_every_order() -> None:
    texts = [
        set(prompt_of("windows", TASKS["sst5"], "natural", "1", order).text.split("\n"))
        for order in ("base", "descending")
    ]
    orders = [
        prompt_of("windows", TASKS["sst5"], "natural", "1", order).digest
        for order in ("base", "descending")
    ]
    assert texts[0] == texts[1]
    assert orders[0] != orders[1]


def test_groups_hold_every_class_once_and_every_demonstration() -> None:
    demos = demos_for(TASKS["sst5"])
    groups = class_groups(demos)
    assert [sorted(group) for group in groups] == [[1, 2, 3, 4, 5]] * 2
    assert {demo.id for group in groups for demo in group.values()} == {d.id for d in demos}


def test_a_reversed_list_means_the_mirrored_classes() -> None:
    for paradigm in ("listwise", "listwise_compare", "listwise_relabel"):
        assert prompt_of(paradigm, TASKS["sst5"], "reversed", "0").ranks == (5, 4, 3, 2, 1)


@pytest.mark.parametrize(("paradigm", "part"), CASES)
@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_every_answer_has_a_meaning(paradigm: str, part: str, order: str) -> None:
    prompt = prompt_of(paradigm, TASKS["sst5"], order, part)
    assert len(prompt.answers) == len(prompt.ranks) == len(set(prompt.answers))


def test_words_are_put_together_as_in_a_sentence() -> None:
    assert [listed(["1", "2"]), listed(["1", "2", "3"])] == ["1 or 2", "1, 2, or 3"]
    assert [plural("sentiment"), plural("hatefulness")] == ["sentiments", "hatefulnesses"]
