"""Options and answers that change places: which place is preferred, read back where planted."""

from __future__ import annotations

import math
import runpy

import numpy as np
import polars as pl
import pytest
from scipy import stats

from conftest import ROOT
from flipmeter.stats.aspects import measure_aspects
from flipmeter.stats.formulas import length_of
from flipmeter.types import Contrast

BENCH = runpy.run_path(str(ROOT / "benchmarks" / "places_calibration.py"))
option_bias, pair_bias = BENCH["option_bias"], BENCH["pair_bias"]
rotated = BENCH["rotated"]


def test_shares_chi_square_and_v_by_hand() -> None:
    """Two questions, three rotations; the answers stand in places 1 1 1 and 1 2 3."""
    classes = [[1, 2, 3], [2, 2, 2]]
    places = [[1, 1, 1], [2, 1, 3]]
    found = option_bias(classes, places)
    assert [found[f"slot:{s}"].value for s in (1, 2, 3)] == pytest.approx([4 / 6, 1 / 6, 1 / 6])
    assert found["slot_excess:1"].value == pytest.approx(4 / 6 - 1 / 3)
    v = math.sqrt(stats.chisquare([4, 1, 1]).statistic / 6 / 2)
    assert found["cramers_v"].value == pytest.approx(v)


def test_recalls_by_place_and_their_population_sd() -> None:
    classes = [[1, 1], [2, 1], [2, 2], [1, 1]]
    places = [[1, 2], [2, 2], [2, 1], [1, 2]]
    gold, right = [1, 2, 2, 2], [[1, 2], [2, 1], [2, 1], [2, 1]]
    found = option_bias(classes, places, gold=gold, right=right)
    at_first, at_second = 2 / 4, 3 / 4
    assert found["recall:1"].value == pytest.approx(at_first)
    assert found["recall:2"].value == pytest.approx(at_second)
    assert found["recall_sd"].value == pytest.approx(np.std([at_first, at_second]))


def test_a_consistent_rater_has_even_shares_whatever_it_prefers() -> None:
    """One who always takes option 2 stands in every place alike; nothing is flagged."""
    places = np.array([[(1 - turn) % 4 + 1 for turn in range(4)]] * 40)
    found = option_bias(np.full((40, 4), 2), places)
    assert found["cramers_v"].value == pytest.approx(0)
    assert 0 <= found["cramers_v"].low <= found["cramers_v"].high < 0.1
    assert found["slot_test"].value == 1


def test_an_honest_but_noisy_rater_is_rarely_flagged() -> None:
    p = [option_bias(*rotated(40, 4, 0.0, seed)[:2])["slot_test"].value for seed in range(60)]
    assert np.mean(np.array(p) < 0.05) < 0.14


@pytest.mark.parametrize(("k", "tilt"), [(3, 0.0), (4, 0.8)])
def test_planted_preferences_for_a_place_are_read_back(k: int, tilt: float) -> None:
    """A small version of benchmarks/places_calibration.py."""
    truth = BENCH["option_truth"](k, tilt)
    marks = [BENCH["held"](BENCH["option_study"](k, tilt, seed), truth) for seed in range(50)]
    assert min(sum(mark[name] for mark in marks) for name in truth) >= 44


def test_clusters_count_once() -> None:
    classes, places, gold, right = rotated(30, 4, 0.8, 5)
    alone = option_bias(classes, places, gold=gold, right=right)
    copied = [np.concatenate([of, of, of]) for of in (classes, places, gold, right)]
    thrice = option_bias(
        *copied[:2], gold=copied[2], right=copied[3], clusters=np.tile(np.arange(30), 3)
    )
    for name in ("cramers_v", "recall_sd", "slot_excess:1"):
        assert thrice[name].value == pytest.approx(alone[name].value)
        assert (thrice[name].low, thrice[name].high) == pytest.approx(
            (alone[name].low, alone[name].high)
        )
    assert thrice["slot_test"].value == pytest.approx(alone["slot_test"].value, abs=0.02)


def test_questions_may_differ_in_their_number_of_options() -> None:
    views = [f"v{turn}" for turn in range(4)]
    rows = []
    for k in range(40):
        n = 3 + k % 2
        for turn, view in enumerate(views):
            order = [(place + turn) % n for place in range(n)]
            chosen = order[0] if k % 4 else k % n  # mostly whatever stands first
            row = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "view": view, "repeat": 0}
            row |= {"item": str(k), "rank": chosen + 1, "gold": 1 + k % n, "n_classes": 4}
            row |= {"nominal": True, "place": order.index(chosen) + 1, "n_places": n}
            rows.append(row | {"gold_place": order.index(k % n) + 1})
    contrast = Contrast("P7", tuple(views), "options rotated", "option_order")
    table = measure_aspects(pl.DataFrame(rows), [contrast], ["slots"])["slots"]
    value = dict(table.select("metric", "value").iter_rows())
    assert value["slot:1"] > 0.7
    assert value["slot_excess:4"] < 0
    assert value["slot_test"] < 0.01
    excess = np.array([value[f"slot_excess:{place}"] for place in (1, 2, 3, 4)])
    dealt = [value[f"slot:{place}"] for place in (1, 2, 3, 4)] - excess
    chi_square = 160 * (excess**2 / dealt).sum()
    assert table.filter(metric="slot_test")["statistic"][0] == pytest.approx(chi_square)
    alone = pl.DataFrame(rows).filter(item="1")  # one question is measured too
    assert len(measure_aspects(alone, [contrast], ["slots"])["slots"])


