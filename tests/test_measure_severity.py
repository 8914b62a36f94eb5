"""Severity, slots and the worst case, against libraries, worked examples and naive twins."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from flipmeter.errors import Problem
from flipmeter.stats.flips import flip_rate
from on_arrays import chi_square, krippendorff_alpha, severity, slot_preference, worst_case

THREE = np.array([[int(x) for x in row] for row in ("12332145", "12332245", "13332144")]).T
few = settings(max_examples=25)  # every example draws its intervals
MATRICES = arrays(np.int64, (9, 3), elements=st.integers(0, 4))


def naive_alpha(table: np.ndarray, n_classes: int) -> float:
    """Krippendorff's formula, pair by pair, with the distance written out."""
    together = np.zeros((n_classes + 1, n_classes + 1))
    for row in table:
        read = [int(x) for x in row if x]
        for i, j in combinations(range(len(read)), 2):
            together[read[i], read[j]] += 1 / (len(read) - 1)
            together[read[j], read[i]] += 1 / (len(read) - 1)
    sizes, n = together.sum(axis=1), together.sum()

    def apart(c: int, k: int) -> float:
        low, high = min(c, k), max(c, k)
        return float((sizes[low : high + 1].sum() - (sizes[c] + sizes[k]) / 2) ** 2)

    pairs = [(c, k) for c in range(1, n_classes + 1) for k in range(1, n_classes + 1)]
    seen = sum(together[c, k] * apart(c, k) for c, k in pairs)
    expected = sum(sizes[c] * sizes[k] * apart(c, k) for c, k in pairs) / (n - 1)
    return float(1 - seen / expected) if expected else float("nan")


def test_worked_examples_of_agreement_come_out() -> None:
    assert krippendorff_alpha(THREE, 5) == pytest.approx(0.928279, abs=1e-6)
    assert severity(THREE[:, :2], 5)["qwk"].value == pytest.approx(0.960784, abs=1e-6)


@few
@given(MATRICES)
def test_alpha_is_krippendorffs_whatever_is_missing(table: np.ndarray) -> None:
    assume(((table > 0).sum(axis=1) > 1).any())
    expected = naive_alpha(table, 4)
    assert krippendorff_alpha(table, 4) == pytest.approx(expected, nan_ok=True)
    assert severity(table, 4)["alpha"].value == pytest.approx(expected, nan_ok=True)


@few
@given(arrays(np.int64, (12, 2), elements=st.integers(1, 4)))
def test_two_conditions_have_the_kappas_of_scikit_learn(pair: np.ndarray) -> None:
    assume(len(np.unique(pair)) > 1)
    found = severity(pair, 4)
    for name, weights in (("kappa", None), ("qwk", "quadratic")):
        theirs = cohen_kappa_score(pair[:, 0], pair[:, 1], labels=range(1, 5), weights=weights)
        assert found[name].value == pytest.approx(theirs)
    chance = 1 - sum(np.mean(pair[:, 0] == k) * np.mean(pair[:, 1] == k) for k in range(1, 5))
    flips = flip_rate(pair[:, 0], pair[:, 1]).value
    assert found["kappa"].value == pytest.approx(1 - flips / chance)
    assert found["disagreement"].value == pytest.approx(flips)


@few
@given(arrays(np.int64, (7, 4), elements=st.integers(1, 5)))
def test_many_conditions_are_the_mean_over_their_pairs(table: np.ndarray) -> None:
    found = severity(table, 5)
    pairs = [severity(table[:, list(two)], 5) for two in combinations(range(4), 2)]
    for name in ("distance", "disagreement"):
        mean = np.mean([pair[name].value for pair in pairs])
        assert found[name].value == pytest.approx(mean)


def test_disagreement_does_not_grow_with_the_number_of_conditions() -> None:
    table = np.random.default_rng(1).choice([1, 2, 3], (4000, 6), p=[0.9, 0.07, 0.03])
    two, six = (severity(table[:, :n], 3)["disagreement"].value for n in (2, 6))
    assert two == pytest.approx(six, abs=0.02)


def test_far_and_polar_count_what_their_names_say() -> None:
    found = severity([[1, 3], [2, 3], [2, 4], [4, 5], [3, 0]], 5)
    assert (found["far"].k, found["polar"].k) == (2, 1)
    assert (found["far"].n, found["far"].failed) == (4, 1)
    assert found["distance"].value == pytest.approx((2 + 1 + 2 + 1) / 4 / 4)


# --- slots ------------------------------------------------------------------------------------


def test_one_slot_for_everything_is_found_whatever_stands_there() -> None:
    gold = np.tile([1, 2, 3], 20)
    found = slot_preference(np.full(60, 1), np.full(60, 3), 3, gold=gold)
    assert found["slot:1"].value == 1
    assert found["entropy_deficit"].value == pytest.approx(np.log(3))
    assert found["slot_distance"].value == pytest.approx(2 / 3)
    assert found["slot_test"].value < 1e-15
    assert slot_preference(np.full(60, 1), np.full(60, 3), 3)["slot_test"].value < 1e-15
    assert found["recall_sd"].value == pytest.approx(np.std([1, 0, 0]))


