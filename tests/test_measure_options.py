"""Options and answers that change places: which place is preferred, read back where planted."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

from flipmeter.measure import measure_aspects, option_bias, pair_bias
from flipmeter.measure.statistics.lengths import length_of
from flipmeter.types import Contrast

Ints = npt.NDArray[np.int64]


def rotated(n: int, k: int, tilt: float, seed: int, know: float = 2.0) -> tuple[Ints, ...]:
    """Answers to questions with k options in every rotation, with a liking for the first place."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(0, k, n)
    worth = rng.normal(0, 1, (n, k))
    worth[np.arange(n), gold] += know
    place = (np.arange(k)[None] - np.arange(k)[:, None]) % k
    odds = np.exp(worth[:, None, :] + tilt * (place == 0)[None])
    chance = odds / odds.sum(axis=-1, keepdims=True)
    chosen = (chance.cumsum(axis=-1) > rng.random((n, k, 1))).argmax(axis=-1)
    return chosen + 1, place[np.arange(k)[None], chosen] + 1, gold + 1, place[:, gold].T + 1


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
    """Each of 50 studies must hold the truth, taken from 100,000 questions, in its interval."""
    classes, places, gold, right = rotated(100_000, k, tilt, 1)
    numbers = range(1, k + 1)
    shares = np.array([(places == s).mean() for s in numbers])
    truth = {
        "cramers_v": math.sqrt((k * (shares - 1 / k) ** 2).sum() / (k - 1)),
        "slot_excess:1": shares[0] - 1 / k,
        "recall_sd": np.std([(classes == gold[:, None])[right == s].mean() for s in numbers]),
        "recall:1": (classes == gold[:, None])[right == 1].mean(),
    }
    held = dict.fromkeys(truth, 0)
    for seed in range(50):
        classes, places, gold, right = rotated(60, k, tilt, 100 + seed)
        found = option_bias(classes, places, gold=gold, right=right)
        for name, value in truth.items():
            held[name] += found[name].low - 1e-3 <= value <= found[name].high
    assert min(held.values()) >= 44, held


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
    assert table.filter(metric="slot_test")["statistic"][0] > 50


def test_a_length_of_0_has_an_interval_from_0() -> None:
    rng = np.random.default_rng(3)
    adds = rng.normal(0, 1, (50, 3)) / 50
    adds -= adds.mean(axis=0)
    found = length_of(np.zeros(3), adds, reach=0.01)
    assert found.low == 0
    assert 0 < found.high < 1


# --- judges -----------------------------------------------------------------------------------


def judged(n: int, tilt: float, seed: int, tie: float = -1.0) -> tuple[Ints, Ints, Ints, Ints]:
    """Verdicts (1: a, 2: tie, 3: b) in both orders with a liking for what is shown first."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(0, 1.5, n)
    sides = np.array([1.0, -1.0])
    odds = np.stack(
        [
            gap[:, None] / 2 + sides * tilt / 2,
            np.full((n, 2), tie),
            -gap[:, None] / 2 - sides * tilt / 2,
        ],
        axis=-1,
    )
    chance = np.exp(odds) / np.exp(odds).sum(axis=-1, keepdims=True)
    verdict = (chance.cumsum(axis=-1) > rng.random((n, 2, 1))).argmax(axis=-1) + 1
    first = np.array([1, 3])
    places = np.where(verdict == 2, 0, np.where(verdict == first, 1, 2))
    return verdict[:, 0], verdict[:, 1], places, np.where(gap > 0, 1, 3)


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
    a, b, places, gold = judged(200_000, tilt, 1)
    decided = (places > 0).sum(axis=1)
    shares = ((places == 1).sum(axis=1) / np.maximum(decided, 1))[decided > 0]
    truth = {
        "first_share": shares.mean(),
        "ties:1": (places[:, 0] == 0).mean(),
        "accuracy:1": (a == gold).mean(),
        "accuracy_both": ((a == gold) & (b == gold)).mean(),
        "consistency": (a == b).mean(),
    }
    held, flagged = dict.fromkeys(truth, 0), 0
    for seed in range(300):
        a, b, places, gold = judged(50, tilt, 1000 + seed)
        found = pair_bias(a, b, places, gold=gold)
        flagged += found["first_test"].value < 0.05
        for name, value in truth.items():
            held[name] += found[name].low <= value <= found[name].high
    assert min(held.values()) >= 0.93 * 300, held
    assert flagged <= 24 if tilt == 0 else flagged >= 180
