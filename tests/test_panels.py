"""Panels of judges: several models decide together, as a rater like any other."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flipmeter as fm
from conftest import FIVE, Cli
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.pipelines.panels import settle_jury
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.show.gather import differences, gather
from flipmeter.show.page import render_page
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Decision, JuryRule, Places, Scale, Span, Task

Write = Callable[[str, str], Path]
MODELS = [
    {"model": "sim/first-slot?strength=1.5&noise=0.4", "name": "a"},
    {"model": "sim/last-slot?strength=1.5&noise=0.4", "name": "b"},
    {"model": "sim/honest", "name": "c"},
]
SENTIMENT = Task(Scale(FIVE))


def judged(write: Write, **keys: Any) -> Study:
    content: dict[str, Any] = {
        "models": MODELS,
        "panels": {"jury": {"of": ["a", "b", "c"]}},
        "datasets": ["reviews"],
        "test_size": 30,
        "probes": ["label_order"],
        "base": {"shots": 1},
    }
    return read_study(write("study.yaml", "{}"), {**content, **keys})


def done(study: Study, folder: Path, ledger: Ledger | None = None) -> Any:
    with Store() as store:
        return perform(study, folder / "run", store, Terms(ledger or Ledger()))


# --- how a panel decides ------------------------------------------------------------------------


def settled(ranks: list[int], by: JuryRule = "majority", task: Task = SENTIMENT) -> Decision:
    return settle_jury([Decision(rank) for rank in ranks], by, task)


@pytest.mark.parametrize(
    ("ranks", "by", "rank"),
    [
        ([5, 5, 1], "majority", 5),
        ([1, 2, 5], "majority", 2),  # all level: the class nearest to the mean of the votes
        ([2, 2, 5, 5], "majority", 2),  # as near: the lower one
        ([1, 2, 5], "mean", 3),
        ([4, 5], "mean", 4),  # a half goes towards the middle of the scale
        ([1, 2], "mean", 2),
    ],
)
def test_a_panel_decides_by_its_rule(ranks: list[int], by: JuryRule, rank: int) -> None:
    assert settled(ranks, by).rank == rank


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.sampled_from(["majority", "mean"]))
def test_the_order_of_the_members_does_not_matter(ranks: list[int], by: JuryRule) -> None:
    assert len({settled(list(order), by) for order in permutations(ranks)}) == 1


def test_judges_of_pairs_that_are_evenly_split_say_that_it_is_a_tie() -> None:
    places = Places(("a", "b"), ("{1}", "tie", "{0}"), ("a", "b"))
    task = Task(Scale(("b", "tie", "a")), places=places)
    assert settled([1, 3], task=task) == Decision(2, tie_decided=True)
    assert settled([1, 3, 3], task=task).rank == 3


def test_the_mean_of_decimal_scores_is_their_mean() -> None:
    span = Span(0, 10, 0.5)
    task = Task(Scale((), span=span))
    ranks = [span.rank(score) for score in (7.5, 8.0, 4.1)]
    assert span.score(settled(ranks, "mean", task).rank) == pytest.approx(6.533333, abs=1e-5)


def test_more_than_half_of_the_members_must_have_an_answer() -> None:
    unread = Decision(0, fault="refused")
    assert settle_jury([Decision(4), Decision(4), unread], "majority", SENTIMENT).rank == 4
    assert settle_jury([Decision(4), unread], "majority", SENTIMENT).fault == "refused"
    failed = Decision(0, fault="error")
    assert settle_jury([Decision(4), Decision(4), failed], "majority", SENTIMENT).fault == "error"


# --- in a study ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("panels", "says"),
    [
        ({"jury": {"of": ["a", "d"]}}, "'jury' has no model 'd'"),
        ({"a": {"of": ["b", "c"]}}, "a model is called 'a' too"),
        ({"jury": {"of": ["a", "a"]}}, "'a' twice"),
        ({"jury": {"of": ["a"]}}, "at least 2"),
        ({"jury": {"of": ["a", "b"], "by": "median"}}, "'majority' or 'mean'"),
        ({"jury": {"of": ["a", "b"], "show_member": False}}, "did you mean 'show_members'"),
    ],
)
def test_a_panel_that_cannot_be_is_refused(write: Write, panels: Any, says: str) -> None:
    with pytest.raises(Problem, match=re.escape(says)):
        judged(write, panels=panels)


def test_the_rule_must_fit_the_scale(write: Write) -> None:
    write("t.csv", "text,label\n" + "".join(f"text {k},{k % 3}\n" for k in range(60)))
    spec: dict[str, Any] = {"file": "t.csv", "scale": "nominal"}
    with pytest.raises(Problem, match="no order; use by: majority"):
        conditions(judged(write, datasets=[spec], panels={"j": {"of": ["a", "b"], "by": "mean"}}))
    spec = {"file": "t.csv", "scale": {"from": 0, "to": 2}}
    with pytest.raises(Problem, match="range of numbers; use by: mean"):
        conditions(judged(write, datasets=[spec], probes=["demo_order"]))


# --- in a run -----------------------------------------------------------------------------------


@pytest.fixture
def run(write: Write, tmp_path: Path) -> Any:
    return done(judged(write), tmp_path)


def test_a_panel_asks_nothing_beyond_its_members(write: Write, tmp_path: Path) -> None:
    alone, together = Ledger(), Ledger()
    done(judged(write, panels={}), tmp_path / "alone", alone)
    done(judged(write), tmp_path / "together", together)
    assert together.asked == alone.asked > 0


def test_its_decisions_are_those_of_its_members_under_the_same_view_and_repeat(run: Any) -> None:
    wide = run.decisions.pivot("rater", index=["view", "repeat", "item"], values="rank")
    repeated = wide.drop_nulls("jury")
    assert repeated.height == run.decisions.filter(rater="a").height
    by_place = {
        (v, i): c for v, r, i, c in wide.select("view", "repeat", "item", "c").rows() if not r
    }
    for view, _, item, a, b, c, jury in repeated.select(
        "view", "repeat", "item", "a", "b", "c", "jury"
    ).iter_rows():
        # A reproducible member repeats a few items: its first answer stands for the others.
        votes = [a, b, by_place[view, item] if c is None else c]
        assert jury == settled(votes).rank


def test_a_panel_has_what_every_rater_has(run: Any, write: Write, tmp_path: Path) -> None:
    assert run.verdicts["rater"].to_list() == ["a", "b", "c", "jury"]
    row = run.verdicts.filter(rater="jury").row(0, named=True)
    assert row["noise"] is not None
    page = render_page(gather(run))
    assert "majority of a, b, c" in page
    spent = run.decisions.filter(rater="jury", view="base", repeat=0)
    assert {*spent["n_calls"]} == {3}
    assert "jury" in {*differences(run, run)["rater"]}
    assert not [text for rater, text in run.warnings.items() if "changed during" in text]


def test_opposite_leanings_cancel_in_a_panel(write: Write, tmp_path: Path) -> None:
    models = [
        {"model": "sim/first-slot?strength=3", "name": "a"},
        {"model": "sim/last-slot?strength=3", "name": "b"},
        {"model": "sim/honest", "name": "c"},
    ]
    study = judged(write, models=models, test_size=60, base={"shots": 0})
    found = dict(done(study, tmp_path).verdicts.select("rater", "value").iter_rows())
    assert found["jury"] < min(found["a"], found["b"])


def test_members_may_be_left_out_of_the_tables(write: Write, tmp_path: Path) -> None:
    panels = {"jury": {"of": ["a", "b"], "show_members": False}}
    run = done(judged(write, panels=panels), tmp_path)
    assert {*run.decisions["rater"]} == {*run.conditions["rater"]} == {"c", "jury"}
    assert render_page(gather(run))


def test_a_panel_is_there_where_all_its_members_are(write: Write, tmp_path: Path) -> None:
    study = judged(write, vary={"mood": ["indicative"]}, vary_models=["a", "b"])
    run = done(study, tmp_path)
    assert run.decisions.filter(rater="jury")["level"].unique().to_list() == [""]


def test_a_panel_of_reproducible_members_is_reproducible(write: Write, tmp_path: Path) -> None:
    models = [{"model": "sim/honest", "name": "a"}, {"model": "sim/first-slot", "name": "b"}]
    run = done(judged(write, models=models, panels={"jury": {"of": ["a", "b"]}}), tmp_path)
    assert "jury" in run.environment["reproducible"]
    assert run.verdicts.filter(rater="jury")["is_reproducible"].item()


def test_blocks_and_claims_see_the_panel(write: Write, tmp_path: Path) -> None:
    study = judged(write, until="P1<0.45", block_size=10)
    run = done(study, tmp_path)
    assert "jury" in [row["rater"] for row in run.environment["claim"]["rows"]]
    assert run.decisions["rater"].unique(maintain_order=True).to_list()[-1] == "jury"


def test_a_member_that_cannot_be_read_stops_its_panel(write: Write, tmp_path: Path) -> None:
    models = [*MODELS[:2], {"model": "sim/refusing?refuse=1", "name": "c"}]
    run = done(judged(write, models=models), tmp_path)
    assert {*run.decisions["rater"]} == {"a", "b"}
    assert "panel jury lacks a member" in run.stopped


def test_a_plan_names_the_panel(write: Write, cli: Cli) -> None:
    write(
        "s.yaml",
        "models: [sim/honest, sim/noisy]\ndatasets: [reviews]\ntest_size: 10\n"
        "panels: {jury: {of: [sim/honest, sim/noisy]}}\nbase: {shots: 0}\n",
    )
    code, out, _ = cli("plan", "s.yaml")
    assert code == 0
    assert "panel jury: majority of sim/honest, sim/noisy; sends no further requests" in " ".join(
        out.split()
    )


# --- shipped ------------------------------------------------------------------------------------


def test_a_card_of_a_panel_names_its_members_and_asks_them_all(run: Any, tmp_path: Path) -> None:
    choice = fm.Run(run.folder).select(rater="jury")
    card = choice.card()
    assert card.panel is not None
    assert (card.panel.names, card.panel.by) == (("a", "b", "c"), "majority")
    texts = run.items.filter(role="test").head(6)["text"].to_list()
    rater = choice.classifier(store=None)
    found = rater.rate(texts)
    assert [one.n_calls for one in found] == [3] * 6
    rater.save(tmp_path / "card.yaml")
    again = fm.OrdinalClassifier.load(tmp_path / "card.yaml", store=None)
    assert again.predict(texts).tolist() == rater.predict(texts).tolist()
    base = dict(
        run.decisions.filter(rater="jury", view="base", repeat=0).select("item", "rank").rows()
    )
    ids = run.items.filter(role="test").head(6)["id"].to_list()
    assert [one.decision.rank for one in found] == [base[item] for item in ids]


def test_the_card_of_one_model_keeps_its_digest(run: Any) -> None:
    card = fm.Run(run.folder).select(rater="c").card()
    assert card.panel is None
    assert "panel" not in card.model_dump(exclude_none=True)


@pytest.mark.usefixtures("trusted")
def test_a_classifier_asks_a_panel_of_callables(write: Write, tmp_path: Path) -> None:
    write(
        "raters.py",
        "def low(q):\n    return 1\n\ndef high(q):\n    return 3\n\ndef mid(q):\n    return 2\n",
    )
    of = [f"python/{tmp_path / 'raters.py'}:{name}" for name in ("low", "high", "mid")]
    for by, label in (("mean", "fair"), ("majority", "fair")):
        rater = fm.OrdinalClassifier(
            "panel/three",
            panel={"of": of, "by": by},
            scale=["poor", "fair", "good"],
            shots=0,
            store=None,
        )
        rater.fit(["x", "y", "z"], ["poor", "fair", "good"])
        assert rater.predict(["some text"]).tolist() == [label]


def test_a_panel_of_judges_of_pairs_is_swapped_with_them(write: Write, tmp_path: Path) -> None:
    chance = Random(3)
    rows = [
        f"q{k},{'x' * chance.randint(4, 12)}{k},{'y' * chance.randint(4, 12)}{k},{'ab'[k % 2]}"
        for k in range(80)
    ]
    write("pairs.csv", "question,a,b,best\n" + "\n".join(rows) + "\n")
    dataset = {
        "file": "pairs.csv",
        "fields": {"question": "question", "a": "a", "b": "b"},
        "exchange": ["a", "b"],
        "label": "best",
        "scale": ["b", "tie", "a"],
    }
    models = [
        {"model": "sim/first-answer?place=4", "name": "first"},
        {"model": "sim/first-answer?place=-4", "name": "second"},
    ]
    study = judged(
        write,
        models=models,
        datasets=[dataset],
        panels={"jury": {"of": ["first", "second"]}},
        probes=["pair_order"],
        base={"shots": 0, "label_format": "letter"},
        balance="proportional",
    )
    run = done(study, tmp_path)
    found = dict(run.verdicts.select("rater", "word").iter_rows())
    assert found == {"first": "flips", "second": "flips", "jury": "stable"}
    ties = run.decisions.filter(rater="jury")["place"]
    assert np.mean(ties.to_numpy() == 0) > 0.5