def test_a_rater_that_keeps_to_classes_has_no_slot_preference() -> None:
    rng = np.random.default_rng(2)
    classes = rng.integers(1, 5, 90)
    found = slot_preference(classes, classes, 4)
    assert found["slot:1"].value == pytest.approx(found["slot:4"].value)
    assert found["slot_test"].value == 1
    assert found["slot_distance"].value == pytest.approx(0)
    right = slot_preference(classes, classes, 4, gold=classes)
    assert right["slot_test"].value == 1
    wrong = slot_preference(classes, classes, 4, gold=np.full(90, 2))
    assert wrong["slot_test"].value == 1, "a preferred class is no preferred slot"
    assert wrong["slot_distance"].value > 0.2
    assert right["recall_sd"].value == 0


def test_the_slot_test_on_two_slots_is_the_t_test_of_the_items() -> None:
    rng = np.random.default_rng(3)
    natural, turned = rng.choice([1, 2], (2, 70), p=[0.6, 0.4])
    each = np.mean([natural == 1, turned == 2], axis=0) - 0.5
    theirs = stats.ttest_1samp(each, 0).pvalue
    found = slot_preference(natural, turned, 2)
    assert found["slot_test"].value == pytest.approx(theirs)


@few
@given(st.lists(st.integers(0, 30), min_size=4, max_size=4))
def test_pearsons_test_is_scipys(counts: list[int]) -> None:
    assume(sum(counts))
    share = np.array([0.4, 0.3, 0.2, 0.1])
    theirs = stats.chisquare(counts, share * sum(counts))
    found = chi_square(counts, share)
    assert found == pytest.approx((theirs.statistic, 3, theirs.pvalue))


# --- the worst case ---------------------------------------------------------------------------


@few
@given(
    arrays(np.int64, (11, 3), elements=st.integers(0, 3)),
    arrays(np.int64, 11, elements=st.integers(1, 3)),
)
def test_the_worst_case_is_what_a_loop_finds(table: np.ndarray, gold: np.ndarray) -> None:
    found = worst_case(gold, table, 3)
    accuracies = [np.mean(view == gold) for view in table.T]
    items = list(zip(table, gold, strict=True))
    assert found["robust_accuracy"].value == pytest.approx(
        np.mean([all(x == truth for x in row) for row, truth in items])
    )
    assert found["worst_accuracy"].value == pytest.approx(min(accuracies))
    assert found["spread"].value == pytest.approx(max(accuracies) - min(accuracies))
    complete = [(row, truth) for row, truth in items if row.min() > 0]
    assume(complete)
    costs = [np.mean([abs(int(x) - truth) for x in row]) for row, truth in complete]
    apart = [
        np.mean([abs(int(x) - int(y)) for x, y in combinations(row, 2)]) for row, _ in complete
    ]
    assert found["cost"].value == pytest.approx(np.mean(costs))
    assert found["instability_cost"].value == pytest.approx(np.mean(apart))
    for name in ("worst_accuracy", "spread"):
        assert found[name].low <= found[name].value + 1e-9
        assert found[name].value <= found[name].high + 1e-9


@pytest.mark.parametrize("n_views", [2, 3, 5])
def test_the_bound_of_the_worst_view_pays_for_every_view_it_was_chosen_from(n_views: int) -> None:
    gold = np.array([1, 2, 3, 2] * 10)
    view = np.where(np.arange(40) % 4, gold, gold % 3 + 1)
    found = worst_case(gold, np.stack([view] * n_views, axis=1), 3)["worst_accuracy"]
    alone, chosen = (
        stats.binomtest(30, 40).proportion_ci(1 - alpha, "exact")
        for alpha in (0.05, 0.05 / n_views)
    )
    assert (found.low, found.high) == pytest.approx((alone.low, chosen.high))


def test_the_bound_of_the_spread_pays_for_every_pair_of_views() -> None:
    gold = np.array([1, 2, 3, 2] * 10)
    good, poor = gold, np.where(np.arange(40) % 4 < 2, gold, gold % 3 + 1)
    lows = [
        worst_case(gold, np.stack([good, *[poor] * n], axis=1), 3)["spread"].low for n in (1, 2, 4)
    ]
    assert lows[0] > lows[1] > lows[2] > 0


def test_a_users_costs_are_gold_by_given() -> None:
    costs = [[0, 10], [1, 0]]
    found = worst_case([1, 2], [[2, 1], [1, 2]], 2, costs=costs)
    assert found["cost"].value == pytest.approx((10 + 0 + 1 + 0) / 4)
    assert found["instability_cost"].value == pytest.approx(5.5)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: severity([[1, 2]], 1), "at least two classes"),
        (lambda: worst_case([0, 1], [[1, 2], [1, 1]], 2), "gold contains 0"),
        (lambda: worst_case([1], [[1, 2]], 2, costs=[[1]]), "2 x 2"),
        (lambda: chi_square([1, 2], [1, 0]), "above 0"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()