def test_an_option_that_never_moves_says_nothing_about_places() -> None:
    """Two orders exchange options 1 and 2 only: whoever always takes 3 prefers no place."""
    classes, places = [[3, 3], [3, 3], [1, 1]], [[3, 3], [3, 3], [1, 2]]
    found = option_bias(classes, places)
    assert [found[f"slot_excess:{s}"].value for s in (1, 2, 3)] == pytest.approx([0, 0, 0])
    assert found["slot:3"].value == pytest.approx(2 / 3)


def test_recalls_need_the_place_of_the_right_option_in_every_order() -> None:
    classes, places = [[1, 1], [1, 2], [2, 2]], [[1, 2], [1, 1], [2, 1]]
    gold, right = [1, 1, 1], [[1, 2], [1, 2], [1, 0]]
    found = option_bias(classes, places, gold=gold, right=right)
    assert [found[f"recall:{s}"].value for s in (1, 2)] == [1, 0.5]
    assert found["recall:1"].n == 2


def test_one_more_item_moves_the_sd_of_recalls_by_half_of_its_share() -> None:
    """The SD of numbers from 0 to 1 is at most 1/2: all that a perfect rater's bound rests on."""
    right = np.tile([[1, 2]], (20, 1))
    found = option_bias(np.ones((20, 2)), right, gold=np.ones(20), right=right)["recall_sd"]
    alone = length_of(np.zeros(2), np.zeros((20, 2)), reach=0.5 / 20)
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(alone.high)


@pytest.mark.parametrize("factor", [0.1, 7.0])
def test_a_length_in_other_units_has_its_interval_in_these_units(factor: float) -> None:
    adds = np.random.default_rng(4).normal(0, 1, (30, 3)) / 30
    adds -= adds.mean(axis=0)
    away = np.array([0.3, -0.2, 0.9])
    one, other = (length_of(c * away, c * adds, reach=c * 0.02) for c in (1, factor))
    assert (other.value, other.low, other.high) == pytest.approx(
        (factor * one.value, factor * one.low, factor * one.high)
    )
    assert one.low < one.value < one.high


def test_a_length_that_nothing_moves_is_known() -> None:
    found = length_of(np.array([3.0, 4.0]), np.zeros((9, 2)), reach=0.0)
    assert (found.value, found.low, found.high, found.n) == (5, 5, 5, 9)


def test_a_length_of_0_has_an_interval_from_0() -> None:
    rng = np.random.default_rng(3)
    adds = rng.normal(0, 1, (50, 3)) / 50
    adds -= adds.mean(axis=0)
    found = length_of(np.zeros(3), adds, reach=0.01)
    assert found.low == 0
    assert 0 < found.high < 1


# --- judges -----------------------------------------------------------------------------------


def test_a_judge_by_hand() -> None:
    a, b = [1, 1, 2, 3, 0], [3, 1, 2, 3, 1]
    places = [[1, 1], [1, 2], [0, 0], [2, 1], [0, 2]]
    found = pair_bias(a, b, places, gold=[1, 1, 1, 1, 1])
    assert found["first_share"].value == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found["consistency"].value == pytest.approx(3 / 4)
    assert found["ties:1"].value == pytest.approx(1 / 4)
    assert found["ties:2"].value == pytest.approx(1 / 5)
    assert found["accuracy:1"].value == pytest.approx(2 / 5)
    assert found["accuracy:2"].value == pytest.approx(2 / 5)
    assert found["accuracy_both"].value == pytest.approx(1 / 5)


@pytest.mark.parametrize("tilt", [-0.8, 0.0, 1.5])
def test_planted_preferences_of_judges_are_read_back(tilt: float) -> None:
    truth = BENCH["pair_truth"](tilt)
    studies = [BENCH["pair_study"](tilt, 1000 + seed) for seed in range(300)]
    marks = [BENCH["held"](found, truth) for found in studies]
    held = {name: sum(mark[name] for mark in marks) for name in truth}
    flagged = sum(found["first_test"].value < 0.05 for found in studies)
    assert min(held.values()) >= 0.93 * 300, held
    assert flagged <= 24 if tilt == 0 else flagged >= 180
