"""Prompts say what they mean: who reads the words finds the question that was put into them.

A simulated rater is given that question beside the prompt, so that its decisions say nothing of the
words. These laws do: the words are read back over every style, view and pipeline.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from flipmeter.ask.family import Backend, World
from flipmeter.ask.names import open_backend, request_for
from flipmeter.ask.sim import REFUSAL, SimRater, latent_scores, latents, worth_of
from flipmeter.ask.tilts import sim_spec
from flipmeter.prompt.levels import clarities, connectors, label_formats, moods, separators
from flipmeter.prompt.probes import expand, order_demos
from flipmeter.prompt.question import posing
from flipmeter.run.rate import Rating, seat
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions, worlds
from flipmeter.types import (
    Decoding,
    Item,
    Model,
    Prompt,
    Reply,
    Request,
    Scale,
    Span,
    Style,
    Task,
    View,
)
from read_prompts import Reader, at_once, reading
from test_flip_proof import pairs, questions
from test_model_sim import QUERIES
from test_prompt import TASKS, demos_for
from test_prompt_comparing import PARTS

TILT = "sim/honest?first=1.3&recency=0.7&slope=0.2&joint=0.4&place=0.9&length=0.3"
MIXED = {2: (2, 1), 3: (2, 3, 1), 4: (3, 1, 4, 2), 5: (4, 1, 5, 2, 3)}
QUERY = Item("q", {"text": "The text in question."}, 2)
NULL = Item("N/A", {"text": "N/A"}, role="null")


def views_of(task: Task, names: Sequence[str]) -> list[View]:
    n = len(task.scale)
    return [*expand(list(names), n), View("mixed", MIXED[n])]


def prompts(
    task: Task, style: Style, views: Sequence[View], items: Sequence[Item], shown: Sequence[Item]
) -> Iterator[Prompt]:
    for view in views:
        demos = order_demos(tuple(shown), view.demo_order, 0, view.demo_turn)
        write = posing("pointwise")(task, style, view, demos)
        yield from (write(item, "") for item in items)


def world_of(task: Task, items: Sequence[Item]) -> World:
    if task.places is not None:
        return World({}, task.scale.names, worth_of(items, task))
    if task.scale.span is not None:
        return World(latent_scores(items, task.scale.span), (), span=task.scale.span)
    return World(latents(items, task.scale, spread=0.1), task.scale.names)


def check(task: Task, known: Sequence[Item], written: Iterator[Prompt], *, whole: bool) -> None:
    """Compare what a prompt carries with what its words say; `whole` is all that it shows."""
    world = world_of(task, known)
    rater = SimRater(sim_spec(TILT), world.latents, world.names, world.worth)
    reader = Reader(world, (task.scale.low, task.scale.high))
    for prompt in written:
        assert prompt.question is not None
        read = reader.read(prompt.text)
        assert rater.understand(read) == rater.understand(prompt.question), prompt.text
        if whole:
            shown = prompt.question.demos
            assert [(one.text, one.label) for one in read.demos] == [
                (one.text, one.label) for one in shown
            ]


# --- one item in the words of a style -----------------------------------------------------------


@pytest.mark.parametrize("label_format", [*label_formats])
@pytest.mark.parametrize("clarity", [*clarities])
def test_every_form_of_a_prompt_is_read_back(label_format: str, clarity: str) -> None:
    task = TASKS["sst5"]
    shown = demos_for(task)
    views = views_of(task, ["label_order", "demo_order", "placement"])
    items = [QUERY, *QUERIES, NULL]
    for separator, connector in product(separators, connectors):
        style = Style(
            label_format=label_format, clarity=clarity, separator=separator, connector=connector
        )
        some = views if connector == "newline" else views[:2]
        written = prompts(task, style, some, items[: 2 if some is views else 9], shown)
        check(task, [*items, *shown], written, whole=True)


@pytest.mark.parametrize("name", [*TASKS])
@pytest.mark.parametrize(
    "style",
    [
        *(Style(mood=mood) for mood in moods),
        *(Style(clarity=clarity, shots=0) for clarity in clarities),
        Style(layout="paper"),
        Style(label_format="natural_language", word_reversal="flipped"),
        Style(label_format="natural_language", word_reversal="flipped", clarity="minimal"),
    ],
    ids=str,
)
def test_every_task_is_read_back(name: str, style: Style) -> None:
    task = TASKS[name]
    shown = demos_for(task) if style.shots else ()
    views = views_of(task, ["label_order", "demo_order", "placement"] if shown else ["label_order"])
    written = prompts(task, style, views, [QUERY, NULL], shown)
    check(task, [QUERY, NULL, *demos_for(task)], written, whole=True)


@pytest.mark.parametrize("kind", ["pair", "options"])
@pytest.mark.parametrize("label_format", [*label_formats])
@pytest.mark.parametrize("clarity", [*clarities])
def test_what_a_judge_chooses_from_is_read_back(kind: str, label_format: str, clarity: str) -> None:
    task, items, _ = {"pair": pairs, "options": questions}[kind](3)
    style = Style(label_format=label_format, clarity=clarity, shots=0)
    views = views_of(task, ["label_order"])
    written = prompts(task, style, views if kind == "pair" else views[:1], [*items, NULL], ())
    check(task, [*items, NULL], written, whole=False)


def test_a_question_with_fewer_options_is_read_back() -> None:
    task, items, _ = questions(3)
    fewer = [replace(item, gold=1, fields={**item.fields, "z": ""}) for item in items]
    written = prompts(task, Style(shots=0), [View("base", (1, 2, 3, 4))], fewer, ())
    check(task, fewer, written, whole=False)


@pytest.mark.parametrize("clarity", [*clarities])
@pytest.mark.parametrize("separator", [*separators])
def test_scores_are_read_back(clarity: str, separator: str) -> None:
    span = Span(0, 10, 0.5)
    task = Task(Scale((), span=span))
    items = [Item(f"n{k}", {"text": f"Number {k}."}, span.rank(k / 2)) for k in range(1, 9)]
    world = world_of(task, items)
    reader = Reader(world)
    style = Style(clarity=clarity, separator=separator)
    for prompt in prompts(task, style, expand(["demo_order"], 1), items[:3], items[3:]):
        assert prompt.question is not None
        read = reader.read(prompt.text)
        assert read.text == prompt.question.text
        assert [float(one.label) for one in read.demos] == [
            float(one.label) for one in prompt.question.demos
        ]


@pytest.mark.parametrize("paradigm", ["pairwise", "listwise", "listwise_compare"])
@pytest.mark.parametrize("name", ["sst5", "hate", "tickets"])
def test_what_an_item_is_compared_with_is_read_back(paradigm: str, name: str) -> None:
    task = TASKS[name]
    shown = demos_for(task)
    written = (
        posing(which)(task, Style(), view, shown)(QUERY, part)
        for which in {paradigm, paradigm.replace("compare", "relabel")}
        for view in views_of(task, ["label_order"])[:2]
        for part in PARTS[which]
    )
    check(task, [QUERY, *shown], written, whole=False)


# --- whole studies ------------------------------------------------------------------------------

OWN = """\
--- system
Rate the review. [{{ labels }}]
--- user
{% for demo in demos_before %}
Review: {{ demo.text }}
Label: {{ demo.label }}

