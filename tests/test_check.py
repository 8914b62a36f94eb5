"""Limits that a run is held to: for sure, surely not, or not known yet."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from flipmeter.measure import (
    Limit,
    certify_excess,
    hold_difference,
    hold_limits,
    hold_mean,
    hold_share,
    items_needed,
)
from flipmeter.model import Store
from flipmeter.report.claims import claims_junit, claims_markdown
from flipmeter.run.perform import Run, perform
from flipmeter.ship.gate import Checked, check, read_gate
from flipmeter.study.file import read_study
from flipmeter.types import Contrast, Problem
from hand_made import group

Write = Callable[[str, str], Path]
Cli = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[1]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")


# One number


@given(st.integers(0, 80), st.integers(0, 80), st.floats(0.01, 0.99))
def test_the_word_of_a_share_is_where_its_bounds_are(k: int, rest: int, limit: float) -> None:
    n = k + rest + 1
    held = hold_share(k, n, limit)
    low, high = proportion_confint(k, n, 0.1, method="beta")
    assert held.low == pytest.approx(low)
    assert held.high == pytest.approx(high)
    assert (held.p_kept < 0.05) == (held.high < limit) or held.high == pytest.approx(limit)
    assert (held.p_broken < 0.05) == (held.low > limit) or held.low == pytest.approx(limit)
    assert held.p_kept + held.p_broken > 0.999  # so never both


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 90), st.floats(0.01, 0.5))
def test_a_difference_is_certified_as_certificates_do_it(
    b: int, c: int, rest: int, limit: float
) -> None:
    n = b + c + rest
    held, sure = hold_difference(b, c, n, limit), certify_excess(b, c, n, limit)
    assert held.high == pytest.approx(sure.upper)
    assert held.p_kept == pytest.approx(sure.p)
    assert held.p_kept + held.p_broken == pytest.approx(1)
    mirrored = hold_difference(c, b, n, -limit)
    assert mirrored.low == pytest.approx(-held.high, abs=1e-9)
    assert mirrored.p_broken == pytest.approx(held.p_kept)


@pytest.mark.parametrize("chances", [(0.6, 0.3, 0.1, 0, 0), (0.97, 0, 0, 0, 0.03)], ids=str)
def test_a_mean_at_its_limit_is_seldom_called_kept_or_broken(chances: tuple[float, ...]) -> None:
    draws = np.random.default_rng(7).choice(5, size=(1500, 120), p=chances)
    mean = float(np.arange(5) @ chances)
    held = [hold_mean(row, (0, 4), mean) for row in draws]
    assert np.mean([one.p_kept < 0.05 for one in held]) < 0.06
    assert np.mean([one.p_broken < 0.05 for one in held]) < 0.06
    assert np.mean([one.low <= mean <= one.high for one in held]) > 0.89


def test_equal_numbers_are_not_certainty() -> None:
    held = hold_mean([0] * 20, (0, 4), 0.3)
    assert held.value == 0
    assert held.high > 0.3
    assert hold_mean([0] * 100, (0, 4), 0.3).high < 0.3
    assert hold_mean([4] * 20, (0, 4), 0.3).p_broken < 0.001


def test_what_would_settle_a_claim_settles_it() -> None:
    held = hold_share(6, 100, 0.10)
    assert held.p_kept > 0.05
    assert held.n_more is not None
    n = 100 + held.n_more
    assert n == items_needed(0.10, 0.06)[0]
    rng = np.random.default_rng(1)
    done = [hold_share(int(k), n, 0.10).p_kept < 0.05 for k in rng.binomial(n, 0.06, 400)]
    assert np.mean(done) > 0.75
    assert hold_share(10, 100, 0.10).n_more is None  # exactly at the limit, no number would


# All numbers of a run


def ranks(n: int, flipped: int, failed: int = 0) -> tuple[list[int], list[int]]:
    """Return two views of n items, of which the first few flip and the last few fail twice."""
    base = [2] * (n - failed) + [0] * failed
    return base, [4] * flipped + base[flipped:]


def held(decisions: pl.DataFrame, *limits: Limit, **options: Any) -> list[dict[str, Any]]:
    key = ("r", "d", "")
    return hold_limits(decisions, [P1], {key: limits}, **options).to_dicts()


@pytest.mark.parametrize(("flipped", "word"), [(2, "stable"), (8, "inconclusive"), (40, "flips")])
def test_flips_have_three_words(flipped: int, word: str) -> None:
    (row,) = held(group(*ranks(100, flipped)), Limit("flips", "P1", 0.10))
    assert (row["word"], row["value"]) == (word, flipped / 100)
    assert (row["n_more"] is not None) == (word == "inconclusive")


def test_a_rater_that_mostly_fails_agrees_with_itself_and_is_not_stable() -> None:
    (row,) = held(group(*ranks(100, 0, failed=30)), Limit("flips", "P1", 0.10))
    assert row["p_kept"] < 0.05
    assert row["word"] == "inconclusive"
    assert "too many failures" in row["note"]


def test_what_is_not_read_is_wrong_and_as_far_off_as_it_can_be() -> None:
    decisions = group([2] * 90 + [0] * 10, gold=[2] * 100)
    limits = [
        Limit("accuracy", "base", 0.6),
        Limit("mae", "base", 0.1),
        Limit("faults", "base", 0.02),
    ]
    accuracy, mae, faults = held(decisions, *limits)
    assert (accuracy["value"], accuracy["word"]) == (pytest.approx(0.9), "met")
    assert accuracy["low"] < 0.9 < accuracy["high"]
    assert (mae["value"], mae["word"]) == (pytest.approx(0.3), "missed")  # 5 is 3 away from 2
    assert (faults["value"], faults["word"]) == (0.1, "missed")


def test_a_score_without_gold_is_not_known() -> None:
    (row,) = held(group([2] * 9), Limit("accuracy", "base", 0.6))
    assert (row["word"], row["note"]) == ("inconclusive", "no gold classes")


def test_all_must_be_shown_and_one_broken_is_enough() -> None:
    decisions = pl.concat(
        [
            group(*ranks(200, 26), rater="a"),
            *(group(*ranks(200, 2), rater=f"b{k}") for k in range(9)),
        ]
    )
    everyone = {(name, "d", ""): [Limit("flips", "P1", 0.09)] for name in set(decisions["rater"])}
    table = hold_limits(decisions, [P1], everyone)
    worst = table.filter(rater="a").row(0, named=True)
    assert worst["p_broken"] < 0.05 < worst["p_holm"]  # by chance, one rater in ten looks like it
    assert worst["word"] == "inconclusive"
    assert worst["n_more"] > 100  # to be sure of one among ten
    rest = table.filter(pl.col("rater") != "a")
    assert set(rest["word"]) == {"stable"}  # each at alpha alone: all of them have to pass
    alone = hold_limits(decisions, [P1], {("a", "d", ""): [Limit("flips", "P1", 0.09)]})
    assert alone["word"].item() == "flips"


def test_a_family_at_its_limits_is_seldom_called_broken() -> None:
    rng = np.random.default_rng(3)
    keys = {(f"r{k}", "d", ""): [Limit("flips", "P1", 0.10)] for k in range(6)}
    n_alarms = 0
    for _ in range(150):
        counts = rng.binomial(100, 0.10, 6)
        runs = [group(*ranks(100, int(k)), rater=f"r{place}") for place, k in enumerate(counts)]
        n_alarms += "flips" in set(hold_limits(pl.concat(runs), [P1], keys)["word"])
    assert n_alarms / 150 <= 0.08


def test_drift_is_paired_by_item() -> None:
    before = group(*ranks(100, 10), gold=[2] * 100)
    now = group(*ranks(100, 30), gold=[2] * 50 + [3] * 50).sample(fraction=1, shuffle=True, seed=1)
    flips = Limit("flips", "P1", 0.05, is_drift=True)
    accuracy = Limit("accuracy", "base", 0.05, is_drift=True)
    (row, score) = held(now, flips, accuracy, reference=before)
    expected = hold_difference(20, 0, 100, 0.05)  # the ten of before flip again
    assert (row["value"], row["p_broken"]) == (0.2, pytest.approx(expected.p_broken))
    assert (row["word"], score["word"]) == ("flips", "missed")
    (same,) = held(before, flips, reference=before)
    assert (same["value"], same["word"]) == (0, "stable")


def test_drift_since_a_run_without_these_items_is_not_known() -> None:
    before = group(*ranks(30, 1), dataset="other")
    (row,) = held(group(*ranks(30, 1)), Limit("flips", "P1", 0.05, is_drift=True), reference=before)
    assert row["word"] == "inconclusive"
    assert "no such items" in row["note"]


# The gate file


STUDY = {
    "name": "gated",
    "models": ["sim/honest", {"model": "sim/first-slot?strength=6", "name": "tilted"}],
    "datasets": ["reviews"],
    "test_size": 60,
    "probes": ["label_order", "placement"],
    "base": {"shots": 1},
    "vary": {"label_format": ["letter"]},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return perform(read_study(STUDY), tmp_path_factory.mktemp("run") / "gated", Store())


def checked(run: Run, **content: Any) -> Checked:
    return check(run, read_gate(content))


def claims(done: Checked) -> set[tuple[str, str, str, float]]:
    return set(done.claims.select("rater", "metric", "where", "limit").iter_rows())


def test_without_a_gate_every_pair_is_held_to_the_margin_of_the_study(run: Run) -> None:
    done = check(run)
    assert {where for _, _, where, _ in claims(done)} == {"P1", "P3a", "P3b"}
    assert set(done.claims["limit"]) == {0.10}
    assert set(done.claims["level"]) == {""}
    assert done.word == "flips"
    words = dict(done.claims.filter(where="P1").select("rater", "word").iter_rows())
    assert words == {"sim/honest": "stable", "tilted": "flips"}


def test_the_last_rule_that_matches_decides(run: Run) -> None:
    done = checked(
        run,
        flips={"P1": 0.10, "P3*": 0.2},
        rules=[
            {"rater": "til*", "flips": {"P1": 0.99, "P3": 0.3}},
            {"rater": "sim/*", "dataset": "rev*", "accuracy": 0.3},
        ],
    )
    assert claims(done) == {
        ("sim/honest", "flips", "P1", 0.10),
        ("sim/honest", "flips", "P3a", 0.2),
        ("sim/honest", "flips", "P3b", 0.2),
        ("sim/honest", "accuracy", "base", 0.3),
        ("tilted", "flips", "P1", 0.99),
        ("tilted", "flips", "P3a", 0.2),
        ("tilted", "flips", "P3b", 0.2),
        ("tilted", "flips", "P3", 0.3),  # an aggregate only by its own name
    }


def test_levels_and_views_are_held_where_a_rule_says_so(run: Run) -> None:
    done = checked(run, level="label_format=*", view="*", faults=0.2)
    assert set(done.claims["level"]) == {"label_format=letter"}
    assert set(done.claims["where"]) == {"base", "reversed", "after", "split"}
    assert done.word == "stable"


def test_nothing_kept_and_nothing_broken_is_inconclusive(run: Run) -> None:
    assert checked(run, rater="sim/honest", flips={"P1": 0.02}).word == "inconclusive"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"flip": {"P1": 0.1}}, "no key named 'flip'; did you mean 'flips'"),
        ({"flips": {"P1": 10}}, "flips.P1: Input should be less than 1; got 10"),
        ({"flips": {"P4": 0.1}}, "no contrast matches 'P4'; there are: P1, P3a"),
        (
            {"rater": "gpt*", "faults": 0.1},
            "no rater matches 'gpt*'; there are: sim/honest, tilted",
        ),
        (
            {"dataset": "revews", "faults": 0.1},
            "no dataset matches 'revews'; did you mean 'reviews'",
        ),
        ({"level": "shots=*", "faults": 0.1}, "nothing is at the level 'shots=*'; there are: ''"),
        ({"view": "bse", "faults": 0.1}, "no view matches 'bse'; did you mean 'base'"),
        ({"rules": [{"rater": "*"}]}, "a rule asks for nothing"),
        ({}, "it asks for nothing"),
        ({"drift": {"excess": 0.1}}, "no key named 'drift.excess'"),
    ],
    ids=str,
)
def test_a_gate_that_would_guard_nothing_is_refused(
    run: Run, content: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(Problem) as raised:
        check(run, read_gate(content))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flips: {P1: 0.1}\nfaults: 0.1\nflips: {P2: 0.1}\n", "line 3: 'flips' stands twice"),
        ("rules:\n- {rater: a, faults: 0.1, rater: b}\n", "line 2: 'rater' stands twice"),
        ("flips: {P1: 0.1,\n  'P1': 0.9}\n", "line 2: 'P1' stands twice"),
        ("alpha: 2024-13-45\n", "is not valid YAML"),
        ("[" * 5000, "is not valid YAML"),
    ],
)
def test_a_gate_file_that_says_a_thing_twice_is_refused(
    write: Write, text: str, message: str
) -> None:
    with pytest.raises(Problem, match=r"gate\.yaml") as raised:
        read_gate(write("gate.yaml", text))
    assert message in str(raised.value)


def test_what_several_rules_share_may_be_named_once(write: Write) -> None:
    shared = "rules:\n- &a {rater: a, faults: 0.1}\n- {<<: *a, rater: b}\n- {<<: *a, faults: 0.2}\n"
    found = read_gate(write("gate.yaml", shared)).rules
    assert [(rule.rater, rule.faults) for rule in found] == [("a", 0.1), ("b", 0.1), ("a", 0.2)]


def test_a_pattern_leaves_out_what_cannot_be_measured_and_says_so(tmp_path: Path) -> None:
    bare = read_study(STUDY | {"models": "sim/honest", "base": {"shots": 0}, "vary": {}})
    run = perform(bare, tmp_path / "run", Store())
    done = checked(run, flips=0.10)
    assert set(done.claims["where"]) == {"P1"}
    assert any("P3a" in note and "not applicable" in note for note in done.notes)
    named = checked(run, flips={"P3a": 0.10})
    assert named.claims["word"].to_list() == ["inconclusive"]
    with pytest.raises(Problem, match="can measure nothing of what is asked"):
        checked(run, flips={"P3*": 0.10})


def test_drift_has_limits_of_its_own_and_usual_ones(run: Run) -> None:
    usual = check(run, read_gate({"faults": 0.2}), reference=run)
    drifts = usual.claims.filter("is_drift")
    assert set(drifts["where"]) == {"P1", "P3a", "P3b", "base"}
    assert set(drifts["limit"]) == {0.05}
    own = check(run, read_gate({"drift": {"mae": 0.3}}), reference=run)
    assert own.claims["metric"].unique().to_list() == ["mae"]
    assert own.word == "stable"


def test_other_data_under_the_same_name_is_not_paired(run: Run, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run.folder, tmp_path / "other"))
    about = run.environment | {"datasets": {"reviews": {"digest": "0" * 64}}}
    (other / "environment.json").write_text(json.dumps(about))
    with pytest.raises(Problem, match="'reviews' is not the same data"):
        check(run, reference=Run(other))


# What is written


def test_the_gate_of_the_docs_is_one() -> None:
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    gate = read_gate(yaml.safe_load(block))
    assert (len(gate.each), gate.drift.accuracy) == (4, 0.05)


def test_the_workflow_is_yaml_and_its_options_are_there(cli: Cli) -> None:
    workflow = (ROOT / "examples" / "flipmeter.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(workflow)["jobs"]["gate"]["steps"]
    lines = "\n".join(step.get("run", "") for step in steps).splitlines()
    commands = [line.split() for line in lines if line.strip().startswith("flipmeter ")]
    assert [command[1] for command in commands] == ["run", "check"]
    for _, verb, *words in commands:
        _, shown, _ = cli(verb, "--help")
        assert all(word in shown for word in words if word.startswith("--"))


def nasty() -> pl.DataFrame:
    decisions = group(*ranks(60, 30), rater='<b>&"\x07|@me')
    return hold_limits(decisions, [P1], {('<b>&"\x07|@me', "d", ""): [Limit("flips", "P1", 0.1)]})


def test_junit_is_valid_whatever_a_rater_is_called() -> None:
    suites = ET.fromstring(claims_junit(nasty(), "a & b"))
    (case,) = suites.iter("testcase")
    assert suites.attrib == {"tests": "1", "failures": "1", "errors": "0"}
    assert '<b>&"' in case.attrib["classname"]
    (failure,) = case
    assert (failure.tag, failure.attrib["type"]) == ("failure", "flips")


def test_a_summary_puts_what_is_wrong_first_and_calls_nobody(run: Run) -> None:
    text = claims_markdown(check(run).claims, "gated: flips", ["a note"])
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert "flips" in rows[2]
    assert "tilted" in rows[2]
    assert text.endswith("- a note\n")
    hostile = claims_markdown(nasty(), "x", [])
    assert "@" not in hostile
    assert "<b>" not in hostile


def test_the_verb_says_it_in_every_way(cli: Cli, write: Write, run: Run) -> None:
    gate = write("gate.yaml", "rater: sim/honest\nflips: {P1: 0.10}\nfaults: 0.10\n")
    files = ("--junit", "report.xml", "--markdown", "summary.md")
    code, out, _ = cli("check", str(run.folder), "--gate", str(gate), *files)
    assert (code, "gated: stable" in out) == (0, True)
    assert ET.parse("report.xml").getroot().attrib["tests"] == "2"
    assert Path("summary.md").read_text().startswith("### gated: stable")
    code, out, _ = cli("check", str(run.folder), "--json")
    assert code == 1
    assert json.loads(out)["word"] == "flips"
    gate.write_text("rater: sim/honest\nflips: {P1: 0.01}\n")
    code, out, _ = cli("check", str(run.folder), "--gate", str(gate))
    assert (code, "more items" in out) == (3, True)
    gate.write_text("flips: [")
    assert cli("check", str(run.folder), "--gate", str(gate))[0] == 2
    assert cli("check", str(run.folder), "--gate", "none.yaml")[0] == 2
    code, _, _ = cli("check", str(run.folder), "--against", str(run.folder))
    assert code == 1  # nothing got worse, and P1 of one rater is as bad as it was
