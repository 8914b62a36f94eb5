"""Option order: the options of a question move, and a letter means what stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from flipmeter.ask.store import Store
from flipmeter.data.files import load_file
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import expand, show
from flipmeter.run.perform import perform
from flipmeter.run.rate import writer
from flipmeter.show.flipped_items import flipped_pair
from flipmeter.show.gather import aspects_of, differences, flips_of, gather, summary
from flipmeter.show.item_grid import Sought
from flipmeter.show.next_steps import findings
from flipmeter.show.page import render_page
from flipmeter.show.residuals import lay_out
from flipmeter.show.view.flip_pages import Flips
from flipmeter.stats.residuals import residuals
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Ask, Item, Prompt, Reply, Style
from test_prompt import compare

Write = Callable[[str, str], Path]
WORDS = ("river", "stone", "lamp", "green", "quick", "market", "winter", "paper", "cloud")


def questions(n: int = 120, sizes: tuple[int, ...] = (4, 3)) -> str:
    chance = Random(7)
    lines = []
    for k in range(n):
        size = sizes[k % len(sizes)]
        options = [f"{chance.choice(WORDS)} {chance.choice(WORDS)} {k}.{o}" for o in range(size)]
        options += [""] * (4 - size)
        lines.append(",".join([f"What is {k}?", *options, "ABCD"[chance.randrange(size)]]))
    return "question,a,b,c,d,answer\n" + "\n".join(lines) + "\n"


def choosing(write: Write, text: str | None = None, **keys: Any) -> Study:
    write("mcq.csv", text or questions())
    dataset = {"file": "mcq.csv", "text": "question", "options": ["a", "b", "c", "d"]}
    content: dict[str, Any] = {
        "models": "sim/honest",
        "datasets": [{**dataset, "label": "answer", **keys.pop("dataset", {})}],
        "probes": ["option_order"],
        "base": {"label_format": "letter", "shots": 0},
        "test_size": 60,
        "balance": "proportional",
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def done(study: Study, tmp_path: Path) -> Any:
    with Store() as store:
        return perform(study, tmp_path / "run", store=store)


def first_prompts(study: Study, size: int) -> dict[str, Prompt]:
    """The prompt of the first item with so many options, by view."""
    found = {}
    for one in conditions(study):
        item = next(item for item in one.items if bool(item.fields["d"]) == (size == 4))
        found[one.view.name] = writer(one)(Ask(item, one.view))
    return found


# --- data --------------------------------------------------------------------------------------


def test_options_are_classes_without_an_order(write: Write) -> None:
    (dataset,) = choosing(write).load()
    assert dataset.task.scale.names == ("a", "b", "c", "d")
    assert dataset.task.scale.nominal
    assert dataset.task.places is not None
    assert dataset.task.places.kind == "options"


def test_a_column_may_hold_a_list_of_options(write: Write) -> None:
    rows = [
        {"q": f"Q {k}?", "choices": [f"x{k}", k, f"z{k}"][: 2 + k % 2], "right": "AB"[k % 2]}
        for k in range(8)
    ]
    path = write("mcq.jsonl", "\n".join(json.dumps(row) for row in rows))
    dataset = load_file(path, text="q", options="choices", label="right")
    assert dataset.test[1].fields == {"text": "Q 1?", "a": "x1", "b": "1", "c": "z1"}
    assert dataset.test[0].fields["c"] == ""
    assert [item.gold for item in dataset.test[:2]] == [1, 2]


@pytest.mark.parametrize(("numbers", "ranks"), [((0, 1, 2), [1, 2, 3]), ((1, 2, 3), [1, 2, 3])])
def test_the_right_option_may_be_counted_from_0(
    write: Write, numbers: tuple[int, ...], ranks: list[int]
) -> None:
    """A 0 among the numbers proves it."""
    rows = [
        {"q": f"Q {k}?", "choices": [f"x{k}", f"y{k}", f"z{k}"], "right": numbers[k % 3]}
        for k in range(6)
    ]
    path = write("mcq.jsonl", "\n".join(json.dumps(row) for row in rows))
    dataset = load_file(path, text="q", options="choices", label="right")
    assert [item.gold for item in dataset.test[:3]] == ranks


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("Q?,x,,z,,A", "row 2: the option 'b' is empty; only the last options may be"),
        ("Q?,x,,,,A", "row 2: the option 'b' is empty"),
        ("Q?,x,y,,,C", "row 2: the label names 'c', but this option is empty"),
        ("Q?,x,y,z,w,E", "row 2: the label 'E' is not on the scale"),
        ("Q?,x,y,z,w,0", "if labels count from 0"),
    ],
)
def test_a_row_whose_options_make_no_question_is_named(
    write: Write, row: str, complaint: str
) -> None:
    path = write("mcq.csv", f"question,a,b,c,d,answer\n{row}\nR?,x,y,z,w,B\n")
    with pytest.raises(Problem) as error:
        load_file(path, text="question", options=["a", "b", "c", "d"], label="answer")
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["a"], "two or more columns"),
        (["a", "x"], "has no column 'x'"),
        ("question", "contains no list of 2 to 26 options"),
    ],
)
def test_what_is_wrong_with_options_is_said(write: Write, options: Any, complaint: str) -> None:
    path = write("mcq.csv", questions(6))
    with pytest.raises(Problem, match=complaint):
        load_file(path, text="question", options=options, label="answer")


# --- views and prompts -------------------------------------------------------------------------


@pytest.mark.parametrize(("n_places", "n_views"), [(2, 2), (3, 3), (4, 4), (10, 10)])
def test_there_are_as_many_rotations_as_options(n_places: int, n_views: int) -> None:
    views = expand(["option_order"], n_places, n_places=n_places)
    assert len(views) == n_views
    assert [view.place_order for view in views[:2]] == ["base", "rotated_1"]


@pytest.mark.parametrize(("n_places", "n_views"), [(2, 2), (3, 6), (4, 24), (7, 24)])
def test_all_orders_are_shown_where_there_are_few(n_places: int, n_views: int) -> None:
    assert len(expand(["option_permutations"], n_places, n_places=n_places)) == n_views


PLANETS = Item("q", {"text": "Which is largest?", "a": "Mars", "b": "Jupiter", "c": "Venus"}, 2)


@pytest.mark.parametrize("view", ["base", "rotated_1", "rotated_2"])
@pytest.mark.parametrize("clarity", ["explicit", "reasoned"])
def test_the_prompt_with_options_is_as_written(write: Write, view: str, clarity: str) -> None:
    (dataset,) = choosing(write).load()
    views = {one.name: one for one in expand(["option_order"], 4, n_places=3)}
    item, _ = show(PLANETS, dataset.task, views[view].place_order)
    style = Style(label_format="letter", clarity=clarity)
    prompt = render(dataset.task, style, views[view], [PLANETS], item)
    assert prompt.answers == ("A", "B", "C")
    compare(f"options/{clarity}-{view}", prompt.text)


def test_a_letter_means_the_option_that_stands_there(write: Write) -> None:
    four, three = (first_prompts(choosing(write, repeats=1), size) for size in (4, 3))
    assert list(four) == ["base", "rotated_1", "rotated_2", "rotated_3"]
    assert four["rotated_1"].ranks == (2, 3, 4, 1)
    assert three["rotated_1"].ranks == (2, 3, 1)
    assert three["rotated_3"].digest == three["base"].digest
    assert parse(Reply("C"), three["rotated_1"]).rank == 1
    assert parse(Reply("D"), three["rotated_1"]).fault == "unparsed"


def test_a_prompt_file_lists_the_options_of_a_view(write: Write) -> None:
    write("own.md", "{{ text }}\n{{ options }}\nReply with one of {{ labels }}.")
    study = choosing(write, prompt="own.md", repeats=1, base={"label_format": "letter"})
    three = first_prompts(study, 3)
    lines = three["rotated_2"].text.splitlines()
    assert [line[:3] for line in lines[1:4]] == ["A: ", "B: ", "C: "]
    assert lines[4] == "Reply with one of A, B, C."
    assert f"A: {lines[2].removeprefix('B: ')}" in three["base"].text


# --- planted raters ----------------------------------------------------------------------------


def test_a_planted_preference_for_the_first_option_is_found(write: Write, tmp_path: Path) -> None:
    names = ["sim/honest", "sim/first-answer?strength=3", "sim/longer-answer"]
    run = done(choosing(write, models=names), tmp_path)
    assert dict(run.verdicts.select("rater", "word").rows()) == {
        "sim/honest": "stable",
        "sim/first-answer?strength=3": "flips",
        "sim/longer-answer": "stable",
    }
    places = run.decisions.filter(repeat=0).group_by("rater").agg((pl.col("place") == 1).mean())
    shares = dict(places.rows())
    assert shares["sim/first-answer?strength=3"] > shares["sim/honest"] + 0.2


def test_decisions_say_where_the_right_option_stood(write: Write, tmp_path: Path) -> None:
    decisions = done(choosing(write, models="sim/honest?sharpness=50"), tmp_path).decisions
    right = decisions.filter(pl.col("rank") == pl.col("gold"))
    assert len(right) > 100
    assert (right["place"] == right["gold_place"]).all()
    of_four = right.filter(n_places=4, view="rotated_1")
    assert (of_four["place"] == (of_four["gold"] - 2) % 4 + 1).all()
    assert decisions["n_places"].unique().sort().to_list() == [3, 4]


def test_probabilities_follow_the_options(write: Write, tmp_path: Path) -> None:
    decisions = done(choosing(write, scores=True), tmp_path).decisions.filter(repeat=0)
    wide = decisions.pivot("view", index="item", values="probabilities")
    for base, rotated in wide.select("base", "rotated_1").iter_rows():
        assert len(base) == 4
        assert base == pytest.approx(rotated)


CANDIDATES = {
    "options": None,
    "fields": {"a": "a", "b": "b", "c": "c"},
    "exchange": ["a", "b", "c"],
    "scale": {"nominal": ["a", "b", "c"]},
}


def test_candidates_are_rotated(write: Write, tmp_path: Path) -> None:
    text = questions(90, sizes=(3,))
    models = ["sim/honest", "sim/first-answer?strength=3"]
    study = choosing(
        write, text, dataset=CANDIDATES, probes=["candidate_order"], models=models, test_size=45
    )
    (dataset,) = study.load()
    assert dataset.task.places is not None
    assert dataset.task.places.kind == "candidates"
    words = done(study, tmp_path).verdicts.select("rater", "contrast", "word").rows()
    assert words == [
        ("sim/honest", "P7c", "stable"),
        ("sim/first-answer?strength=3", "P7c", "flips"),
    ]


def test_a_rotation_that_shows_the_same_is_no_further_agreement(
    write: Write, tmp_path: Path
) -> None:
    """Two options always picked by place: the two orders always differ, of two or of four."""
    model = "sim/first-answer?strength=500"
    found = []
    for sizes in ((2,), (2, 4)):
        study = choosing(write, questions(120, sizes), models=model, repeats=1)
        run = done(study, tmp_path / str(len(sizes)))
        (row,) = run.verdicts.iter_rows(named=True)
        found.append(row["value"])
    assert found == [1.0, 1.0]


def test_an_average_over_all_rotations_is_stable_by_construction(
    write: Write, tmp_path: Path
) -> None:
    models = ["sim/first-answer?strength=3"]
    run = done(choosing(write, models=models, pipeline="orbit(places:rotations)"), tmp_path)
    (row,) = run.verdicts.iter_rows(named=True)
    assert (row["status"], row["word"]) == ("by construction", "stable")
    assert row["reason"] == "0 by construction (average over places:rotations)"


@pytest.mark.parametrize("label", ["answer", None])
def test_an_option_chosen_elsewhere_is_not_an_option_that_moved(
    write: Write, tmp_path: Path, label: str | None
) -> None:
    study = choosing(
        write,
        questions(90, sizes=(3,)),
        models="sim/first-answer?strength=1&noise=1",
        dataset={**CANDIDATES, "label": label},
        probes=["candidate_order", "label_order"],
    )
    run = done(study, tmp_path)
    assert run.verdicts.filter(contrast="P1")["value"][0] > 0
    slots = aspects_of(run, ["slots"])["slots"]
    assert slots.filter(metric="slot:1")["view"].to_list() == ["P7c", "P1"]
    assert slots.filter(metric="cramers_v")["view"].to_list() == ["P7c"]


# --- surfaces ----------------------------------------------------------------------------------


@pytest.fixture
def flipping(write: Write, tmp_path: Path) -> Any:
    model = "sim/first-answer?place=3&noise=0.2"
    return done(choosing(write, models=["sim/honest", model], probes=None), tmp_path)


def test_the_page_shows_which_places_of_the_options_are_chosen(flipping: Any) -> None:
    page = render_page(gather(flipping))
    assert "Which places of the options are chosen" in page
    assert "accuracy when the right option is in slot 3" in page


def test_a_study_of_options_speaks_of_what_it_moves(flipping: Any) -> None:
    assert [contrast.name for contrast in flipping.contrasts] == ["P7"]


def test_probes_that_a_study_names_are_shown_as_not_applicable(
    write: Write, tmp_path: Path
) -> None:
    found = done(choosing(write, probes=["option_order", "demo_order"]), tmp_path)
    assert "P2" in [contrast.name for contrast in found.contrasts]


def test_the_first_screen_names_the_place_and_what_to_do_about_it(flipping: Any) -> None:
    found = findings(flipping)
    assert [line.split(":")[0] for line in found.preferred] == [
        "sim/first-answer?place=3&noise=0.2 prefers place 1"
    ]
    assert found.preferred[0] in unescape(render_page(found))
    (step,) = (step for step in found.next_steps if "vary=" in step.command)
    assert "vary={pipeline: [orbit(places:rotations)]}" in step.command


def test_the_table_of_flips_agrees_with_the_sentence(flipping: Any) -> None:
    console = Console(width=200, file=StringIO())
    console.print(*summary(flipping))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "--show verdicts,scores,tokens,slots" in shown
    row = next(line for line in shown.splitlines() if re.search("P7 +options change places", line))
    value = flipping.verdicts["value"].max()
    assert f"{100 * value:.1f} %" in row
    assert row.startswith("flips")
    assert "sim/first-answer" in shown


def test_the_report_of_options_shows_the_flips_it_speaks_of(flipping: Any) -> None:
    found = gather(flipping)
    html = render_page(found)
    for denied in ("No item flipped", "No contrast was measured", "paper's form", "P2a"):
        assert denied not in html
    assert {flip.contrast for flip in found.browser.flips} <= {
        "P7:rotated_1",
        "P7:rotated_2",
        "P7:rotated_3",
    }
    flips = flips_of(flipping)
    assert not flips.is_empty()
    assert flips["distance"].null_count() == len(flips)


def test_changes_by_level_have_a_column_for_every_rotation_and_none_that_applies_to_nothing(
    write: Write, tmp_path: Path
) -> None:
    models = ["sim/honest", "sim/first-answer?place=3"]
    found = done(choosing(write, models=models, probes=["option_order", "label_order"]), tmp_path)
    table = residuals(found.parts.decisions, found.contrasts)
    assert "P1" in table["metric"].to_list()
    shown = lay_out(table)
    assert shown.metrics[-3:] == ("P7:rotated_1", "P7:rotated_2", "P7:rotated_3")
    assert not {"P1", "n/a"} & {*shown.metrics, *" ".join(shown.notes).split()}


def test_options_are_compared_between_runs_and_looked_at_one_by_one(flipping: Any) -> None:
    names = differences(flipping, flipping)["metric"].unique().to_list()
    assert {"P7:rotated_1", "P7:rotated_2", "P7:rotated_3"} <= set(names)
    flips = Flips(flipping)
    row = flips.page(Sought({})).row(0, named=True)
    assert flips.row(row) == row | {"is_flip": True}
    assert flipped_pair(flipping) is not None
    assert not aspects_of(flipping, ["matrix"])["matrix"].is_empty()
