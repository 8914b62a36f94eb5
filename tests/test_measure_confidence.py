"""Agreement, abstention and ordinal sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from flipmeter.errors import Problem
from flipmeter.stats.confidence import consensus, entropies, margins
from on_arrays import abstention_curve, agreement, flips_by_confidence

few = settings(max_examples=25)
VOTES = arrays(np.int64, (9, 3), elements=st.integers(0, 4))


def test_margin_and_entropy_of_sure_and_unsure_items() -> None:
    probabilities = np.array([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.1, 0.1]])
    assert margins(probabilities) == pytest.approx([1, 0, 0.2])
    assert entropies(probabilities) == pytest.approx(stats.entropy(probabilities, axis=1))


def test_flips_are_counted_from_the_least_to_the_most_confident() -> None:
    confidence = np.arange(100) / 100
    found = flips_by_confidence(confidence < 0.3, confidence, n_bins=5)
    assert [one.k for one in found] == [20, 10, 0, 0, 0]
    assert [one.n for one in found] == [20] * 5
    assert found[0].note == "0.000 to 0.190"


def test_items_of_one_confidence_stay_together() -> None:
    found = flips_by_confidence([True, False, True, False], [0.5, 0.5, 0.5, 1.0], n_bins=4)
    assert [one.n for one in found] == [3, 1]


def test_the_curve_goes_from_full_agreement_to_every_item() -> None:
    gold = [1, 1, 2, 3]
    table = [[1, 1, 1], [1, 1, 2], [2, 1, 1], [1, 2, 3]]
    curve = abstention_curve(gold, table, 3)
    assert curve.agreement == pytest.approx([1, 2 / 3, 1 / 3])
    assert curve.coverage == pytest.approx([0.25, 0.75, 1])
    assert curve.accuracy == pytest.approx([1, 2 / 3, 0.5])
    area = 0.25 * 1 + 0.5 * (1 + 2 / 3) / 2 + 0.25 * (2 / 3 + 0.5) / 2
    assert curve.area == pytest.approx(area)


@few
@given(VOTES, arrays(np.int64, 9, elements=st.integers(1, 4)))
def test_agreement_is_the_first_step_and_the_area_of_the_curve(
    table: np.ndarray, gold: np.ndarray
) -> None:
    found, curve = agreement(gold, table, 4), abstention_curve(gold, table, 4)
    assert found["abstention_area"].value == pytest.approx(curve.area)
    agree = (table.min(axis=1) == table.max(axis=1)) & (table.min(axis=1) > 0)
    assert found["coverage"].k == agree.sum()
    assert found["selective_accuracy"].k == (agree & (table[:, 0] == gold)).sum()
    assert curve.coverage[-1] == pytest.approx(1)


def test_a_tie_goes_to_the_class_nearest_the_mean() -> None:
    assert abstention_curve([2], [[1, 2, 4, 1, 2, 4, 3, 5]], 5).accuracy.tolist() == [1]


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: margins([0.5, 0.5]), "items x classes"),
        (lambda: entropies([[0.5, 0.6]]), "add up to 1"),
        (lambda: flips_by_confidence([True], [np.nan]), "needs a confidence"),
        (lambda: agreement([0], [[1, 2]], 2), "gold contains 0"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()


def test_no_class_is_agreed_on_where_nothing_was_read() -> None:
    table = np.array([[0, 0, 0], [2, 0, 2], [1, 3, 0]])
    ranks, votes = consensus(table, 3)
    assert ranks.tolist() == [0, 2, 1]  # of two equally near the mean, the lower
    assert votes.tolist() == [0, 2, 1]