{% endfor %}
Review: {{ text }}
Label:
{% for demo in demos_after %}

Review: {{ demo.text }}
Label: {{ demo.label }}
{% endfor %}
"""
UNREAD = """\
--- system
{% for label in labels %}
{{ label }} = {{ label.name }}
{% endfor %}
{% for demo in demos %}
--- user
{{ demo.text | upper }}
--- assistant
{{ demo.label }}
{% endfor %}
--- user
What do you make of "{{ text }}"?
"""
TILTED = ["sim/first-slot?strength=1&noise=0.5", "sim/recency", "sim/refusing", "sim/joint"]
KEPT = ("pairwise", "listwise", "listwise_compare", "pointwise_vote")


def study(tmp_path: Path, **keys: Any) -> Study:
    (tmp_path / "own.md").write_text(OWN)
    (tmp_path / "unread.md").write_text(UNREAD)
    content = {"models": TILTED, "datasets": ["reviews"], "test_size": 6, "base": {"shots": 1}}
    path = tmp_path / "study.yaml"
    path.write_text("{}")
    return read_study(path, {**content, **keys})


def replies_of(asked: Study) -> Iterator[tuple[Request, Reply, Reply]]:
    """What is said to each request of a study, by who is given the question and by who reads."""
    grid = conditions(asked)
    known = worlds(asked, asked.load(), grid)
    for one in grid:
        where, model = known[one.dataset], one.rater.model
        poles = one.task.scale.low, one.task.scale.high
        raters = [open_backend(model, where), reading(model.address, where, poles)]
        rating = Rating([one], {seat(one): raters[0].identity})
        while calls := list(rating.calls()):
            heard = {}
            for request in {call.request.key: call.request for call in calls}.values():
                given, read = (at_once(rater.ask(request)) for rater in raters)
                heard[request.key] = given
                yield request, given, read
            rating.hear(calls, heard)


STUDIES: dict[str, dict[str, Any]] = {
    "factors": {
        "vary": {
            "clarity": [*clarities],
            "separator": ["space", "tab"],
            "connector": ["space", "newline_tab"],
            "label_format": [*label_formats],
            "mood": ["indicative"],
            "shots": [0, 3],
            "cardinality": [2, 3],
        }
    },
    "probes": {"probes": ["label_order", "demo_order", "placement"], "repeats": 2, "test_size": 9},
    "own": {"prompt": "own.md", "probes": ["label_order", "demo_order", "placement"]},
    "scores": {"scores": True, "vary": {"pipeline": ["orbit", "pointwise+contextual"]}},
    "pipelines": {"vary": {"pipeline": [*KEPT]}},
}


@pytest.mark.parametrize("name", [*STUDIES])
def test_who_reads_decides_as_who_is_given_the_question(tmp_path: Path, name: str) -> None:
    n = 0
    for _, given, read in replies_of(study(tmp_path, **STUDIES[name])):
        assert not given.error
        assert read == given
        n += 1
    assert n > 100


def test_a_prompt_that_no_reader_knows_is_answered_as_planted(tmp_path: Path) -> None:
    """The question travels beside the words: nothing about them has to be found."""
    for request, given, read in replies_of(study(tmp_path, prompt="unread.md", models=TILTED[:3])):
        assert read.error
        assert given.text in (*request.answers, REFUSAL)


# --- the request ---------------------------------------------------------------------------------


def posed() -> Prompt:
    task = TASKS["sst5"]
    return posing("pointwise")(task, Style(), View("base", (1, 2, 3, 4, 5)), demos_for(task))(
        QUERY, ""
    )


def simulated(prompt: Prompt) -> tuple[Backend, Request]:
    known = world_of(TASKS["sst5"], [QUERY, *demos_for(TASKS["sst5"])])
    rater = open_backend(Model("sim/first-slot"), known)
    return rater, request_for(Model("sim/first-slot"), rater.identity, prompt, Decoding(), 0)


def test_a_question_is_no_part_of_a_key() -> None:
    rater, request = simulated(posed())
    bare = replace(request, question=None)
    assert request.question is not None
    assert (bare.key, bare) == (request.key, request)
    assert "reads no words" in at_once(rater.ask(bare)).error


def test_a_question_travels_to_another_process() -> None:
    rater, request = simulated(posed())
    there = pickle.loads(pickle.dumps(request))
    assert there.question == request.question
    assert at_once(rater.ask(there)) == at_once(rater.ask(request))
