"""Choosing a rater that cannot flip: select --flip-proof, its card, and the classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import flipmeter as fm
from flipmeter.choose.card import read_card
from flipmeter.choose.select import flip_proof
from flipmeter.cli import app
from flipmeter.errors import Problem
from flipmeter.study.grid import world

LIKES_FIRST = "sim/first-slot?strength=3"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fm.Run:
    folder = tmp_path_factory.mktemp("flip-proof")
    study = fm.Study(
        models=[LIKES_FIRST],
        datasets=["reviews"],
        test_size=40,
        base={"cardinality": 3, "shots": 2, "label_format": "natural_language"},
        probes=["label_order", "demo_order"],
        repeats=1,
        vary={"pipeline": ["orbit", "orbit(batch)", "pointwise+batch"]},
    )
    return study.run(folder / "run", store=folder / "replies.sqlite")


def test_only_what_cannot_flip_is_chosen_from(run: fm.Run) -> None:
    found = run.select(flip_proof=["P1"])
    levels = [one.candidate[1] for one in found.standings]
    assert levels == ["pipeline=orbit", "pipeline=orbit(batch)"]
    assert found.flip_proof == ("P1",)
    assert found.can_flip == tuple(
        f"{LIKES_FIRST}, {level}" for level in ("base", "pipeline=pointwise+batch")
    )


def test_a_contrast_that_no_configuration_rules_out_says_so(run: fm.Run) -> None:
    with pytest.raises(Problem, match="rules out flips of P2a, P2b, P2c"):
        run.select(flip_proof=["P2"])


def test_the_card_says_what_is_ruled_out(run: fm.Run, tmp_path: Path) -> None:
    out = tmp_path / "rater.yaml"
    done = CliRunner().invoke(
        app, ["select", str(run.folder), "--flip-proof", "P1", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "ruled out by construction in all of these: flips of P1" in done.output
    assert "left out, because they can flip" in done.output
    card = read_card(out)
    assert card.pipeline.startswith("orbit")
    assert card.selected is not None
    assert card.selected.flip_proof == ["P1"]


def test_a_run_without_such_a_rater_says_which_pipelines_to_add(tmp_path: Path) -> None:
    study = fm.Study(
        models=["sim/honest"], datasets=["reviews"], test_size=10, probes=["label_order"], repeats=1
    )
    run = study.run(tmp_path / "run", store=tmp_path / "replies.sqlite")
    with pytest.raises(Problem, match="no configuration of this run rules out flips of P1"):
        run.select(flip_proof=["P1"])
    with pytest.raises(Problem, match="no contrast named 'P9'"):
        run.select(flip_proof=["P9"])


# --- the classifier -------------------------------------------------------------------------------


TEXTS = [f"It is number {k}." for k in range(12)]
LABELS = ["low", "middle", "high"] * 4


def fitted(**options: Any) -> fm.OrdinalClassifier:
    clf = fm.OrdinalClassifier("sim/honest", scale=["low", "middle", "high"], shots=1, **options)
    return clf.fit(TEXTS, LABELS)


def test_the_classifier_takes_the_cheapest_pipeline_that_rules_flips_out() -> None:
    assert fitted(flip_proof="label_order").card_.pipeline == "orbit"
    clf = fitted(flip_proof="label_order", task={"nominal": True})
    assert clf.card_.pipeline == "orbit"


def test_a_pipeline_of_ones_own_must_rule_them_out_itself() -> None:
    own = "orbit(labels:dihedral)"
    assert fitted(flip_proof="label_order", pipeline=own).card_.pipeline == own
    with pytest.raises(Problem, match=r"'orbit\(demos:reversal\)' does not rule out flips of lab"):
        fitted(flip_proof="label_order", pipeline="orbit(demos:reversal)")


def test_what_no_pipeline_rules_out_is_a_problem() -> None:
    for probe in ("criterion_order", "demo_order"):
        with pytest.raises(Problem, match=f"no pipeline rules out flips of {probe}"):
            fitted(flip_proof=probe)


def test_a_flip_proof_classifier_predicts_with_probabilities(tmp_path: Path) -> None:
    from flipmeter.data.load import load

    dataset = load("reviews")
    texts = [item.text for item in dataset.test[:30]]
    names = [dataset.task.scale.name(item.rank) for item in dataset.test[:30]]
    clf = fm.OrdinalClassifier(
        LIKES_FIRST,
        scale=list(dataset.task.scale.names),
        shots=1,
        flip_proof="label_order",
        store=None,
        world=world(dataset),
    ).fit(texts, names)
    assert clf.predict_proba(texts[:4]).shape == (4, 5)
    clf.save(tmp_path / "rater.yaml")
    assert read_card(tmp_path / "rater.yaml").pipeline == "orbit"


def test_flip_proof_keeps_all_else_of_a_card() -> None:
    card = fitted().card_
    assert flip_proof(card, ["label_order"]).model_copy(update={"pipeline": "pointwise"}) == card


def test_orders_that_are_averaged_can_be_abstained_by() -> None:
    assert fitted(pipeline="orbit", abstain_below=0.9).card_.pipeline == "orbit"
