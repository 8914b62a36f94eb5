"""Intervals of paired differences at small n, against planted differences and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flipmeter.measure.inference.blocks import Ints
from flipmeter.measure.inference.differences import (
    Difference,
    average_difference,
    correlations,
    mean_difference,
    spearman_difference,
)
from flipmeter.types import Problem


def paired(rng: np.random.Generator, n: int, *, own: float, shared: float) -> tuple[Ints, ...]:
    """Gold and two answers with errors in common; only the second has some of its own."""
    gold = rng.integers(1, 6, n)
    both = np.where(rng.random(n) < shared, rng.integers(1, 6, n), gold)
    second = np.where(rng.random(n) < own, rng.integers(1, 6, n), both)
    return gold, both, second


@pytest.mark.parametrize("n", [20, 30, 60, 200])
@pytest.mark.parametrize("own", [0.02, 0.1])
def test_a_difference_of_accuracy_is_covered_when_errors_are_rare(n: int, own: float) -> None:
    # An own error replaces the answer: right ones (.92 of all) go wrong in 4 of 5 cases.
    rng, studies, right = np.random.default_rng(n), 400, 0.9 + 0.1 / 5
    truth = own * (right - 1 / 5)
    covered, widths = 0, []
    for _ in range(studies):
        gold, first, second = paired(rng, n, own=own, shared=0.1)
        found = mean_difference(first == gold, second == gold)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
        widths.append(found.high - found.low)
    assert covered / studies > 0.93
    assert np.mean(widths) < 2.4 / np.sqrt(n)


@pytest.mark.parametrize("n", [30, 60])
def test_a_difference_of_correlations_is_covered_or_not_given(n: int) -> None:
    rng = np.random.default_rng(n)
    gold, first, second = paired(rng, 400_000, own=0.15, shared=0.1)
    truth = spearman_difference(gold, first, second, n_classes=5).value
    assert truth is not None
    inside = []
    for _ in range(200):
        rows = paired(rng, n, own=0.15, shared=0.1)
        found = spearman_difference(*rows, n_classes=5)
        if found.low is not None and found.high is not None:
            inside.append(found.low <= truth <= found.high)
    assert len(inside) > 50
    assert np.mean(inside) > 0.93


@given(st.lists(st.tuples(*(st.integers(1, 4),) * 2), min_size=3, max_size=40))
@settings(max_examples=50)
def test_a_rank_correlation_is_that_of_scipy(rows: list[tuple[int, int]]) -> None:
    table = np.zeros((4, 4))
    for x, y in rows:
        table[x - 1, y - 1] += 1
    found = float(correlations(table))
    x, y = np.array(rows).T
    if x.min() == x.max() or y.min() == y.max():
        assert np.isnan(found)
    else:
        assert found == pytest.approx(stats.spearmanr(x, y).statistic)


def test_raters_that_agree_on_everything_may_still_differ() -> None:
    found = mean_difference(np.ones(20), np.ones(20))
    assert found.value == 0
    assert found.low == pytest.approx(-(found.high or 0.0))
    assert 0.1 < (found.high or 0.0) < 0.2


def test_copies_of_rows_do_not_narrow_an_interval() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, (2, 40))
    once = mean_difference(a, b)
    thrice = mean_difference(np.repeat(a, 3), np.repeat(b, 3), clusters=np.repeat(np.arange(40), 3))
    assert (once.low, once.high) == pytest.approx((thrice.low, thrice.high))
    assert thrice.n == 40


def test_swapping_raters_turns_the_interval() -> None:
    rng = np.random.default_rng(2)
    rows = paired(rng, 80, own=0.2, shared=0.2)
    gold, first, second = rows
    one = spearman_difference(gold, first, second, n_classes=5)
    other = spearman_difference(gold, second, first, n_classes=5)
    assert one.value == pytest.approx(-(other.value or 0.0))
    assert one.low == pytest.approx(-(other.high or 0.0), abs=2e-3)


def test_unreadable_rows_are_left_out() -> None:
    gold, first, second = paired(np.random.default_rng(3), 60, own=0.3, shared=0.1)
    second = second.copy()
    second[:10] = 0
    found = spearman_difference(gold, first, second, n_classes=5)
    kept = spearman_difference(gold[10:], first[10:], second[10:], n_classes=5)
    assert found == kept
    values = np.array([np.nan, *np.ones(20)])
    assert mean_difference(values, np.zeros(21)).n == 20


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (mean_difference([1, 0], [1, 1]), "only 2 items"),
        (mean_difference([], []), "only 0 items"),
        (spearman_difference([1, 2, 3] * 5, [2] * 15, [1, 2, 3] * 5, n_classes=3), "constant"),
        (spearman_difference([1, 2, 3] * 5, [1, 2, 3] * 5, [1, 2, 3] * 5, n_classes=3), "differ"),
    ],
)
def test_without_an_interval_there_is_a_reason(found: Difference, said: str) -> None:
    assert found.low is None
    assert said in found.reason


def test_an_average_over_datasets_is_narrower_than_each() -> None:
    one = Difference(0.1, 0.0, 0.2, 50)
    found = average_difference([one] * 4)
    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.05, 0.15))
    assert found.n == 200


def test_an_average_needs_every_interval() -> None:
    found = average_difference([Difference(0.1, 0.0, 0.2, 50), Difference(0.3, n=2, reason="few")])
    assert found.value == pytest.approx(0.2)
    assert found.low is None
    assert found.reason == "few"


def test_rows_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(Problem, match="one by one"):
        mean_difference([1, 0], [1])
    with pytest.raises(Problem, match="row by row"):
        spearman_difference([1, 2], [1], [1], n_classes=2)
    with pytest.raises(Problem, match="one cluster per row"):
        mean_difference([1, 0], [1, 1], clusters=[1])
