"""Pair order: two answers change places, and what a verdict means changes with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import flipmeter as fm
from flipmeter.ask.store import Store
from flipmeter.choose.classify import Job, classify
from flipmeter.choose.select import select
from flipmeter.consent import trusting
from flipmeter.data.files import load_file
from flipmeter.data.places import read_exchange
from flipmeter.errors import Problem
from flipmeter.loops import wait_for
from flipmeter.pipelines.panels import agreed, most_said
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.probes import place_orders, show
from flipmeter.run.perform import perform
from flipmeter.run.preview import preview
from flipmeter.run.progress import Terms
from flipmeter.run.rate import writer
from flipmeter.show.next_steps import next_steps
from flipmeter.study.draft import draft_study
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions, world
from flipmeter.types import Ask, Condition, Item, Prompt, Question, Reply, Scale, Task
from test_prompt import compare

Write = Callable[[str, str], Path]
WORDS = [
    "river",
    "stone",
    "lamp",
    "green",
    "quick",
    "market",
    "winter",
    "paper",
    "cloud",
    "engine",
    "garden",
    "silver",
    "bread",
]
PROBES = ["pair_order", "label_order"]
PAIR = {"question": "prompt", "a": "answer_1", "b": "answer_2"}


def rows(n: int = 180, seed: int = 1, verdicts: tuple[str, ...] = ("a", "tie", "b")) -> str:
    """Pairs of answers of different lengths; the gold says nothing of place or length."""
    chance = Random(seed)

    def words() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(3, 18)))

    lines = [
        f"{k},What about {k}?,{words()} {k},{words()} {k}.,{verdicts[k % len(verdicts)]}"
        for k in range(n)
    ]
    return "id,prompt,answer_1,answer_2,preferred\n" + "\n".join(lines) + "\n"


def judge(write: Write, *, verdicts: tuple[str, ...] = ("a", "tie", "b"), **keys: Any) -> Study:
    write("pairs.csv", rows(verdicts=verdicts))
    dataset = {
        "file": "pairs.csv",
        "fields": PAIR,
        "exchange": ["a", "b"],
        "label": "preferred",
        "scale": ["b", "tie", "a"],
        **keys.pop("dataset", {}),
    }
    content: dict[str, Any] = {
        "models": "sim/honest",
        "datasets": [dataset],
        "probes": ["pair_order"],
        "base": {"label_format": "letter", "shots": 0},
        "test_size": 90,
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def done(study: Study, tmp_path: Path) -> Any:
    with Store() as store:
        return perform(study, tmp_path / "run", store=store)


def prompts(condition: Condition) -> list[Prompt]:
    write = writer(condition)
    return [write(Ask(item, condition.view)) for item in condition.items]


# --- what a class says of places ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "names", "swapped"),
    [
        (("a", "b"), ("b", "tie", "a"), (3, 2, 1)),
        (("a", "b"), ("a", "b", "tie", "both bad"), (2, 1, 3, 4)),
        (("a", "b"), ("B>>A", "B>A", "A=B", "A>B", "A>>B"), (5, 4, 3, 2, 1)),
        (("a", "b"), ("B>A", "tie", "A>>B"), None),
        (("a", "b"), ("b", "a tie", "a"), None),
        (("a", "b"), ("B>>A", "B>A", "tie", "A>B", "A>>B"), (5, 4, 3, 2, 1)),
        (("answer_1", "answer_2"), ("2", "1"), (2, 1)),
        (("answer_1", "answer_2"), ("B", "A"), (2, 1)),
        (("model_a", "model_b"), ("model_b", "tie (both bad)", "model_a"), (3, 2, 1)),
        (("x", "y"), ("second is better", "equal", "first is better"), (3, 2, 1)),
        (("x", "y"), ("right", "left"), (2, 1)),
    ],
)
def test_classes_are_exchanged_by_name(
    fields: tuple[str, ...], names: tuple[str, ...], swapped: tuple[int, ...] | None
) -> None:
    if swapped is None:
        with pytest.raises(Problem, match="cannot tell what the classes"):
            read_exchange(fields, Scale(names), fields)
        return
    places = read_exchange(fields, Scale(names), fields)
    assert places.meanings((1, 0)) == swapped
    assert places.meanings((0, 1)) == tuple(range(1, len(names) + 1))


def test_odd_names_are_declared() -> None:
    told = {"fields": ["x", "y"], "labels": {"win": "x", "loss": "y"}, "noun": "Reply"}
    places = read_exchange(told, Scale(("loss", "draw", "win")), ("x", "y", "q"))
    assert places.meanings((1, 0)) == (3, 2, 1)
    assert (places.noun, places.kind) == ("Reply", "pair")


@pytest.mark.parametrize(
    ("exchange", "complaint"),
    [
        (["a", "c"], "no field named 'c'"),
        (["a"], "two or more fields"),
        (["a", "a"], "each once"),
        ({"field": ["a", "b"]}, "exchange has no 'field'; did you mean 'fields'?"),
        ({"fields": ["a", "b"], "labels": {"win": "a"}}, "no class named 'win'"),
    ],
)
def test_what_is_wrong_with_an_exchange_is_said(exchange: Any, complaint: str) -> None:
    with pytest.raises(Problem, match=complaint.replace("?", r"\?")):
        read_exchange(exchange, Scale(("b", "tie", "a")), ("question", "a", "b"))


@pytest.mark.parametrize("order", list(place_orders))
@pytest.mark.parametrize("n_places", [2, 3, 5])
def test_an_order_of_places_is_a_permutation(order: str, n_places: int) -> None:
    assert sorted(place_orders[order](n_places)) == [*range(n_places)]


def test_swapping_twice_shows_the_item_as_it_was(write: Write) -> None:
    (dataset,) = judge(write).load()
    item = dataset.test[0]
    once, meanings = show(item, dataset.task, "swapped")
    twice, _ = show(once, dataset.task, "swapped")
    assert twice.fields == item.fields
    assert (once.fields["a"], once.fields["b"]) == (item.fields["b"], item.fields["a"])
    assert once.text.index(item.fields["b"]) < once.text.index(item.fields["a"])
    assert tuple(meanings[rank - 1] for rank in meanings) == (1, 2, 3)


# --- prompts -----------------------------------------------------------------------------------

SKY = Item(
    "q",
    {
        "question": "Why is the sky blue?",
        "a": "Air scatters blue light most.",
        "b": "It mirrors the sea.",
    },
)
GRADES = ("B>>A", "B>A", "tie", "A>B", "A>>B")


def sky_task(names: tuple[str, ...]) -> Task:
    scale = Scale(names)
    places = read_exchange(("a", "b"), scale, ("a", "b"))
    return Task(scale, "Pairwise Comparison", "Question", "quality", places=places)


@pytest.mark.parametrize("view", ["base", "swapped"])
@pytest.mark.parametrize(
    ("name", "names", "style"),
    [
        ("tie", ("b", "tie", "a"), {}),
        ("no-tie", ("b", "a"), {}),
        ("grades", GRADES, {}),
        ("reasoned", ("b", "tie", "a"), {"clarity": "reasoned"}),
        (
            "numeric-question",
            ("b", "tie", "a"),
            {"label_format": "numeric", "mood": "interrogative"},
        ),
        ("minimal", ("b", "tie", "a"), {"clarity": "minimal", "mood": "indicative"}),
        ("ordered", GRADES, {"clarity": "ordinal_explicit"}),
    ],
)
def test_the_judges_prompt_is_as_written(
    name: str, names: tuple[str, ...], style: dict[str, str], view: str
) -> None:
    from flipmeter.prompt.pointwise import render
    from flipmeter.prompt.probes import expand
    from flipmeter.types import Style

    task = sky_task(names)
    views = {one.name: one for one in expand(["pair_order"], len(names))}
    item, _ = show(SKY, task, views[view].place_order)
    demo = Item("d", {"question": "Why?", "a": "So.", "b": "Thus."}, len(names), "demo")
    levels: dict[str, Any] = {"label_format": "letter", **style}
    prompt = render(task, Style(**levels), views[view], [demo], item)
    compare(f"judges/{name}-{view}", prompt.text)


def test_a_slot_means_the_field_that_stands_there(write: Write) -> None:
    grid = conditions(judge(write, repeats=1))
    by_view = {one.view.name: prompts(one)[0] for one in grid}
    base, swapped = by_view["base"], by_view["swapped"]
    assert base.answers == swapped.answers == ("B", "tie", "A")
    assert (base.ranks, swapped.ranks) == ((1, 2, 3), (3, 2, 1))
    first = parse(Reply("A"), base), parse(Reply("A"), swapped)
    assert [(one.slot, one.rank) for one in first] == [(3, 3), (3, 1)]


def test_demonstrations_are_not_swapped(write: Write) -> None:
    grid = conditions(judge(write, base={"shots": 2}, repeats=1))
    base, swapped = (prompts(one)[0].script for one in grid)
    assert base.head == swapped.head
    assert base.rest != swapped.rest


def test_a_prompt_file_shows_the_fields_of_a_view(write: Write) -> None:
    write("own.md", "Q: {{ question }}\n(a) {{ a }}\n(b) {{ b }}\nWhich? Say Output (a) or (b).")
    study = judge(
        write,
        prompt="own.md",
        answer={"regex": r"Output \((a|b)\)"},
        dataset={"scale": ["b", "a"]},
        verdicts=("a", "b"),
        repeats=1,
    )
    base, swapped = (prompts(one)[0] for one in conditions(study))
    _, shown, *_ = swapped.text.splitlines()
    assert f"(b) {shown.removeprefix('(a) ')}" in base.text
    said = parse(Reply("Because. Output (a)"), swapped, study.extract)
    assert (said.fault, said.rank) == (None, 1)


def test_graded_verdicts_are_read_from_brackets(write: Write) -> None:
    verdicts = ("A>>B", "A>B", "tie", "B>A", "B>>A")
    study = judge(
        write,
        verdicts=verdicts,
        dataset={"scale": list(verdicts[::-1])},
        answer={"regex": r"\[\[(.+?)\]\]"},
        repeats=1,
    )
    base, swapped = (prompts(one)[0] for one in conditions(study))
    reply = Reply("A is wordy, B is short. My verdict: [[A>>B]]")
    assert [parse(reply, one, study.extract).rank for one in (base, swapped)] == [5, 1]


def test_a_prompt_that_shows_one_answer_is_not_swapped(write: Write) -> None:
    write("one.md", "{{ question }}\n{{ a }}\n{{ labels }}")
    grid = conditions(judge(write, prompt="one.md", repeats=1))
    assert {one.view.name for one in grid} == {"base"}


def test_a_probe_that_moves_nothing_is_refused() -> None:
    with pytest.raises(Problem, match="'pair_order' swaps two fields that a dataset declares"):
        conditions(Study(models=["sim/honest"], datasets=["reviews"], probes=["pair_order"]))


def test_a_pipeline_that_compares_with_demonstrations_is_refused(write: Write) -> None:
    with pytest.raises(Problem, match="is about single texts"):
        conditions(judge(write, pipeline="pairwise", base={"shots": 1}))


# --- planted judges ----------------------------------------------------------------------------


def words_of(run: Any) -> dict[str, str]:
    table = run.verdicts.filter(contrast="P6")
    return dict(table.select("rater", "word").rows())


@pytest.mark.parametrize("clarity", ["explicit", "reasoned", "minimal"])
@pytest.mark.parametrize("label_format", ["letter", "numeric"])
def test_a_planted_preference_for_the_first_answer_is_found(
    write: Write, tmp_path: Path, clarity: str, label_format: str
) -> None:
    names = ["sim/honest", "sim/first-answer", "sim/longer-answer", "sim/noisy?noise=0.2"]
    base = {"label_format": label_format, "clarity": clarity, "shots": 0}
    run = done(judge(write, models=names, base=base), tmp_path)
    found = words_of(run)
    assert found["sim/first-answer"] == "flips"
    assert found["sim/honest"] == found["sim/longer-answer"] == "stable"
    assert found["sim/noisy?noise=0.2"] != "flips"


def test_an_honest_judge_is_right_in_both_orders(write: Write, tmp_path: Path) -> None:
    decisions = done(judge(write, models="sim/honest?sharpness=9"), tmp_path).decisions
    right = (
        decisions.filter(repeat=0).group_by("view").agg((pl.col("rank") == pl.col("gold")).mean())
    )
    shares = dict(right.rows())
    assert shares["base"] == shares["swapped"] > 0.5


def test_a_judge_that_flips_is_told_to_ask_in_both_orders(write: Write, tmp_path: Path) -> None:
    run = done(judge(write, models=["sim/first-answer?strength=3", "sim/honest"]), tmp_path)
    told = [step.command for step in next_steps(run)]
    assert any("--set 'vary={pipeline: [pair+agree, pair+mean]}'" in one for one in told)
    agreed = done(judge(write, models="sim/first-answer", pipeline="pair+agree"), tmp_path / "two")
    assert not any("vary=" in step.command for step in next_steps(agreed))


def test_the_first_answer_wins_where_a_judge_sees_no_difference(
    write: Write, tmp_path: Path
) -> None:
    decisions = done(judge(write, models="sim/first-answer?strength=50"), tmp_path).decisions
    assert decisions.filter(view="base")["rank"].unique().to_list() == [3]
    assert decisions.filter(view="swapped")["rank"].unique().to_list() == [1]
    assert decisions["slot"].unique().to_list() == [3]


def test_probabilities_are_those_of_classes_under_every_view(write: Write, tmp_path: Path) -> None:
    decisions = done(judge(write, models="sim/honest", scores=True), tmp_path).decisions
    both = decisions.filter(repeat=0).pivot("view", index="item", values="probabilities")
    for base, swapped in both.select("base", "swapped").iter_rows():
        assert base == pytest.approx(swapped)


def test_equal_answers_are_not_identified(write: Write, tmp_path: Path) -> None:
    text = "id,prompt,answer_1,answer_2,preferred\n" + "".join(
        f"{k},Q {k}?,Same {k}.,Same {k}.,{'ab'[k % 2]}\n" for k in range(40)
    )
    study = judge(write, dataset={"scale": ["b", "a"]}, test_size=20)
    write("pairs.csv", text)
    (note,) = done(study, tmp_path).estimates.filter(metric="P6")["note"].unique()
    assert "not identified" in note


def test_columns_of_pairs_are_checked(write: Write) -> None:
    path = write("pairs.csv", rows())
    with pytest.raises(Problem, match="no field named 'c'"):
        load_file(
            path, fields=PAIR, exchange=["a", "c"], label="preferred", scale=["b", "tie", "a"]
        )


# --- pipelines ---------------------------------------------------------------------------------


def test_contradicting_orders_are_a_tie_and_grades_the_milder_one() -> None:
    plain = read_exchange(("a", "b"), Scale(("b", "tie", "a")), ("a", "b"))
    graded = read_exchange(("a", "b"), Scale(GRADES), ("a", "b"))
    no_tie = read_exchange(("a", "b"), Scale(("b", "a")), ("a", "b"))
    assert [agreed(pair, plain).rank for pair in ((3, 3), (3, 1), (3, 2))] == [3, 2, 2]
    assert [agreed(pair, graded).rank for pair in ((5, 4), (1, 2), (5, 1), (4, 3))] == [4, 2, 3, 3]
    assert agreed((1, 2), no_tie).fault == "ambiguous"
    assert agreed((2, 2), no_tie).rank == 2


def test_most_draws_decide_a_vote() -> None:
    plain = read_exchange(("a", "b"), Scale(("b", "tie", "a")), ("a", "b"))
    assert most_said([3, 3, 3, 1, 1, 2], plain).rank == 3
    assert most_said([3, 3, 1, 1], plain) == agreed((3, 1), plain)


@pytest.mark.parametrize("pipeline", ["pair+agree", "pair+mean", "pair+vote(3)", "pair+vote"])
def test_both_orders_undo_a_planted_preference(write: Write, tmp_path: Path, pipeline: str) -> None:
    model = "sim/first-answer?strength=1.5"
    run = done(judge(write, models=model, pipeline=pipeline), tmp_path)
    one = done(judge(write, models=model, pipeline="pair"), tmp_path / "one")
    (verdict,) = run.verdicts.filter(contrast="P6").to_dicts()
    assert (verdict["status"], verdict["word"], verdict["value"]) == (
        "by construction",
        "stable",
        0,
    )
    assert verdict["reason"] == "0 by construction (average over places:reversal)"
    both, alone = (done.decisions.filter(view="base", repeat=0) for done in (run, one))
    firsts = [(table["rank"] == 3).mean() for table in (both, alone)]
    assert firsts[0] < firsts[1] - 0.1
    n_calls = {"pair+agree": 2, "pair+mean": 2, "pair+vote(3)": 6, "pair+vote": 6}[pipeline]
    assert both["n_calls"].unique().to_list() == [n_calls]


def test_draws_of_a_vote_are_drawn_apart(write: Write, tmp_path: Path) -> None:
    model = "sim/noisy?noise=2"
    run = done(judge(write, models=model, pipeline="pair+vote(5)", test_size=30), tmp_path)
    calls = run.calls.filter(view="base")
    assert calls["key"].n_unique() == len(calls) == 30 * 10 * 2


def test_a_pair_pipeline_needs_a_pair(write: Write) -> None:
    with pytest.raises(Problem, match="is for a pair of fields that may change places"):
        conditions(Study(models=["sim/honest"], datasets=["reviews"], pipeline="pair+agree"))


@pytest.mark.parametrize("name", ["pair+vote(0)", "pair+vote(1000)", "pair+vote(1 2)"])
def test_a_number_of_draws_is_checked(name: str) -> None:
    with pytest.raises(Problem, match="takes 1 to 99 draws"):
        open_pipeline(name)


def test_an_unreadable_order_leaves_no_class(write: Write, tmp_path: Path) -> None:
    study = judge(write, models="sim/refusing?refuse=1", pipeline="pair+agree")
    with Store() as store:
        decisions = perform(study, tmp_path / "run", store, Terms(anyway=True)).decisions
    assert decisions["rank"].unique().to_list() == [0]
    assert decisions["fault"].unique().to_list() == ["refused"]


# --- a callable --------------------------------------------------------------------------------


def test_a_callable_is_given_the_fields_as_shown(write: Write, tmp_path: Path) -> None:
    write("longer.py", "def first(question):\n    return question.labels[-1]\n")
    study = judge(write, models="python/longer.py:first", repeats=1)
    with trusting(True):
        base, swapped = (prompts(one)[0] for one in conditions(study))
        asked = [Question.read(one.script.text) for one in (base, swapped)]
        decisions = done(study, tmp_path).decisions
    assert asked[0].fields["a"] == asked[1].fields["b"]
    assert [label.name for label in asked[1].labels] == ["b", "tie", "a"]
    assert dict(decisions.group_by("view").agg(pl.col("rank").first()).rows()) == {
        "base": 3,
        "swapped": 1,
    }


# --- surfaces ----------------------------------------------------------------------------------


def test_declared_fields_are_moved_unless_told(write: Write) -> None:
    study = judge(write, probes=None)
    assert study.probes == ["pair_order", "label_order", "demo_order", "placement"]
    three = {"exchange": ["a", "b", "c"], "file": "x.csv"}
    assert judge(write, datasets=[three], probes=None).probes[0] == "candidate_order"
    assert judge(write, datasets=[{"options": ["a", "b"]}], probes=None).probes[0] == "option_order"


def test_a_plan_names_answers_that_never_change_places(write: Write) -> None:
    fields = {"question": "prompt", "answer_1": "answer_1", "answer_2": "answer_2"}
    undeclared = judge(
        write, dataset={"exchange": None, "fields": fields}, probes=["label_order"], repeats=1
    )
    with Store() as store:
        (note,) = preview(undeclared, store, is_offline=True).notes
        assert "answer_1 and answer_2 look like answers that a judge compares" in note
        (told,) = preview(judge(write, probes=["label_order"]), store, is_offline=True).notes
        assert "a, b never change places; add probe pair_order" in told
        assert preview(judge(write), store, is_offline=True).notes == ()


def test_a_draft_names_columns_that_look_exchangeable(write: Write, tmp_path: Path) -> None:
    path = write("pairs.csv", rows())
    found = draft_study(
        path, tmp_path / "s.yaml", text="answer_1", label="preferred", scale=["b", "tie", "a"]
    )
    assert any("answer_1 and answer_2 look like answers" in note for note in found.notes)


@pytest.mark.parametrize("pipeline", ["pair", "pair+agree"])
def test_a_selected_judge_labels_pairs(write: Write, tmp_path: Path, pipeline: str) -> None:
    vary = {"clarity": ["minimal"]}
    study = judge(write, models="sim/honest", pipeline=pipeline, vary=vary, probes=PROBES)
    run = fm.Run(done(study, tmp_path).folder)
    (dataset,) = study.load()
    clf = run.select().classifier(store=None, world=world(dataset))
    pairs = [dict(item.fields) for item in dataset.test[:10]]
    mirrored = [one | {"a": one["b"], "b": one["a"], "text": ""} for one in pairs]
    for one in mirrored:
        del one["text"]
    ahead, behind = clf.predict(pairs).tolist(), clf.predict(mirrored).tolist()
    assert behind == [{"a": "b", "b": "a", "tie": "tie"}[label] for label in ahead]
    with pytest.raises(ValueError, match="the rater compares a, b; give a list of mappings"):
        clf.predict(["Why?", "How?"])


def test_no_file_is_labelled_with_half_a_pair(write: Write, tmp_path: Path) -> None:
    study = judge(write, models="sim/honest", vary={"clarity": ["minimal"]})
    run = done(study, tmp_path)
    card = select(run).card()
    path = tmp_path / "pairs.csv"
    half = tmp_path / "half.csv"
    half.write_text("prompt,answer_1,other\nWhy?,Because.,So.\n")
    with Store() as store, pytest.raises(Problem, match="no column 'b'; pass --field b=COLUMN"):
        wait_for(classify(card, Job(half, tmp_path / "o.csv"), store))
    outs = [tmp_path / "named.csv", tmp_path / "known.csv"]
    named = {"question": "prompt", "a": "answer_1", "b": "answer_2"}
    for out, columns in zip(outs, (named, {}), strict=True):
        with Store() as store:
            job = Job(path, out, fields=columns, limit=3)
            found = wait_for(classify(card, job, store, world=card.world(tmp_path)))
        assert (found.n_new, found.faults.total()) == (3, 0)
    assert outs[0].read_text() == outs[1].read_text()


def test_the_better_answer_may_stand_in_one_column(write: Write, tmp_path: Path) -> None:
    rows_ = [f"Why {k}?,Because of {k} things.,No idea about {k}.,chosen" for k in range(40)]
    write("chosen.csv", "prompt,chosen,rejected,better\n" + "\n".join(rows_) + "\n")
    dataset = {
        "file": "chosen.csv",
        "fields": {"question": "prompt", "chosen": "chosen", "rejected": "rejected"},
        "exchange": ["chosen", "rejected"],
        "label": "better",
        "scale": ["rejected", "chosen"],
    }
    keys: dict[str, Any] = {"models": "sim/honest", "datasets": [dataset], "test_size": 30}
    with pytest.raises(Problem, match="set balance: proportional"):
        conditions(judge(write, **keys, balance="equal"))
    study = judge(write, **keys, balance="proportional")
    run = fm.Run(done(study, tmp_path).folder)
    found = dict(run.aspects("pairs").select("metric", "value").iter_rows())
    assert found["accuracy:1"] > 0.5 < found["accuracy:2"]
    assert found["first_share"] == pytest.approx(0.5)


def test_a_claim_about_pairs_ends_a_run_early(write: Write, tmp_path: Path) -> None:
    study = judge(write, models="sim/first-answer", until="P6<0.10", block_size=20)
    run = done(study, tmp_path)
    assert run.decisions["item"].n_unique() < 90
    assert "P6" in run.environment["claim"]["text"]
