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
import numpy.typing as npt
import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from changed_runs import changed
from flipmeter.ask.store import Store
from flipmeter.choose.gate import Checked, check, read_gate
from flipmeter.choose.tables import claims_junit, claims_markdown
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.stats.judge import verdicts
from flipmeter.stats.limits import Limit, hold_limits, hold_mean, hold_share
from flipmeter.study.file import read_study
from flipmeter.types import Contrast
from hand_made import group

Write = Callable[[str, str], Path]
Cli = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[1]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")


# One number


def once(k: int, n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Hits and trials of n clusters with one trial each."""
    return np.repeat([1.0, 0.0], [k, n - k]), np.ones(n)


@given(st.integers(0, 80), st.integers(0, 80), st.floats(0.01, 0.99))
def test_the_word_of_a_share_is_where_its_bounds_are(k: int, rest: int, limit: float) -> None:
    n = k + rest + 1
    held = hold_share(*once(k, n), limit)
    low, high = proportion_confint(k, n, 0.1, method="beta")
    assert held.low == pytest.approx(low)
    assert held.high == pytest.approx(high)
    word = "met" if high < limit else "missed" if low > limit else "inconclusive"
    assert held.word == word or limit == pytest.approx(low) or limit == pytest.approx(high)


@pytest.mark.parametrize("chances", [(0.6, 0.3, 0.1, 0, 0), (0.97, 0, 0, 0, 0.03)], ids=str)
def test_a_mean_at_its_limit_is_seldom_called_met_or_missed(chances: tuple[float, ...]) -> None:
    draws = np.random.default_rng(7).choice(5, size=(1500, 120), p=chances).astype(np.float64)
    mean = float(np.arange(5) @ chances)
    words = [hold_mean(row, (0, 4), mean).word for row in draws]
    assert np.mean([word == "met" for word in words]) < 0.06
    assert np.mean([word == "missed" for word in words]) < 0.06


def test_equal_numbers_are_not_certainty() -> None:
    zeros, fours = np.zeros(20), np.full(20, 4.0)
    assert hold_mean(zeros, (0, 4), 0.3).word == "inconclusive"
    assert hold_mean(np.zeros(100), (0, 4), 0.3).word == "met"
    assert hold_mean(fours, (0, 4), 0.3).word == "missed"


def test_what_would_settle_a_claim_settles_it() -> None:
    held = hold_share(*once(6, 100), 0.10)
    assert held.word == "inconclusive"
    assert held.n_more is not None
    n = 100 + held.n_more
    rng = np.random.default_rng(1)
    done = [hold_share(*once(int(k), n), 0.10).word == "met" for k in rng.binomial(n, 0.06, 400)]
    assert np.mean(done) > 0.75
    assert hold_share(*once(10, 100), 0.10).n_more is None  # exactly at the limit


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


@pytest.mark.parametrize(
    ("differ", "word"), [(8, "met"), (16, "inconclusive"), (40, "missed"), (None, "inconclusive")]
)
def test_noise_may_be_limited(differ: int | None, word: str) -> None:
    base, turned = ranks(100, 0)
    decisions = group(base, turned)
    if differ is not None:
        again = group([3] * differ + base[differ:], turned).with_columns(repeat=pl.lit(1, pl.Int64))
        decisions = pl.concat([decisions.with_columns(repeat=pl.lit(0, pl.Int64)), again])
    (row,) = held(decisions, Limit("noise", "P1", 0.10))
    assert row["word"] == word
    assert row["value"] == (None if differ is None else pytest.approx(differ / 200))
    assert (differ is None) == ("repeats: 2" in row["note"])


def test_a_reproducible_rater_keeps_every_limit_on_noise() -> None:
    limit = Limit("noise", "P1", 0.01)
    (row,) = held(group(*ranks(10, 3)), limit, reproducible=["r"])
    assert (row["word"], row["value"]) == ("met", 0.0)


def test_a_rater_that_mostly_fails_agrees_with_itself_and_is_not_stable() -> None:
    (row,) = held(group(*ranks(100, 0, failed=30)), Limit("flips", "P1", 0.10))
    assert row["word"] == "unreadable"
    assert "30 % of pairs are unreadable" in row["note"]


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
    assert (row["word"], row["note"]) == ("inconclusive", "no labels")


def test_the_gate_has_the_words_of_the_verdicts() -> None:
    decisions = group(*ranks(200, 26))
    row = verdicts(decisions, [P1], margin=0.09).row(0, named=True)
    (claim,) = held(decisions, Limit("flips", "P1", 0.09))
    assert (claim["word"], claim["value"]) == (row["word"], row["value"])
    assert claim["note"] == row["reason"]


def test_the_table_of_a_gate_tells_a_reason_once() -> None:
    decisions = group(*ranks(100, 8))
    claims = hold_limits(decisions, [P1], {("r", "d", ""): [Limit("flips", "P1", 0.1)]})
    assert "size not settled" in claims["findings"][0]
    assert claims_markdown(claims, "gate", []).count("size not settled") == 1


def test_seeds_of_an_item_count_once_in_every_number() -> None:
    frames = [group(*ranks(60, 6), gold=[2] * 60, seed=seed) for seed in range(5)]
    limits = [Limit("flips", "P1", 0.2), Limit("accuracy", "base", 0.9), Limit("mae", "base", 0.1)]
    one, many = held(frames[0], *limits), held(pl.concat(frames), *limits)
    for alone, pooled in zip(one, many, strict=True):
        assert (pooled["n"], pooled["value"]) == (alone["n"], pytest.approx(alone["value"]))
        assert pooled["high"] - pooled["low"] >= 0.99 * (alone["high"] - alone["low"])


def test_drift_is_paired_by_item() -> None:
    before = group(*ranks(100, 10), gold=[2] * 100)
    now = group(*ranks(100, 30), gold=[2] * 50 + [3] * 50).sample(fraction=1, shuffle=True, seed=1)
    flips = Limit("flips", "P1", 0.05, is_drift=True)
    accuracy = Limit("accuracy", "base", 0.05, is_drift=True)
    (row, score) = held(now, flips, accuracy, reference=before)
    assert row["value"] == pytest.approx(0.2)  # the ten of before flip again
    assert (row["word"], score["word"]) == ("missed", "missed")
    (same,) = held(before, flips, reference=before)
    assert (same["value"], same["word"]) == (0, "met")


def test_copies_of_an_item_do_not_narrow_a_drift() -> None:
    flips = Limit("flips", "P1", 0.05, is_drift=True)
    before, now = group(*ranks(40, 4)), group(*ranks(40, 6))
    (once,) = held(now, flips, reference=before)
    copies = [
        pl.concat(
            frame.with_columns(item=pl.format("{}/{}", "item", pl.lit(k)), cluster=pl.col("item"))
            for k in range(3)
        )
        for frame in (now, before)
    ]
    (thrice,) = held(copies[0], flips, reference=copies[1])
    assert thrice["n"] == once["n"] == 40
    assert (thrice["low"], thrice["high"]) == pytest.approx((once["low"], once["high"]))


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
        ({"flips": {"P4": 0.1}}, "no contrast matches 'P4'; known: P1, P3a"),
        (
            {"rater": "gpt*", "faults": 0.1},
            "no rater matches 'gpt*'; known: sim/honest, tilted",
        ),
        (
            {"dataset": "revews", "faults": 0.1},
            "no dataset matches 'revews'; did you mean 'reviews'",
        ),
        ({"level": "shots=*", "faults": 0.1}, "no condition has the level 'shots=*'; known: ''"),
        ({"view": "bse", "faults": 0.1}, "no view matches 'bse'; did you mean 'base'"),
        ({"rules": [{"rater": "*"}]}, "a rule has no limits"),
        ({}, "it has no limits"),
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
        ("flips: {P1: 0.1}\nfaults: 0.1\nflips: {P2: 0.1}\n", "line 3: 'flips' appears twice"),
        ("rules:\n- {rater: a, faults: 0.1, rater: b}\n", "line 2: 'rater' appears twice"),
        ("flips: {P1: 0.1,\n  'P1': 0.9}\n", "line 2: 'P1' appears twice"),
        ("alpha: 2024-13-45\n", "is not valid YAML"),
        ("[" * 5000, "nested more than"),
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
    with pytest.raises(Problem, match="measures none of these contrasts"):
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
    about = run.environment["datasets"]["reviews"]
    reference = changed(other, {"datasets": {"reviews": {**about, "digest": "0" * 64}}})
    with pytest.raises(Problem, match="'reviews' differs between"):
        check(run, reference=reference)


# What is written


def test_the_gate_of_the_docs_is_one() -> None:
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
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
    assert (code, "items would settle it" in out) == (3, True)
    gate.write_text("flips: [")
    assert cli("check", str(run.folder), "--gate", str(gate))[0] == 2
    assert cli("check", str(run.folder), "--gate", "none.yaml")[0] == 2
    code, _, _ = cli("check", str(run.folder), "--against", str(run.folder))
    assert code == 1  # nothing got worse, and P1 of one rater is as bad as it was


def test_the_items_that_settle_a_mean_do_not_depend_on_its_unit() -> None:
    values = np.repeat([0.0, 1.0, 2.0], [30, 8, 2])
    whole, tenths = hold_mean(values, (0, 4), 0.45), hold_mean(values / 10, (0, 0.4), 0.045)
    assert whole.word == "inconclusive"
    assert whole.n_more is not None
    assert tenths.n_more == whole.n_more


def test_a_mean_distance_may_be_as_long_as_the_scale() -> None:
    ranks = [5] * 4 + [1] * 36
    (row,) = held(group(ranks, gold=[1] * 40), Limit("mae", "base", 0.5))
    away = np.array(ranks, dtype=float) - 1
    assert (row["low"], row["high"]) == pytest.approx(
        (hold_mean(away, (0, 4), 0.5).low, hold_mean(away, (0, 4), 0.5).high)
    )
