"""Rates with every class at its frequency in production, beside those of the test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import flipmeter as fm
from flipmeter.data.load import load
from flipmeter.data.sampling import merge
from flipmeter.errors import Problem
from flipmeter.stats.blocks import Strata
from flipmeter.stats.bounds import weighted_mean
from flipmeter.stats.conclude import verdict
from report_runs import simulated

NAMES = ("very negative", "negative", "neutral", "positive", "very positive")
PRODUCTION = dict(zip(NAMES, (80, 10, 5, 4, 1), strict=True))


def pairs(flips: dict[int, int], each: int = 40) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Rows of so many items of each class, of which some flip."""
    gold = [c for c in flips for _ in range(each)]
    answers = [[c, c % 5 + 1 if i < k else c] for c, k in flips.items() for i in range(each)]
    return np.array(answers), gold


def test_a_weighted_rate_is_the_weighted_mean_of_the_classes() -> None:
    answers, gold = pairs({1: 4, 2: 20})
    found = verdict(answers, reproducible=True, gold=gold, weights=[9, 1])
    assert found.value == pytest.approx(0.3)
    assert found.weighted == pytest.approx(0.9 * 0.1 + 0.1 * 0.5)
    assert found.weighted_low is not None
    assert found.weighted_high is not None
    assert found.weighted_low < 0.14 < found.weighted_high
    same = verdict(answers, reproducible=True, gold=gold, weights=[1, 1])
    assert same.weighted == pytest.approx(0.3)


def test_the_word_is_that_of_the_test_set_and_a_finding_says_where_production_differs() -> None:
    rare, gold = pairs({1: 4, 2: 0, 3: 0, 4: 0, 5: 0})
    found = verdict(rare, reproducible=True, gold=gold, weights=[0.9, 0.04, 0.03, 0.02, 0.01])
    assert (found.word, found.has("not settled for production")) == ("stable", True)
    often, gold = pairs({1: 0, 2: 30, 3: 30, 4: 0, 5: 0})
    found = verdict(often, reproducible=True, gold=gold, weights=[0.99, 0.01, 0, 0, 0])
    assert (found.word, found.has("fewer flips in production")) == ("flips", True)
    (told,) = (one.text for one in found.findings if one.name == "fewer flips in production")
    assert told.startswith("weighted to production, 0.8 % of pairs differ, at most")
    without = verdict(often, reproducible=True)
    assert (without.word, without.weighted) == ("flips", None)


def test_production_has_fewer_flips_only_where_what_is_weighted_flips() -> None:
    """Class shares decide here, by repeats that differ as often as views: they have no weights."""
    first = [(1, 1), (1, 2), (2, 1), (1, 2), (2, 2), (1, 1), (2, 2), (1, 1), (2, 2), (1, 2), (1, 1)]
    again = [(2, 1), (1, 1), (2, 2), (2, 2), (1, 2), (1, 1), (2, 2), (1, 1), (2, 2), (1, 2), (1, 1)]
    gold = [1, 2] * 110
    found = verdict(first * 20, repeats=again * 20, gold=gold, weights=[0.9, 0.1])
    assert found.word == "flips"
    assert found.shift == pytest.approx(3 / 22)
    assert found.excess is not None
    assert found.weighted_excess is not None
    assert max(found.excess, found.weighted_excess) < 0.1
    assert not found.has("fewer flips in production")


def test_seeds_and_copies_add_nothing() -> None:
    answers, gold = pairs({1: 4, 2: 20})
    once = verdict(answers, reproducible=True, gold=gold, weights=[9, 1])
    ids = np.tile(np.arange(len(gold)), 3)
    copies = verdict(
        np.tile(answers, (3, 1)),
        clusters=ids,
        reproducible=True,
        gold=np.tile(gold, 3),
        weights=[9, 1],
    )
    for name in ("weighted", "weighted_low", "weighted_high", "weighted_upper"):
        assert getattr(copies, name) == pytest.approx(getattr(once, name))


def test_a_class_of_production_that_was_not_read_is_told() -> None:
    answers, gold = pairs({1: 4, 2: 20})
    found = verdict(answers, reproducible=True, gold=gold, weights=[0.5, 0.2, 0.3])
    assert (found.weighted, found.has("not weighted")) == (None, True)
    assert verdict(answers, gold=gold, weights=[0.5, 0.5, 0]).weighted is not None


