"""Direction: signed biases, consequences, and tests held against statsmodels and scipy."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from statsmodels.stats.contingency_tables import SquareTable

from flipmeter.errors import Problem
from flipmeter.stats.aspects import measure_aspects
from flipmeter.types import Contrast
from hand_made import group
from on_arrays import bowker, direction, flip_matrix, stuart_maxwell, wilcoxon

EXAMPLE = [[20, 5, 1], [2, 30, 6], [0, 3, 33]]
few = settings(max_examples=25)  # every example draws its intervals
TABLES = arrays(np.int64, (4, 4), elements=st.integers(0, 12))


def test_worked_examples_of_the_two_tests_come_out() -> None:
    assert bowker(EXAMPLE) == pytest.approx((3.2857, 3, 0.3496), abs=1e-4)
    assert stuart_maxwell(EXAMPLE) == pytest.approx((3.2405, 2, 0.1978), abs=1e-4)


@given(arrays(np.int64, (4, 4), elements=st.integers(1, 12)))
def test_the_tests_agree_with_statsmodels(table: np.ndarray) -> None:
    theirs = SquareTable(table, shift_zeros=False)
    symmetry, homogeneity = theirs.symmetry(), theirs.homogeneity()
    assert bowker(table) == pytest.approx((symmetry.statistic, symmetry.df, symmetry.pvalue))
    ours = stuart_maxwell(table)
    assert ours == pytest.approx((homogeneity.statistic, homogeneity.df, homogeneity.pvalue))


@given(TABLES)
def test_signed_ranks_agree_with_scipy(table: np.ndarray) -> None:
    first, second = np.repeat(np.indices(table.shape).reshape(2, -1), table.ravel(), axis=1)
    assume((first != second).any())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = stats.wilcoxon(second - first, method="approx", correction=False)
    z, p = wilcoxon(table)
    assert 2 * stats.norm.sf(abs(z)) == pytest.approx(theirs.pvalue)
    assert p >= theirs.pvalue
    assert np.sign(z) == pytest.approx(
        np.sign(
            stats.rankdata(abs(second - first)[first != second])
            @ np.sign(second - first)[first != second]
        )
    )


@given(TABLES)
def test_turning_the_views_round_keeps_p_and_turns_z(table: np.ndarray) -> None:
    assert wilcoxon(table.T) == pytest.approx((-wilcoxon(table)[0], wilcoxon(table)[1]))
    assert bowker(table.T) == pytest.approx(bowker(table))
    assert stuart_maxwell(table.T) == pytest.approx(stuart_maxwell(table), abs=1e-7)


def test_where_nothing_moves_there_is_no_evidence() -> None:
    still = np.diag([3, 4, 5])
    assert bowker(still)[2] == stuart_maxwell(still)[2] == wilcoxon(still)[1] == 1


def test_a_preference_for_the_first_slots_is_primacy_and_a_slot_bias_below_0() -> None:
    natural, turned = [1, 1, 2, 3, 4], [2, 3, 2, 3, 5]
    found = direction(natural, turned, 5, reverses_labels=True)
    assert found["primacy"].k == 3
    assert found["recency"].k == 0
    assert found["preference"].value == pytest.approx(-0.6)
    assert found["slot_bias"].value == pytest.approx(-0.4)
    slots = np.array(natural) + (6 - np.array(turned))
    assert found["slot_bias"].value == pytest.approx(np.mean(slots / 2 - 3))


def test_the_preference_score_of_the_literature() -> None:
    """12 primacy and 4 recency of 100 are -0.08."""
    natural, turned = [1] * 12 + [2] * 4 + [1] * 84, [2] * 12 + [1] * 4 + [1] * 84
    found = direction(natural, turned, 2, reverses_labels=True)
    assert found["preference"].value == pytest.approx(-0.08)


@few
@given(st.data())
def test_consequences_add_up_to_the_change_of_accuracy(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    gold, a, b = (
        np.array(data.draw(st.lists(st.integers(low, 3), min_size=n, max_size=n)))
        for low in (1, 0, 0)
    )
    read = (a > 0) & (b > 0)
    assume(read.any())
    found = direction(a, b, 3, gold=gold)
    change = np.mean(b[read] == gold[read]) - np.mean(a[read] == gold[read])
    assert found["net"].value == pytest.approx(change)
    parts = ("right_to_wrong", "wrong_to_right", "wrong_to_wrong")
    assert sum(found[name].k or 0 for name in parts) == (a[read] != b[read]).sum()
    moved = flip_matrix(a, b, 3)
    assert np.triu(moved, 1).sum() == found["up"].k
    assert np.tril(moved, -1).sum() == found["down"].k


def test_the_semantic_bias_is_that_of_both_views() -> None:
    found = direction([1, 2, 3], [3, 2, 3], 3, gold=[1, 1, 3])
    assert found["semantic_bias"].value == pytest.approx((1 + 1 + 0) / 3)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: bowker([[1, 2, 3], [4, 5, 6]]), "M x M"),
        (lambda: wilcoxon([[1, -2], [0, 3]]), "counts"),
        (lambda: direction([1, 2], [1], 3), "first has 2, second has 1"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()


@pytest.mark.parametrize(
    ("labels", "metrics"),
    [("identifiers", {"primacy", "recency", "slot_bias"}), ("passages", {"up", "down", "shift"})],
)
def test_only_a_list_of_labels_has_slots_to_lean_to(labels: str, metrics: set[str]) -> None:
    table = group([1, 2, 3, 4], [2, 3, 4, 5], gold=[1, 2, 3, 4], labels=labels)
    contrast = Contrast("P1", ("base", "reversed"), probe="label_order")
    found = set(measure_aspects(table, [contrast], ["direction"])["direction"]["metric"])
    assert metrics <= found
    assert not ({"primacy", "recency", "slot_bias", "up", "down", "shift"} - metrics) & found
