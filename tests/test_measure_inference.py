"""Intervals and p-values against printed numbers, statsmodels and planted rates."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import cochrans_q
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

import on_arrays
from flipmeter.errors import Problem
from flipmeter.stats import formulas
from flipmeter.stats.formulas import cochran_q, holm, mcnemar, wilson
from flipmeter.stats.resampling import (
    ENOUGH_DATASETS,
    RESAMPLES,
    as_is,
    fewest,
    resamples,
    spread_interval,
)
from on_arrays import clopper_upper, mcnemar_counts, paper_round

patient = settings(deadline=None)
CASES = Path(__file__).parent / "cases"
PAPER = json.loads((CASES / "measure_phase0.json").read_text())["models"]
INFERENCE = json.loads((CASES / "measure_inference.json").read_text())
CELLS = [(m["model"], name, cell) for m in PAPER for name, cell in m["rates"].items()]
COUNTS = st.integers(0, 300)
PROBABILITIES = st.floats(0, 1, allow_nan=False)


@pytest.mark.parametrize("case", INFERENCE, ids=lambda case: str(case["about"]))
def test_worked_examples_come_out(case: dict[str, Any]) -> None:
    found = (vars(formulas) | vars(on_arrays))[case["function"]](*case["inputs"])
    expected = case["expected"]
    tolerance = 1e-6 if isinstance(expected, list) else 10.0 ** -len(str(expected)[2:])
    assert found == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("model", "name", "cell"), CELLS)
def test_a_printed_rate_and_its_interval_follow_from_the_count(
    model: str, name: str, cell: dict[str, Any]
) -> None:
    k, n = cell["k"], cell["n"]
    assert [paper_round(x) for x in (k / n, *wilson(k, n))] == cell["printed"]


def test_all_fifty_cells_are_checked() -> None:
    assert len(CELLS) == 50


@pytest.mark.parametrize("row", [m for m in PAPER if "b" in m], ids=lambda m: str(m["model"]))
def test_a_printed_p_follows_from_the_discordant_counts(row: dict[str, Any]) -> None:
    p = mcnemar(row["b"], row["c"], "paper")
    assert row["p"] == ("<0.001" if p < 0.001 else f"{p:.3f}")


def test_holm_over_the_ten_models_leaves_five() -> None:
    p = [0.0 if m["p"] == "<0.001" else float(m["p"]) for m in PAPER]
    adjusted = holm(p)
    assert (adjusted < 0.05).sum() == 5
    assert adjusted[[m["model"] for m in PAPER].index("GPT-5.4")] == pytest.approx(0.110)


@patient
@given(COUNTS, COUNTS, st.floats(0.5, 0.999))
def test_wilson_agrees_with_statsmodels(k: int, more: int, level: float) -> None:
    n = k + more + 1
    expected = proportion_confint(k, n, alpha=1 - level, method="wilson")
    assert wilson(k, n, level) == pytest.approx(expected, abs=1e-9)


def test_wilson_takes_arrays() -> None:
    low, high = wilson([0, 17, 78, 0], [0, 200, 198, 194])
    each = [wilson(k, n) for k, n in ((0, 0), (17, 200), (78, 198), (0, 194))]
    np.testing.assert_allclose(np.column_stack([low, high]), each)


def test_nothing_seen_leaves_everything_possible() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert clopper_upper(0, 0) == 1.0


def test_one_flip_is_enough_to_exclude_zero() -> None:
    assert wilson(0, 200)[0] == 0
    assert wilson(1, 200)[0] == pytest.approx(0.0009, abs=5e-5)


def test_wilson_covers_planted_rates() -> None:
    rng, n = np.random.default_rng(20), 200
    rates = np.linspace(0.02, 0.6, 30)
    low, high = wilson(rng.binomial(n, rates, size=(4000, len(rates))), n)
    assert 0.93 < ((low <= rates) & (rates <= high)).mean() < 0.97


@patient
@given(COUNTS, COUNTS)
def test_clopper_agrees_with_statsmodels(k: int, more: int) -> None:
    n = k + more + 1
    assert clopper_upper(k, n) == pytest.approx(
        proportion_confint(k, n, alpha=0.10, method="beta")[1], abs=1e-9
    )


@patient
@given(COUNTS, COUNTS)
def test_exact_mcnemar_agrees_with_statsmodels(b: int, c: int) -> None:
    expected = statsmodels_mcnemar([[0, b], [c, 0]], exact=True).pvalue if b + c else 1.0
    assert mcnemar(b, c, "exact", "two-sided") == pytest.approx(expected, abs=1e-9)


@patient
@given(COUNTS, COUNTS)
def test_the_papers_mcnemar_is_statsmodels_halved_while_b_is_not_below_c(b: int, c: int) -> None:
    if b + c:
        both = statsmodels_mcnemar([[0, b], [c, 0]], exact=False, correction=True).pvalue
        assert mcnemar(b, c, "paper", "two-sided") == pytest.approx(both)
        expected = both / 2 if b >= c else 1 - both / 2
        assert mcnemar(b, c, "paper") == pytest.approx(expected)


@pytest.mark.parametrize("method", ["mid-p", "exact", "paper"])
def test_less_than_noise_is_never_more_than_noise(method: Any) -> None:
    assert mcnemar(5, 15, method) > 0.95


@patient
@given(COUNTS, COUNTS)
def test_mid_p_of_both_directions_adds_up_to_one(b: int, c: int) -> None:
    if b + c:
        assert mcnemar(b, c) + mcnemar(c, b) == pytest.approx(1)
        assert mcnemar(b, c) <= mcnemar(b, c, "exact")


@pytest.mark.parametrize("method", ["mid-p", "exact", "paper"])
@pytest.mark.parametrize("alternative", ["greater", "two-sided"])
def test_without_discordant_items_p_is_one(method: Any, alternative: Any) -> None:
    assert mcnemar(0, 0, method, alternative) == 1.0


def test_discordant_counts_are_told_apart() -> None:
    assert mcnemar_counts([1, 1, 1, 0, 0], [0, 0, 1, 1, 0]) == (2, 1)


@patient
@given(st.integers(2, 5).flatmap(lambda j: st.lists(st.tuples(*[st.booleans()] * j), min_size=1)))
def test_cochran_agrees_with_statsmodels(rows: list[tuple[bool, ...]]) -> None:
    matrix = np.array(rows)
    if (matrix == matrix[:, :1]).all():
        assert cochran_q(matrix) == (0.0, matrix.shape[1] - 1, 1.0)
    else:
        oracle = cochrans_q(matrix.astype(int))
        assert cochran_q(matrix) == pytest.approx((oracle.statistic, oracle.df, oracle.pvalue))


@settings(patient, max_examples=15)  # the oracle collects garbage on every call
@given(st.lists(PROBABILITIES, min_size=1, max_size=20))
def test_holm_agrees_with_statsmodels(p: list[float]) -> None:
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1])


def test_holm_does_not_count_an_undefined_test() -> None:
    np.testing.assert_array_equal(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])


def test_the_paper_rounds_twice() -> None:
    assert paper_round(0.150452) == 0.151
    assert round(0.150452, 3) == 0.150


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: wilson(5, 4), "between 0 and n"),
        (lambda: wilson(-1, 4), "between 0 and n"),
        (lambda: wilson([1, 2], [3, 1]), "between 0 and n"),
        (lambda: wilson([1, 2], [3, 4, 5]), "pair them"),
        (lambda: wilson(1, 4, level=95), "level is 95: it is a confidence"),
        (lambda: clopper_upper(5, 4), "between 0 and n"),
        (lambda: mcnemar(-1, 4), "negative"),
        (lambda: mcnemar(1, 4, "midp"), "did you mean 'mid-p'"),  # type: ignore[arg-type]
        (lambda: mcnemar(1, 4, alternative="less"), "greater, two-sided"),  # type: ignore[arg-type]
        (lambda: mcnemar_counts([1, 0], [1]), "one by one"),
        (lambda: mcnemar_counts([1, 2], [1, 0]), "true or false"),
        (lambda: cochran_q([[1], [0]]), "only one column"),
        (lambda: cochran_q([1, 0]), "items x conditions"),
        (lambda: cochran_q([]), "empty"),
        (lambda: holm([0.5, 1.5]), "between 0 and 1"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Any, says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()


def test_the_fewest_of_several_counts_leaves_out_zeros() -> None:
    counts = [np.array(row) for row in ([3, 0], [2, 0], [0, 0])]
    assert fewest(counts).tolist() == [2, 0]


@pytest.mark.parametrize("n", [ENOUGH_DATASETS, ENOUGH_DATASETS + 3])
def test_the_interval_over_datasets_is_student_s(n: int) -> None:
    expected = stats.t.interval(0.95, n - 1, loc=0.3, scale=0.2 / math.sqrt(n))
    assert spread_interval(0.3, 0.2, n) == pytest.approx(expected)
    assert spread_interval(0.3, 0.2, ENOUGH_DATASETS - 1) == (None, None)


def test_the_first_resample_is_the_sample() -> None:
    assert as_is(4).tolist() == [[1, 1, 1, 1]]
    (drawn,) = resamples(4, "d")
    assert drawn.shape == (1 + RESAMPLES, 4)
    assert (drawn.sum(axis=1) == 4).all()
