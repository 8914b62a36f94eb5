"""Performance against scikit-learn and scipy, and what a failure does to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, mean_absolute_error

from flipmeter.errors import Problem
from flipmeter.stats.formulas import wilson
from flipmeter.stats.groups import Estimates, Groups, one_group
from flipmeter.stats.scores import moments, moved_by_one, one_more, score_estimates, scores
from on_arrays import performance

patient = settings(deadline=None)


@st.composite
def rated(draw: st.DrawFn, lowest: int = 0) -> tuple[list[int], list[int], int]:
    """Draw gold, predicted and the number of classes."""
    n_classes = draw(st.integers(2, 6))
    pair = st.tuples(st.integers(1, n_classes), st.integers(lowest, n_classes))
    gold, predicted = zip(*draw(st.lists(pair, min_size=1, max_size=60)), strict=True)
    return list(gold), list(predicted), n_classes


@patient
@given(rated())
def test_strict_scores_agree_with_scikit_learn(case: tuple[list[int], list[int], int]) -> None:
    gold, predicted, n_classes = case
    found, labels = performance(gold, predicted, n_classes, "strict"), range(1, n_classes + 1)
    options: dict[str, Any] = {"average": "macro", "zero_division": 0}
    assert found.accuracy == pytest.approx(accuracy_score(gold, predicted))
    assert found.macro_f1 == pytest.approx(f1_score(gold, predicted, labels=labels, **options))
    present = f1_score(gold, predicted, labels=sorted(set(gold)), **options)
    assert found.macro_f1_present == pytest.approx(present)
    assert found.parse_failure == pytest.approx(predicted.count(0) / len(predicted))


@patient
@given(rated(lowest=1))
def test_distances_and_correlations_agree_with_the_libraries(
    case: tuple[list[int], list[int], int],
) -> None:
    gold, predicted, n_classes = case
    found = performance(gold, predicted, n_classes)
    assert found.mae == pytest.approx(mean_absolute_error(gold, predicted))
    assert found.mae_normalised == pytest.approx(found.mae / (n_classes - 1))
    if len(set(gold)) > 1 and len(set(predicted)) > 1:
        assert found.spearman == pytest.approx(stats.spearmanr(gold, predicted).statistic)
        assert found.kendall_tau_b == pytest.approx(stats.kendalltau(gold, predicted).statistic)
    else:
        assert math.isnan(found.spearman)
        assert math.isnan(found.kendall_tau_b)
    if len({*gold, *predicted}) > 1:
        assert found.qwk == pytest.approx(
            cohen_kappa_score(gold, predicted, labels=range(1, n_classes + 1), weights="quadratic")
        )
    else:
        assert math.isnan(found.qwk)


@patient
@given(rated())
def test_complete_scores_are_those_of_what_was_read(
    case: tuple[list[int], list[int], int],
) -> None:
    gold, predicted, n_classes = case
    read = [(g, p) for g, p in zip(gold, predicted, strict=True) if p]
    found = performance(gold, predicted, n_classes)
    assert found.n == len(read) == sum(found.support)
    if read:
        alone = performance([g for g, _ in read], [p for _, p in read], n_classes)
        assert found.accuracy == alone.accuracy
        assert found.macro_f1 == alone.macro_f1
        assert found.mae == alone.mae


def test_a_failure_is_left_out_or_wrong() -> None:
    gold, predicted = [1, 2, 3, 3, 2], [1, 2, 3, 0, 0]
    complete, strict = performance(gold, predicted, 3), performance(gold, predicted, 3, "strict")
    assert (complete.accuracy, complete.n, complete.support) == (1.0, 3, (1, 1, 1))
    assert (strict.accuracy, strict.n, strict.support) == (0.6, 5, (1, 2, 2))
    assert complete.parse_failure == strict.parse_failure == 0.4
    assert strict.mae == complete.mae == 0


def test_macro_f1_runs_over_the_whole_scale() -> None:
    found = performance([1, 1, 2], [1, 1, 1], 5)
    assert found.macro_f1 == pytest.approx(0.16)
    assert found.macro_f1_present == pytest.approx(0.40)


def test_a_constant_answer_has_no_rank_correlation_but_a_kappa() -> None:
    found = performance([1, 2, 3], [2, 2, 2], 3)
    assert math.isnan(found.spearman)
    assert found.qwk == 0


def test_qwk_of_the_worked_example() -> None:
    found = performance([1, 2, 3, 3, 2, 1, 4, 5], [1, 2, 3, 3, 2, 2, 4, 5], 5)
    assert found.qwk == pytest.approx(0.960784, abs=1e-6)


def test_a_rater_that_never_answers_has_no_accuracy() -> None:
    complete, strict = performance([1, 2], [0, 0], 2), performance([1, 2], [0, 0], 2, "strict")
    assert math.isnan(complete.accuracy)
    assert math.isnan(complete.macro_f1)
    assert math.isnan(complete.mae)
    assert complete.parse_failure == 1
    assert strict.accuracy == strict.macro_f1 == 0


CHANCES = np.array([[2, 30, 12, 1], [3, 2, 9, 8], [1, 1, 2, 7]]) / 78
SHARES = ("accuracy", "macro_f1", "spearman", "mae")


def sampled(n: int, studies: int, seed: int) -> dict[str, Estimates]:
    """Scores of many studies of so many items."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(CHANCES.size, n * studies, p=CHANCES.ravel())
    groups = Groups(np.repeat(np.arange(studies), n), studies)
    return score_estimates(cells // 4 + 1, cells % 4, 3, groups)


@pytest.mark.parametrize("n", [20, 60, 200])
def test_intervals_cover_the_planted_score(n: int) -> None:
    truth, found = scores(1e9 * CHANCES), sampled(n, 1000, seed=3)
    for name in SHARES:
        low, high = found[name].low, found[name].high
        given = ~np.isnan(low)
        inside = (low <= truth[name] + 1e-9) & (truth[name] <= high + 1e-9)
        assert inside[given].mean() > 0.93, name
        assert given.mean() > 0.3, name


@pytest.mark.parametrize("metric", SHARES)
def test_intervals_of_many_items_are_as_wide_as_the_scores_scatter(metric: str) -> None:
    found = sampled(400, 1000, seed=4)[metric]
    width = (found.high - found.low).mean() / (2 * 1.96)
    assert width == pytest.approx(float(found.value.std()), rel=0.1)


def test_macro_f1_of_a_rare_class_has_no_interval() -> None:
    gold = np.repeat([1, 2, 3], [20, 20, 2])
    found = score_estimates(gold, gold, 3, one_group(42))["macro_f1"].only()
    assert math.isnan(found.low)
    assert "at least 3 items of every class" in found.note


def test_copies_of_an_item_count_once() -> None:
    gold, given = np.array([1, 2, 3, 1, 2, 3, 1]), np.array([1, 2, 2, 1, 2, 3, 2])
    alone = score_estimates(gold, given, 3, one_group(7))
    times = np.array([4, 1, 1, 2, 1, 1, 3])
    groups = Groups(np.zeros(13, dtype=np.int64), 1, np.repeat(np.arange(7), times))
    copied = score_estimates(np.repeat(gold, times), np.repeat(given, times), 3, groups)
    for name, found in copied.items():
        one, other = found.only(), alone[name].only()
        assert one.value == pytest.approx(other.value), name
        if name != "accuracy":  # which several answers of one item make Korn and Graubard's
            assert one.low == pytest.approx(other.low, nan_ok=True), name


def test_paper_mode_counts_every_item_and_names_its_interval() -> None:
    gold, given = np.array([1, 2, 3, 1]), np.array([1, 2, 3, 2])
    groups = Groups(np.zeros(4, dtype=np.int64), 1, np.array([0, 1, 2, 2]))
    found = score_estimates(gold, given, 3, groups, mode="paper")["accuracy"].only()
    assert (found.value, (found.low, found.high)) == (0.75, wilson(3, 4))
    assert "Wilson" in found.note


def test_all_groups_are_scored_as_each_alone() -> None:
    rng = np.random.default_rng(5)
    gold, given = rng.integers(1, 4, (4, 30)), rng.integers(0, 4, (4, 30))
    groups = Groups(np.repeat(np.arange(4), 30), 4)
    alone = [score_estimates(*pair, 3, one_group(30)) for pair in zip(gold, given, strict=True)]
    for name, together in score_estimates(gold.ravel(), given.ravel(), 3, groups).items():
        each = [together.take(np.array([place])).only() for place in range(4)]
        assert repr([one[name].only() for one in alone]) == repr(each)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: performance([1, 0], [1, 1], 2), "no gold class"),
        (lambda: performance([1, 3], [1, 1], 2), "gold contains 3"),
        (lambda: performance([1, 2], [1, 3], 2), "predicted contains 3"),
        (lambda: performance([1, 2], [1], 2), "gold has 2, predicted has 1"),
        (lambda: performance([], [], 2), "empty"),
        (lambda: performance([1], [1], 1), "at least two classes"),
        (lambda: performance([1], [1], 2, "bounds"), "no score policy"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Any, says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()


def test_one_more_item_moves_accuracy_by_what_it_is() -> None:
    right = np.array([True, True, False])
    sums = moments(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.5, 0.0]), right).sum(axis=0)
    added, slip = moved_by_one(sums[None], np.array([[2 / 3]]), ("accuracy",))
    assert (added.item(), slip.item()) == pytest.approx((1 / 3, -1.0))


def test_an_error_not_seen_yet_is_three_quarters_of_the_scale_large() -> None:
    tables = np.zeros((1, 5, 6))
    tables[0, range(5), range(1, 6)] = 8.0

    def moved(gold: int, given: int) -> float:
        more = tables.copy()
        more[0, gold, given + 1] += 1
        return float(41 * (scores(more, "complete", names=("spearman",))["spearman"][0] - 1.0))

    away = [moved(g, c) - moved(g, g) for g in range(5) for c in range(5) if abs(g - c) == 3]
    _, slip = one_more(tables, np.ones((1, 1)), ("spearman",), 40)
    assert slip.item() == pytest.approx(-np.sqrt(np.mean(np.square(away))))
