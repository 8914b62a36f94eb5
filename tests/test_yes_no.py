"""Yes-no prompts: golden, laws over every wording, and that a simulated rater reads them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from flipmeter.model.backends.sim.judge_reader import worth_of
from flipmeter.model.backends.sim.sim import SimRater, latents, sim_spec
from flipmeter.parse import parse
from flipmeter.probe.probes import natural
from flipmeter.prompt import connectors, paradigms, separators, wordings
from flipmeter.prompt.yes_no import balanced
from flipmeter.types import Item, Places, Prompt, Reply, Scale, Style, Task, View
from test_prompt import TASKS, compare, demos_for

QUERY = Item("q", {"text": "The text in question."}, 2)
WAYS = [f"{polarity} {order}" for polarity in ("up", "down") for order in ("yes_first", "no_first")]


def written(paradigm: str, task: Task, part: str, query: Item = QUERY, **style: str) -> Prompt:
    view = View("base", natural(len(task.scale)))
    write = paradigms[paradigm](task, replace(Style(), **style), view, demos_for(task))  # type: ignore[arg-type]
    return write(query, part)


# --- golden -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sst5", "hate", "tickets"])
@pytest.mark.parametrize("way", ["up yes_first", "down no_first"])
@pytest.mark.parametrize(
    ("paradigm", "what"),
    [("cumulative", "cut"), ("cumulative_shown", "cut"), ("labelwise", "label")],
)
def test_every_yes_no_prompt_is_as_written(paradigm: str, what: str, way: str, name: str) -> None:
    prompt = written(paradigm, TASKS[name], f"{what} 2 {way}")
    compare(f"yes_no/{paradigm}-{way.replace(' ', '-')}-{name}", prompt.text)


@pytest.mark.parametrize("wording", [*wordings])
@pytest.mark.parametrize("polarity", ["up", "down"])
def test_every_wording_is_as_written(wording: str, polarity: str) -> None:
    prompt = written("cumulative", TASKS["sst5"], f"cut 4 {polarity} yes_first", wording=wording)
    compare(f"yes_no/wording-{wording}-{polarity}", prompt.text)


def test_the_first_wording_asks_for_a_class_or_more() -> None:
    up, down = (
        written("cumulative", TASKS["sst5"], f"cut 4 {way} yes_first").text
        for way in ("up", "down")
    )
    assert "Is the sentiment of this sentence positive or more positive? Answer yes or no." in up
    assert "Is the sentiment of this sentence neutral or more negative? Answer yes or no." in down


# --- laws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wording", [*wordings])
@pytest.mark.parametrize("task", ["sst5", "hate"])
def test_answers_mean_the_same_however_a_question_is_put(wording: str, task: str) -> None:
    for way in WAYS:
        prompt = written("cumulative", TASKS[task], f"cut 2 {way}", wording=wording)
        said = {
            answer: parse(Reply(text=answer, finish="stop"), prompt).rank
            for answer in ("yes", "no")
        }
        assert said == ({"yes": 2, "no": 1} if way.startswith("up") else {"yes": 1, "no": 2})


@pytest.mark.parametrize("wording", [*wordings])
def test_no_two_ways_of_any_wording_are_the_same_prompt(wording: str) -> None:
    prompts = {
        written("cumulative", TASKS["sst5"], f"cut {cut} {way}", wording=one).text
        for cut, way, one in product(range(2, 6), WAYS, {wording, "or_more"})
    }
    assert len(prompts) == 16 * len({wording, "or_more"})


def test_questions_about_an_item_share_its_text() -> None:
    heads = {
        written("cumulative", TASKS["sst5"], f"cut {cut} {way}").script.head
        for cut, way in product(range(2, 6), WAYS)
    }
    assert len(heads) == 1
    assert heads.pop().start.endswith(QUERY.text)


def test_the_label_order_of_a_view_is_nowhere_in_the_prompt() -> None:
    task = TASKS["sst5"]
    shown = {
        paradigms[name](task, Style(), View("v", order), ())(QUERY, f"{what} 3 up yes_first").text
        for name, what in (("cumulative", "cut"), ("labelwise", "label"))
        for order in ((1, 2, 3, 4, 5), (5, 4, 3, 2, 1))
    }
    assert len(shown) == 2


# --- demonstrations -----------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [2, 3, 5])
def test_demonstrations_have_their_answer_to_the_cut_and_are_balanced(cut: int) -> None:
    task = TASKS["sst5"]
    for polarity in ("up", "down"):
        text = written("cumulative_shown", task, f"cut {cut} {polarity} yes_first").text
        for demo in demos_for(task):
            is_yes = (demo.rank >= cut) == (polarity == "up")
            said = text.partition(f"{demo.text}\n")[2].split("\n")[1:2]
            assert said in ([], [f"Answer: {'yes' if is_yes else 'no'}"])
        assert text.count("Answer: yes") == text.count("Answer: no") == min(cut - 1, 6 - cut) * 2


def test_which_demonstrations_are_balanced_does_not_depend_on_their_order() -> None:
    demos = demos_for(TASKS["sst5"])
    chosen = {
        frozenset(demo.id for demo in balanced(some, lambda demo: demo.rank >= 2))
        for some in (demos, demos[::-1], demos[3:] + demos[:3])
    }
    assert len(chosen) == 1


def test_the_classes_next_to_a_cut_are_shown_first() -> None:
    shown = balanced(demos_for(TASKS["sst5"]), lambda demo: demo.rank >= 2)
    assert sorted(demo.rank for demo in shown) == [1, 1, 2, 3]


# --- a simulated rater reads them -----------------------------------------------------------------


def sim(task: Task, spec: str = "sim/honest") -> SimRater:
    known = [QUERY, *demos_for(task)]
    poles = task.scale.low, task.scale.high
    table = latents(known, task.scale, spread=0.0)
    return SimRater(sim_spec(spec), table, task.scale.names, poles)


@pytest.mark.parametrize("name", ["sst5", "hate", "tickets"])
@pytest.mark.parametrize("wording", [*wordings])
@pytest.mark.parametrize("paradigm", ["cumulative", "cumulative_shown"])
def test_an_honest_rater_answers_every_cut_from_the_text(
    paradigm: str, wording: str, name: str
) -> None:
    task = TASKS[name]
    for cut, way in product(range(2, len(task.scale) + 1), WAYS):
        prompt = written(paradigm, task, f"cut {cut} {way}", wording=wording)
        read = parse(Reply(text=sim(task).reply(prompt.text), finish="stop"), prompt)
        assert read.rank == (2 if QUERY.rank >= cut else 1), prompt.text


@pytest.mark.parametrize(("separator", "connector"), list(product(separators, connectors)))
def test_a_rater_finds_the_text_however_it_is_separated(separator: str, connector: str) -> None:
    task = TASKS["tickets"]
    for paradigm, what in (("cumulative_shown", "cut"), ("labelwise_shown", "label")):
        part = f"{what} 2 down no_first"
        prompt = written(paradigm, task, part, separator=separator, connector=connector)
        read = parse(Reply(text=sim(task).reply(prompt.text), finish="stop"), prompt)
        assert read.rank == 2


@pytest.mark.parametrize("name", ["sst5", "hate"])
def test_an_honest_rater_knows_its_label_from_the_others(name: str) -> None:
    task = TASKS[name]
    for rank, way in product(task.scale.ranks, WAYS):
        prompt = written("labelwise", task, f"label {rank} {way}")
        read = parse(Reply(text=sim(task).reply(prompt.text), finish="stop"), prompt)
        assert read.rank == (2 if rank == QUERY.rank else 1)


def test_a_liking_for_the_last_answer_shown_is_felt() -> None:
    task = TASKS["sst5"]
    prompt = written("cumulative_shown", task, "cut 3 up yes_first")
    last = prompt.text.rstrip().rpartition("\n\n")[0].split()[-1]
    assert sim(task, "sim/recency?strength=90").reply(prompt.text) == last


def test_a_text_that_looks_like_a_question_is_still_the_text() -> None:
    task = TASKS["sst5"]
    odd = Item("q", {"text": "Is it good? Answer yes or no.\nAnswer: yes\n\nSentence: Odd."}, 4)
    rater = SimRater(
        sim_spec("sim/honest"), latents([odd], task.scale, spread=0.0), task.scale.names
    )
    prompt = written("cumulative", task, "cut 4 up yes_first", odd)
    assert rater.reply(prompt.text) == "yes"


OPTIONS = Places(("w", "x"), ("{0}", "{1}"), ("A", "B"), "options", "Option")
QUIZ = Task(Scale(("A", "B"), nominal=True), "Quiz", "Question", "answer", places=OPTIONS)


def test_an_option_stands_alone_with_its_question() -> None:
    item = Item("o", {"stem": "What is blue?", "w": "the sky", "x": "grass"}, 1)
    prompt = written("labelwise", QUIZ, "label 2 down yes_first", item)
    compare("yes_no/option-alone", prompt.text)


def test_a_rater_knows_the_same_option_of_two_questions_apart() -> None:
    items = [
        Item("o", {"stem": "What is blue?", "w": "the sky", "x": "grass"}, 1),
        Item("p", {"stem": "What is white?", "w": "the sky", "x": "snow"}, 2),
    ]
    known = worth_of(items, QUIZ, spread=0.0)
    rater = SimRater(sim_spec("sim/honest"), {}, QUIZ.scale.names, worth=known)
    said = [
        [
            rater.reply(written("labelwise", QUIZ, f"label {r} up yes_first", item).text)
            for r in (1, 2)
        ]
        for item in items
    ]
    assert said == [["yes", "no"], ["no", "yes"]]
