"""Removed parts: a study that a user writes is refused with the way out, what is stored opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import flipmeter as fm
from conftest import ROOT, Cli
from flipmeter.choose.card import read_card
from flipmeter.data.load import load
from flipmeter.errors import Problem

STORED = ROOT / "tests" / "net" / "stored"
STUDY: dict[str, Any] = {
    "models": ["sim/honest"],
    "datasets": ["reviews"],
    "test_size": 8,
    "probes": ["label_order"],
    "base": {"shots": 1},
}
READING = (
    *("measure RUN", "measure RUN --show scores", "measure RUN --show severity", "effects RUN"),
    *("check RUN", "select RUN", "compare RUN RUN", "report RUN --out page.html"),
    *("report RUN --out page.md", "report RUN --out estimates.csv"),
)
ASKING = ("run", "plan", "try", "try --dry")


def words(text: str) -> str:
    """Text without the breaks of its lines."""
    return " ".join(text.split())


TEXTS = [item.text for item in load("reviews").test[:10]]
LABELS = ["very negative", "negative", "neutral", "positive", "very positive"] * 2


# --- what a user writes -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"probes": ["polarity"]}, "the probe 'polarity' was removed; nothing replaces it"),
        ({"probes": ["answer_order"]}, "the probe 'answer_order' was removed"),
        ({"probe_items": {"grouping": 4}}, "the probe 'grouping' was removed"),
        ({"pipeline": "cumulative"}, "'cumulative' was removed; use pointwise with"),
        ({"pipeline": "cumulative(expected demos)"}, "'cumulative' was removed"),
        ({"pipeline": "labelwise@paper"}, "'labelwise' was removed; use pointwise with"),
        ({"vary": {"pipeline": ["windows(1)"]}}, "'windows' was removed; use pointwise_vote"),
        ({"pipeline": "pairwise+calibraeval"}, "was removed; use pairwise"),
        ({"pipeline": "pairwise+weighted_sum_self"}, "was removed; use pairwise+weighted_sum"),
        ({"configs": {"x": {"pipeline": "listwise+insertion"}}}, "was removed; use listwise"),
        ({"pipeline": "pointwise+permutations"}, "use orbit(labels:rotations)"),
        ({"pipeline": "pointwise+permutations_probabilities"}, "use orbit(labels:rotations)"),
        ({"base": {"wording": "or_more"}}, "the factor 'wording' was removed"),
        ({"vary": {"wording": ["more_than"]}}, "the factor 'wording' was removed"),
        ({"only_on": {"wording": ["reviews"]}}, "the factor 'wording' was removed"),
        ({"models": ["sim/yes-sayer"]}, "the simulated rater 'yes-sayer' was removed"),
    ],
)
def test_a_study_that_names_it_is_refused_and_told_what_replaces_it(
    cli: Cli, tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY | keys), encoding="utf-8")
    code, _, err = cli("run", "study.yaml")
    assert (code, said in words(err)) == (2, True), err
    with pytest.raises(Problem, match="was removed"):
        fm.Study(**STUDY | keys).plan(store=":memory:")


def test_a_changed_key_is_refused_too(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    for change in ("base.wording=at_least", "pipeline=cumulative", "probes=[grouping]"):
        code, _, err = cli("plan", "study.yaml", "--set", change)
        assert (code, "was removed" in words(err)) == (2, True), err


def test_a_classifier_is_refused_too() -> None:
    with pytest.raises(Problem, match="'labelwise' was removed"):
        fm.OrdinalClassifier("sim/honest", scale=["low", "high"], pipeline="labelwise").fit(
            ["a", "b"], ["low", "high"]
        )


def test_no_list_names_it(cli: Cli) -> None:
    for kind, name in (("probes", "polarity"), ("pipelines", "cumulative"), ("factors", "wording")):
        assert name not in cli("list", kind)[1]


# --- what is stored ---------------------------------------------------------------------------


@pytest.fixture(params=["removed", "fractional"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run folder of a version that had all of it."""
    return Path(shutil.copytree(STORED / request.param, tmp_path / request.param))


@pytest.mark.parametrize("verb", READING)
def test_a_run_folder_opens_in_every_reading_verb(cli: Cli, run: Path, verb: str) -> None:
    code, _, err = cli(*verb.replace("RUN", run.name).split())
    assert code in (0, 1, 3), err


@pytest.mark.parametrize("verb", ASKING)
def test_it_cannot_be_asked_again(cli: Cli, run: Path, verb: str) -> None:
    first, *options = verb.split()
    code, _, err = cli(first, run.name, *options)
    assert code == 2
    part = "the probe 'polarity'" if run.name == "removed" else "the factor 'wording'"
    assert f"{part} was removed" in words(err)


def test_levels_and_contrasts_keep_their_names_and_are_measured() -> None:
    run = fm.Run(STORED / "removed")
    levels = run.decisions["level"].unique(maintain_order=True).to_list()
    assert "pipeline=cumulative" in levels
    assert [one.name for one in run.contrasts] == ["P1", "P8", "P9", "P10"]
    measured = run.verdicts.filter(status="measured").select("level", "contrast", "n_pairs")
    assert ("pipeline=cumulative", "P8", 6) in measured.rows()
    assert ("pipeline=listwise+insertion", "P1", 6) in measured.rows()
    ruled_out = run.verdicts.filter(contrast="P1", level="pipeline=labelwise")
    assert ruled_out["status"].to_list() == ["by construction"]


@pytest.mark.parametrize("level", ["pipeline=cumulative", "label_format=letter,wording=more_than"])
def test_no_card_is_made_of_it(cli: Cli, run: Path, level: str) -> None:
    if level in fm.Run(run).decisions["level"]:
        code, _, err = cli("select", run.name, "--level", level, "--out", "rater.yaml")
        assert (code, "was removed" in words(err)) == (2, True), err


def card(**changes: Any) -> str:
    told = yaml.safe_load((STORED / "rater.yaml").read_text(encoding="utf-8"))
    told["style"] |= changes.pop("style", {})
    return yaml.safe_dump(told | changes)


def test_a_card_with_a_removed_key_at_its_default_is_the_same_rater(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "rater.yaml"
    path.write_text(card(), encoding="utf-8")
    found = read_card(path)
    content = found.model_dump(mode="json")
    assert content["style"]["wording"] == "or_more", "it is part of the digest that was confirmed"
    clf = fm.OrdinalClassifier.load(path, store=tmp_path / "replies.sqlite")
    assert len(clf.predict(TEXTS)) == len(TEXTS)
    assert clf.fit(TEXTS, LABELS).card_.pipeline == "orbit"
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": TEXTS[0]}) + "\n", encoding="utf-8")
    for verb in ("confirm rater.yaml --items 4", "classify rater.yaml texts.jsonl -o out.csv"):
        code, _, err = cli(*verb.split())
        assert code in (0, 1, 3), err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pipeline": "cumulative"}, "the pipeline 'cumulative' was removed"),
        ({"pipeline": "windows(1)"}, "the pipeline 'windows' was removed"),
        ({"average": ["polarity"]}, "the probe 'polarity' was removed"),
        ({"style": {"wording": "at_least"}}, "the factor 'wording' was removed"),
    ],
)
def test_a_card_that_needs_it_cannot_be_used(
    cli: Cli, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    (tmp_path / "rater.yaml").write_text(card(**changes), encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "Fine."}) + "\n", encoding="utf-8")
    for verb in ("classify rater.yaml texts.jsonl", "confirm rater.yaml --items 4"):
        code, _, err = cli(*verb.split())
        assert (code, said in words(err)) == (2, True), err
