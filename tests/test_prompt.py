"""Golden prompts, byte for byte: a change of wording is a diff that somebody reads.

`FLIPMETER_GOLDEN=write pytest tests/test_prompt.py` writes them anew.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from flipmeter.data.catalog import datasets
from flipmeter.prompt.levels import factors
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import expand, natural, order_demos, reversed_order
from flipmeter.registry import OURS
from flipmeter.types import Item, Prompt, Scale, Style, Task, View

GOLDEN = Path(__file__).parent / "golden"
TICKETS = Task(
    Scale(("low", "medium", "high", "critical"), low="harmless", high="severe"),
    title="Severity Rating",
    noun="Ticket",
    aspect="severity",
)
TASKS = {name: datasets[name].task for name in ("sst5", "yelp5", "twitter", "hate", "offensive")}
TASKS["tickets"] = TICKETS


def demos_for(task: Task) -> tuple[Item, ...]:
    """Two demonstrations per class, mixed, with texts that name neither class nor place."""
    ranks = [*reversed(task.scale.ranks), *task.scale.ranks]
    return tuple(
        Item(f"d{place}", {"text": f"Shown text {place}."}, rank, role="demo")
        for place, rank in enumerate(ranks, 1)
    )


def compare(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("FLIPMETER_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    assert path.read_bytes().decode() == text


def view_prompt(task: Task, style: Style, view: View) -> Prompt:
    demos = order_demos(demos_for(task), view.demo_order, 0)
    return render(task, style, view, demos, Item("q", {"text": "The text in question."}))


VIEWS = ("base", "reversed", "ascending", "descending", "random", "after", "split")


@pytest.mark.parametrize(("name", "view"), list(product(TASKS, VIEWS)))
def test_the_baseline_prompt_is_as_written(name: str, view: str) -> None:
    task = TASKS[name]
    views = {v.name: v for v in expand(list_of_probes(), len(task.scale))}
    compare(f"baseline/{name}-{view}", view_prompt(task, Style(), views[view]).text)


@pytest.mark.parametrize("view", ["after", "split"])
def test_the_papers_layout_stops_after_the_last_demonstration(view: str) -> None:
    task = TASKS["sst5"]
    views = {v.name: v for v in expand(list_of_probes(), 5)}
    prompt = view_prompt(task, Style(layout="paper"), views[view])
    compare(f"baseline/sst5-{view}-paper", prompt.text)


LEVELS = [
    (factor, level)
    for factor, registry in factors.items()
    for level in registry
    if registry.package(level) == OURS
]


@pytest.mark.parametrize(("factor", "level"), LEVELS)
@pytest.mark.parametrize("order", ["natural", "reversed"])
def test_every_level_is_as_written(factor: str, level: str, order: str) -> None:
    task = TASKS["sst5"]
    ranks = natural(5) if order == "natural" else reversed_order(5)
    change: dict[str, Any] = {factor: level}
    style = replace(Style(), **change)
    compare(f"levels/{factor}-{level}-{order}", view_prompt(task, style, View(order, ranks)).text)


def list_of_probes() -> list[str]:
    return ["label_order", "demo_order", "placement"]


def test_the_header_is_the_papers(task: Task, query: Item) -> None:
    prompt = render(task, Style(), View("base", natural(5)), (), query)
    assert prompt.text == (
        "Please perform Sentiment Classification task.\n"
        "Given the sentence, assign a label from [1: very negative, 2: negative, 3: neutral, "
        "4: positive, 5: very positive].\n"
        "Return label only without any other text.\n"
        "\n"
        "Sentence: The soup was worth the wait.\n"
        "Label:"
    )


def test_reversing_turns_list_and_demonstrations_together(
    task: Task, demos: tuple[Item, ...], query: Item
) -> None:
    prompt = render(task, Style(), View("reversed", reversed_order(5)), demos, query)
    assert (
        "[1: very positive, 2: positive, 3: neutral, 4: negative, 5: very negative]" in prompt.text
    )
    assert "Sentence: Dreadful.\nLabel: 5\n" in prompt.text
    assert prompt.ranks == (5, 4, 3, 2, 1)


def test_words_stay_true_when_the_list_turns(
    task: Task, demos: tuple[Item, ...], query: Item
) -> None:
    style = Style(label_format="natural_language")
    prompt = render(task, style, View("reversed", reversed_order(5)), demos, query)
    assert "[very positive, positive, neutral, negative, very negative]" in prompt.text
    assert "Sentence: Dreadful.\nLabel: very negative\n" in prompt.text


def test_words_can_be_flipped_on_purpose(task: Task, demos: tuple[Item, ...], query: Item) -> None:
    style = Style(label_format="natural_language", word_reversal="flipped")
    prompt = render(task, style, View("reversed", reversed_order(5)), demos, query)
    assert "Sentence: Dreadful.\nLabel: very positive\n" in prompt.text


def test_split_puts_the_smaller_half_before_the_query(
    task: Task, demos: tuple[Item, ...], query: Item
) -> None:
    view = View("split", natural(5), placement="split")
    text = render(task, Style(), view, demos, query).text
    before, _, after = text.partition(query.text)
    assert (before.count("Sentence:") - 1, after.count("\nLabel: ")) == (2, 3)


@pytest.mark.parametrize("placement", ["before", "after", "split"])
def test_a_cued_prompt_ends_with_the_cue(
    task: Task, demos: tuple[Item, ...], query: Item, placement: str
) -> None:
    view = View("v", natural(5), placement=placement)  # type: ignore[arg-type]
    assert render(task, Style(), view, demos, query).text.endswith("\nLabel:")


@pytest.mark.parametrize("placement", ["before", "after", "split"])
def test_two_items_share_what_stands_before_the_anchor(
    task: Task, demos: tuple[Item, ...], query: Item, placement: str
) -> None:
    view = View("v", natural(5), placement=placement)  # type: ignore[arg-type]
    one = render(task, Style(), view, demos, query)
    other = render(task, Style(), view, demos, Item("x", {"text": "Another."}))
    assert one.script.head == other.script.head
    assert one.script.anchor > 0
    assert one.script.rest.startswith("\n\n")