@pytest.mark.parametrize("weights", [(0.9, 0.08, 0.02), (0.6, 0.3, 0.1), (1, 1, 1)])
@pytest.mark.parametrize("rates", [(0.11, 0.0, 0.0), (0.3, 0.02, 0.02), (0.9, 0.7, 0.5)])
def test_bounds_of_a_weighted_share_hold(
    weights: tuple[float, ...], rates: tuple[float, ...]
) -> None:
    rng = np.random.default_rng(7)
    share = np.array(weights) / sum(weights)
    gold = np.repeat([1, 2, 3], 25)
    true = float((share * rates).sum())
    strata, n = Strata(gold, share), len(gold)
    misses = np.zeros(3)
    for _ in range(400):
        x = (rng.random(n) < np.array(rates)[gold - 1]).astype(np.float64)
        found = weighted_mean(x, np.ones(n, dtype=bool), np.arange(n), strata, 0.05)
        assert found is not None
        misses += found.upper < true, found.lower > true, not found.low <= true <= found.high
    assert (misses / 400 <= 0.05 + 3 * 0.011).all()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"gold": None, "weights": [1, 1]}, "need the class of every row"),
        ({"gold": [1] * 80, "weights": [-1, 2]}, "finite number from 0"),
        ({"gold": [1] * 80, "weights": [float("nan"), 2]}, "finite number from 0"),
        ({"gold": [1] * 80, "weights": [0, 0]}, "must not all be 0"),
        ({"gold": [1] * 79, "weights": [1, 1]}, "one class from 1 to 2"),
        ({"gold": [3] * 80, "weights": [1, 1]}, "one class from 1 to 2"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(weights: dict[str, Any], says: str) -> None:
    answers, _ = pairs({1: 4, 2: 20})
    with pytest.raises(Problem, match=says):
        verdict(answers, **weights)


# In a study


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"negative": -0.1}, "'negative' has -0.1; a weight must be finite and 0 or more"),
        ({"negative": float("inf")}, "'negative' has inf"),
        ({"negative": "many"}, "'negative' has 'many'; a weight must be"),
        ({"negative": True}, "'negative' has True"),
        ({"negativ": 1}, "no class named 'negativ'; did you mean 'negative'"),
        (dict.fromkeys(NAMES, 0), "they add up to 0"),
        (None, "is not a mapping"),
    ],
)
def test_bad_weights_of_a_study_are_clear_errors(change: dict[str, Any] | None, says: str) -> None:
    weights: Any = ["low", 1] if change is None else PRODUCTION | change
    with pytest.raises(Problem, match=says):
        load({"catalog": "reviews", "weights": weights})


def test_a_class_without_a_weight_is_an_error() -> None:
    with pytest.raises(Problem, match="no weight for 'very positive'; write 0"):
        load({"catalog": "reviews", "weights": dict(list(PRODUCTION.items())[:4])})


def test_merged_classes_add_their_weights() -> None:
    dataset = load({"catalog": "reviews", "weights": PRODUCTION})
    assert sum(dataset.weights) == pytest.approx(1)
    assert merge(dataset, 3).weights == pytest.approx((0.9, 0.05, 0.05))
    assert merge(dataset, 2).weights == pytest.approx((90 / 95, 5 / 95))
    middle = load({"catalog": "reviews", "weights": dict.fromkeys(NAMES, 0) | {"neutral": 1}})
    with pytest.raises(Problem, match="weight 0"):
        merge(middle, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fm.Run:
    spec = {"catalog": "reviews", "weights": PRODUCTION}
    return fm.Run.of(
        simulated(
            tmp_path_factory.mktemp("weights") / "run",
            models=["sim/first-slot?strength=3"],
            datasets=[spec],
            probes=["label_order"],
            test_size=50,
        )
    )


def test_weighted_rates_stand_beside_the_others(run: fm.Run) -> None:
    (row,) = run.verdicts.to_dicts()
    by_metric = {
        (one["metric"], one["view"]): one
        for one in run.estimates.filter(pl.col("policy") == "complete").to_dicts()
    }
    rate = by_metric["weighted:P1", ""]
    assert rate["value"] == pytest.approx(row["weighted"])
    assert (rate["low"], rate["high"]) == pytest.approx((row["weighted_low"], row["weighted_high"]))
    decisions = run.decisions.filter(view="base", repeat=0)
    recalls = decisions.group_by("gold").agg((pl.col("rank") == pl.col("gold")).mean()).sort("gold")
    share = np.array(list(PRODUCTION.values())) / 100
    accuracy = by_metric["weighted:accuracy", "base"]["value"]
    assert accuracy == pytest.approx(float((recalls["rank"].to_numpy() * share).sum()))


def test_every_report_has_the_weighted_rate(run: fm.Run) -> None:
    (row,) = run.verdicts.to_dicts()
    shown = f"{100 * row['weighted']:.1f} %"
    assert shown in str(run)
    for name in ("r.md", "r.html"):
        assert shown in run.report(run.folder / name).read_text(encoding="utf-8")


def test_a_run_without_weights_has_no_such_rows(tmp_path: Path) -> None:
    run = fm.Run.of(simulated(tmp_path / "run", test_size=10, probes=["label_order"]))
    assert not run.estimates["metric"].str.starts_with("weighted").any()
    assert "in production" not in str(run)
    assert run.verdicts["weighted"].null_count() == len(run.verdicts)
