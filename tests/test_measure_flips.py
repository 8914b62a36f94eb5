"""Flip rates: what each policy counts, and the laws they keep."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from flipmeter.errors import Problem
from flipmeter.stats.flips import flip_rate
from flipmeter.types import Policy
from on_arrays import excess_disagreement, flip_rate_any, hidden_tokens, noise_floor, total_vs_noise

patient = settings(deadline=None)
A = [1, 2, 3, 4, 5, 0, 0, 2, 1, 3]
B = [1, 2, 4, 1, 5, 0, 3, 0, 1, 0]
POLICIES: list[Policy] = ["complete", "strict", "bounds"]
RANK = st.integers(0, 5)
PAIRS = st.lists(st.tuples(RANK, RANK), min_size=1, max_size=40)
TABLES = st.integers(2, 5).flatmap(
    lambda j: st.lists(st.tuples(*[RANK] * j), min_size=1, max_size=40)
)


def test_complete_drops_a_pair_with_a_failure() -> None:
    rate = flip_rate(A, B)
    assert (rate.k, rate.n, rate.failed, rate.value) == (2, 6, 4, 2 / 6)
    assert (rate.low, rate.high) == pytest.approx(proportion_confint(2, 6, method="beta"))


def test_strict_calls_one_failure_a_flip_and_two_an_agreement() -> None:
    rate = flip_rate(A, B, "strict")
    assert (rate.k, rate.n, rate.failed, rate.value) == (5, 10, 4, 0.5)
    assert (rate.low, rate.high) == pytest.approx(proportion_confint(5, 10, method="beta"))


def test_bounds_run_from_all_failures_agree_to_all_failures_flip() -> None:
    rate = flip_rate(A, B, "bounds")
    assert (rate.value, rate.low, rate.high, rate.n) == (2 / 6, 0.2, 0.6, 10)
    assert "not a confidence interval" in rate.note
    assert "40.0 pts" in rate.note


def test_narrow_bounds_raise_no_alarm() -> None:
    many = [1] * 199
    assert "pts" not in flip_rate([*many, 0], [*many, 1], "bounds").note


def test_without_a_complete_pair_the_rate_is_undefined() -> None:
    rate = flip_rate([0, 0, 1], [0, 2, 0])
    assert math.isnan(rate.value)
    assert (rate.n, rate.failed) == (0, 3)
    assert str(rate) == "no complete pair: every item has a failure"
    bounds = flip_rate([0, 0, 1], [0, 2, 0], "bounds")
    assert (bounds.low, bounds.high) == (0, 1)


def test_an_item_flips_when_any_condition_differs() -> None:
    table = [[1, 1, 1], [1, 2, 1], [3, 3, 4], [5, 5, 0], [1, 2, 0], [0, 0, 0]]
    complete, strict, bounds = (flip_rate_any(table, policy) for policy in POLICIES)
    assert (complete.k, complete.n) == (2, 3)
    assert (strict.k, strict.n) == (4, 6)
    assert (bounds.low, bounds.high) == (3 / 6, 5 / 6)


@patient
@given(PAIRS, st.sampled_from(POLICIES))
def test_a_flip_has_no_direction(pairs: list[tuple[int, int]], policy: Policy) -> None:
    a, b = zip(*pairs, strict=True)
    assert str(flip_rate(a, b, policy)) == str(flip_rate(b, a, policy))


@patient
@given(TABLES, st.permutations(range(1, 6)), st.sampled_from(POLICIES))
def test_renaming_the_classes_changes_nothing(
    rows: list[tuple[int, ...]], names: list[int], policy: Policy
) -> None:
    renamed = np.array([0, *names])[np.array(rows)]
    assert str(flip_rate_any(renamed, policy)) == str(flip_rate_any(rows, policy))


@patient
@given(TABLES)
def test_bounds_hold_the_strict_rate(rows: list[tuple[int, ...]]) -> None:
    bounds, strict = flip_rate_any(rows, "bounds"), flip_rate_any(rows, "strict")
    assert bounds.low <= strict.value <= bounds.high


@patient
@given(PAIRS)
def test_bounds_of_a_pair_hold_the_complete_rate(pairs: list[tuple[int, int]]) -> None:
    bounds, complete = flip_rate_any(pairs, "bounds"), flip_rate_any(pairs)
    assert math.isnan(complete.value) or bounds.low <= complete.value <= bounds.high


def test_bounds_of_an_aggregate_need_not_hold_the_complete_rate() -> None:
    bounds = flip_rate_any([[1, 1, 1], [1, 2, 0]], "bounds")
    assert (bounds.value, bounds.low) == (0.0, 0.5)


@patient
@given(TABLES)
def test_without_failures_the_policies_agree(rows: list[tuple[int, ...]]) -> None:
    table = np.array(rows) + 1
    complete, strict, bounds = (flip_rate_any(table, policy) for policy in POLICIES)
    assert complete == strict
    assert bounds.low == bounds.value == bounds.high == complete.value


@patient
@given(PAIRS, st.sampled_from(POLICIES))
def test_two_conditions_are_a_pair(pairs: list[tuple[int, int]], policy: Policy) -> None:
    a, b = zip(*pairs, strict=True)
    assert str(flip_rate_any(pairs, policy)) == str(flip_rate(a, b, policy))


def test_noise_of_exactly_zero_is_suspicious() -> None:
    assert "cached" in noise_floor([1, 2, 3], [1, 2, 3]).note
    assert noise_floor([1, 2, 3], [1, 2, 4]).note == ""
    assert "cached" not in noise_floor([0, 0], [0, 0]).note


BASE = [1] * 20 + [0, 3]
OTHER = [2] * 6 + [1] * 14 + [3, 3]
REPEAT = [2] * 1 + [1] * 17 + [2] * 2 + [0, 0]


def test_total_and_noise_are_compared_on_the_same_items() -> None:
    test = total_vs_noise(BASE, OTHER, REPEAT)
    assert (test.n, test.b, test.c) == (20, 5, 2)
    assert (test.total.k, test.total.n) == (6, 21)
    assert (test.noise.k, test.noise.n) == (3, 20)
    assert test.exact_p == pytest.approx(29 / 128)
    assert test.mid_p == pytest.approx((29 + 8) / 256)
    assert test.paper_p == pytest.approx(0.2248, abs=1e-4)


def test_strict_noise_counts_failures_as_answers() -> None:
    test = total_vs_noise(BASE, OTHER, REPEAT, "strict")
    assert (test.n, test.b, test.c) == (22, 6, 3)


def test_without_an_item_read_everywhere_there_is_no_p() -> None:
    assert math.isnan(total_vs_noise([1, 0], [0, 2], [1, 2]).mid_p)


def test_excess_disagreement_has_the_expectation_of_theory() -> None:
    expected = 0.07
    p, q = (0.7, 0.2, 0.1), (0.4, 0.4, 0.2)
    runs = np.array(list(itertools.product((1, 2, 3), repeat=4)))
    chances = [p[a - 1] * p[b - 1] * q[c - 1] * q[d - 1] for a, b, c, d in runs]
    items = np.repeat(runs, np.rint(np.array(chances) * 10_000).astype(int), axis=0)
    excess = excess_disagreement(*items.T)
    assert excess.value == pytest.approx(expected, abs=1e-9)
    assert excess.low < expected < excess.high


def test_excess_needs_a_view_that_was_read_twice() -> None:
    excess = excess_disagreement([1, 1, 0], [1, 1, 0], [2, 2, 1], [2, 2, 1])
    assert (excess.value, excess.n, excess.failed) == (1.0, 2, 1)


def test_reported_reasoning_is_what_is_hidden() -> None:
    hidden = hidden_tokens([100, 50, 7], [90, None, 0])
    assert (hidden.value, hidden.n) == (45, 2)
    assert hidden.note == "reasoning tokens as reported; 1 replies report none"


def test_without_a_report_the_rest_is_called_overhead() -> None:
    hidden = hidden_tokens([5, 7, None, 0])
    assert (hidden.value, hidden.n) == (10 / 3, 3)
    assert "overhead" in hidden.note


def test_no_tokens_are_no_number() -> None:
    assert str(hidden_tokens([None, None])) == "no token was reported"


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: flip_rate([], []), "empty"),
        (lambda: flip_rate([1, 2], [1]), "a has 2, b has 1"),
        (lambda: flip_rate([[1, 2]], [[1, 2]]), "one value per item"),
        (lambda: flip_rate([1, -1], [1, 1]), "contains -1"),
        (lambda: flip_rate([1, 6], [1, 1], n_classes=5), "contains 6, but the scale has 5"),
        (lambda: flip_rate([1, math.nan], [1, 1]), "never NaN"),
        (lambda: flip_rate(["1", "2"], [1, 1]), "whole numbers"),
        (lambda: flip_rate([1], [1], "stict"), "did you mean 'strict'"),  # type: ignore[arg-type]
        (lambda: flip_rate_any([[1], [2]]), "nothing to compare"),
        (lambda: flip_rate_any([[1, 2], [1]]), "ragged"),
        (lambda: flip_rate_any([[1, 2]], level=0), "level is 0"),
        (lambda: total_vs_noise([1], [1], [1], "bounds"), "'complete' or 'strict'"),
        (lambda: total_vs_noise([1], [1], [1, 2]), "one by one"),
        (lambda: hidden_tokens([]), "one number per reply"),
        (lambda: hidden_tokens([-2]), "negative"),
        (lambda: hidden_tokens(["a"]), "numbers or None"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Any, says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()


def test_whole_numbers_may_be_written_as_floats_and_halves_may_not() -> None:
    assert flip_rate([1.0, 2.0], [1.0, 3.0]) == flip_rate([1, 2], [1, 3])
    with pytest.raises(Problem, match="whole numbers"):
        flip_rate([1.5, 2.0], [1.0, 3.0])
