"""Recorded verdicts of judges: orders side by side or under each other, with or without slot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import flipmeter as fm
from conftest import ROOT, Cli
from flipmeter.show.next_steps import findings
from flipmeter.show.page import render_page
from flipmeter.show.page.places import _order_effect_text

Write = Callable[[str, str], Path]

WIDE = "item,judge,as_given,swapped,better\n" + "".join(
    f"{k},J,{1 if k % 10 else 2},{2 if k % 3 else 1},1\n" for k in range(60)
)
"""A judge that mostly prefers what is shown first."""


def long(labels: tuple[str, str], *, slot: bool) -> str:
    """The same verdicts under each other, with other names for the answers."""
    rows = ["item,model,condition,label,gold" + (",slot" if slot else "")]
    for line in WIDE.splitlines()[1:]:
        item, judge, given, swapped, better = line.split(",")
        gold = labels[int(better) - 1]
        for condition, winner in (("as given", given), ("swapped", swapped)):
            place = int(winner) if condition == "as given" else 3 - int(winner)
            row = [item, judge, condition, labels[int(winner) - 1], gold]
            rows.append(",".join([*row, *([str(place)] if slot else [])]))
    return "\n".join(rows) + "\n"


def pairs(run: fm.Run) -> dict[str, float]:
    return dict(run.aspects("pairs").select("metric", "value").iter_rows())


def test_verdicts_side_by_side_are_read_as_two_orders(write: Write) -> None:
    run = fm.Run(write("verdicts.csv", WIDE))
    assert [contrast.name for contrast in run.contrasts] == ["P6"]
    found = pairs(run)
    by_hand = sum((k % 10 > 0) + (k % 3 > 0) for k in range(60)) / 120
    assert found["first_share"] == pytest.approx(by_hand)
    row = run.verdicts.row(0, named=True)
    assert row["word"] == "flips"
    assert row["up_is_first"]
    assert row["leans"] == "up"
    assert {*run.flips["towards"]} <= {"answer shown first", "answer shown second"}


def test_recorded_verdicts_that_flip_have_a_next_step_and_nothing_to_compare(
    write: Write,
) -> None:
    run = fm.Run(write("verdicts.csv", WIDE))
    commands = [step.command for step in run.next_steps()]
    assert [words.split()[1] for words in commands] == ["measure", "check"]
    assert commands[0].endswith("--show pairs")
    html = render_page(findings(run.source))
    assert "there is nothing to compare it with" in html
    assert "--cost" not in html


@pytest.mark.parametrize("labels", [("1", "2"), ("a", "b"), ("A", "B"), ("output_1", "output_2")])
@pytest.mark.parametrize("slot", [True, False])
def test_orders_under_each_other_say_the_same(
    write: Write, labels: tuple[str, str], slot: bool
) -> None:
    run = fm.Run(write("long.csv", long(labels, slot=slot)))
    first = pairs(fm.Run(write("verdicts.csv", WIDE)))
    found = pairs(run)
    assert found["first_share"] == pytest.approx(first["first_share"])
    assert found["accuracy:1"] == pytest.approx(54 / 60)
    n_both = sum(k % 10 > 0 and k % 3 == 0 for k in range(60))
    assert found["accuracy_both"] == pytest.approx(n_both / 60)


@pytest.mark.parametrize(
    ("said", "scale"),
    [
        ("a b tie", "b, tie, a"),
        ("A>>B A>B A=B B>A B>>A", "B>>A, B>A, A=B, A>B, A>>B"),
        ("model_2 model_1 both_bad", "model_2, both_bad, model_1"),
    ],
)
def test_the_order_of_verdicts_is_told_by_their_names(write: Write, said: str, scale: str) -> None:
    names = said.split()
    rows = [f"{k},{names[k % len(names)]},{names[k % 2]}" for k in range(30)]
    path = write("v.csv", "item,as_given,swapped\n" + "\n".join(rows) + "\n")
    (told,) = fm.read_predictions(path).environment["datasets"].values()
    assert f"the scale was taken to be {scale}" in told["notes"]
    assert "first_share" in pairs(fm.Run(path))


def test_a_scale_turned_round_turns_nothing_else(write: Write) -> None:
    """[b, tie, a] and [a, tie, b]: the lean is towards the answer shown first in both."""
    path = write("long.csv", long(("a", "b"), slot=False))
    for scale in (("b", "tie", "a"), ("a", "tie", "b")):
        run = fm.Run(path, scale=scale)
        row = run.verdicts.row(0, named=True)
        assert (row["leans"] == "up") == row["up_is_first"]
        assert pairs(run)["first_share"] > 0.7
        moved = dict(run.aspects("direction").select("metric", "value").iter_rows())
        n_first = sum(k % 10 > 0 and k % 3 > 0 for k in range(60))
        assert moved["to_first"] == pytest.approx(n_first / 60)
        assert moved["step_to_first"] > 0
        assert moved["first_minus_second"] == moved["to_first"] - moved["to_second"]
        assert not {"up", "down", "preference", "shift"} & {*moved}


def test_names_that_say_nothing_of_places_need_slots(write: Write) -> None:
    run = fm.Run(write("t.csv", long(("good", "bad"), slot=False)), scale=("good", "bad"))
    assert pairs(run) == {}
    told = fm.Run(write("t.csv", long(("good", "bad"), slot=True)), scale=("good", "bad"))
    assert pairs(told)["first_share"] > 0.7


def test_the_sentence_names_the_place(cli: Cli, write: Write) -> None:
    path = write("verdicts.csv", WIDE)
    code, out, err = cli("measure", str(path))
    assert code == 0, err
    said = " ".join(out.split())
    assert "when the two answers are swapped" in said
    assert "mostly towards the answer shown first" in said


def test_systems_of_a_table_are_ranked(write: Write, cli: Cli) -> None:
    names = ("ant", "bee", "cat")
    head, *rows = WIDE.splitlines()
    told = [f"{row},{names[k % 3]},{names[(k + 1) % 3]}" for k, row in enumerate(rows)]
    path = write("systems.csv", "\n".join([f"{head},system_a,system_b", *told]) + "\n")
    table = fm.Run(path).aspects("systems")
    assert {f"win_rate:{name}" for name in names} < {*table["metric"]}
    assert table.filter(metric="order_effect", view="both orders")["value"][0] > 0
    code, out, err = cli("measure", str(path), "--show", "systems,pairs")
    assert code == 0, err
    assert "order effect" in out
    assert "the answer shown first wins" in " ".join(out.split())


# --- LLMBar -----------------------------------------------------------------------------------


@pytest.fixture
def llmbar() -> Path:
    """The recorded verdicts of LLMBar, which are not ours to give away."""
    root = Path(os.environ.get("FLIPMETER_DATA") or ROOT.parent / "shared" / "data")
    if not (root / "llmbar" / "verdicts.csv").is_file():
        pytest.skip("LLMBar's verdicts are not here; name their folder in FLIPMETER_DATA")
    return root / "llmbar"


@pytest.mark.shared
def test_all_325_published_counts_are_reproduced(llmbar: Path) -> None:
    """Theirs: same in both orders, or unreadable in both."""
    found = fm.Run(llmbar / "verdicts.csv").estimates.filter(metric="P6", policy="strict")
    published = pl.read_csv(llmbar / "published.csv").rename({"n": "n_published"})
    published = published.with_columns(rater=pl.format("{} {}", "judge", "strategy"))
    both = published.join(found, left_on=["subset", "rater"], right_on=["dataset", "rater"])
    assert both.height == published.height == 325
    assert (both["n_published"] - both["k"]).to_list() == both["same_verdict"].to_list()


def test_the_slot_of_a_swapped_verdict_is_not_guessed(write: Write) -> None:
    decisions = fm.Run(write("verdicts.csv", WIDE)).decisions
    assert decisions.filter(view="swapped")["slot"].unique().to_list() == [0]
    assert set(decisions.filter(view="base")["slot"]) == {1, 2}


@pytest.mark.parametrize("winner", ["a", "b"])
def test_a_judge_that_never_changes_its_verdict_still_has_a_first_answer(
    write: Write, winner: str
) -> None:
    rows = [f"i{k},{order},{winner},a" for k in range(12) for order in ("as given", "swapped")]
    path = write("same.csv", "item,condition,label,gold\n" + "\n".join(rows) + "\n")
    run = fm.Run(path, scale=["b", "tie", "a"])
    assert run.verdicts["up_is_first"].to_list() == [False]


def test_an_order_effect_is_never_minus_nothing() -> None:
    row = {"metric": "order_effect", "value": -0.001, "low": -0.06, "high": 0.06}
    assert _order_effect_text(pl.DataFrame([row])) == " · order effect +0.00 [-0.06, +0.06]"
