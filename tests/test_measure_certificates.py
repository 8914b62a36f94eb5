"""Certificates, what they take, evidence at any time, and many claims at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from flipmeter.measure import (
    Claim,
    adjusted,
    anytime_interval,
    benjamini_hochberg,
    certifiable_rate,
    certificates,
    certify,
    certify_excess,
    clopper_upper,
    detectable_excess,
    e_above,
    e_below,
    e_value,
    first_stop,
    items_for_excess,
    items_needed,
    read_claim,
    tango,
)
from flipmeter.types import Contrast, Problem

P1 = Contrast("P1", ("base", "reversed"))
P3 = Contrast("P3", ("base", "reversed", "after"))


@pytest.mark.parametrize(
    ("k", "margin", "is_certified"), [(4, 0.05, True), (5, 0.05, False), (10, 0.10, True)]
)
def test_a_certificate_is_the_bound_below_the_margin(
    k: int, margin: float, is_certified: bool
) -> None:
    found = certify(k, 200, margin)
    assert found.is_certified is is_certified
    assert found.upper == pytest.approx(proportion_confint(k, 200, 0.1, method="beta")[1])
    assert (found.p < 0.05) is is_certified


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 0.6))
def test_p_is_below_alpha_just_where_the_bound_is_below_the_margin(
    k: int, more: int, margin: float
) -> None:
    found = certify(k, k + more, margin)
    assert found.is_certified == (found.p < 0.05) or found.p == pytest.approx(0.05)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 90), st.floats(0.01, 0.5))
def test_the_paired_certificate_and_its_p_agree(b: int, c: int, rest: int, margin: float) -> None:
    n = b + c + rest + 1
    found = certify_excess(b, c, n, margin)
    assert found.upper == pytest.approx(float(tango(b, c, n, 0.9)[1]))
    assert found.is_certified == (found.p < 0.05) or found.p == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize(
    ("margin", "rate", "n", "flips"),
    [(0.05, 0.01, 130, 2), (0.05, 0.02, 260, 7), (0.1, 0.05, 180, 11)],
)
def test_the_items_needed_are_the_fewest(margin: float, rate: float, n: int, flips: int) -> None:
    """The three designs, in steps of ten, have the power; ours have it with no more items."""
    assert clopper_upper(flips, n) < margin
    assert stats.binom.cdf(flips, n, rate) >= 0.8
    fewest, allowed = items_needed(margin, rate)
    assert fewest <= n
    assert clopper_upper(allowed, fewest) < margin <= clopper_upper(allowed + 1, fewest)
    for less in range(1, fewest):
        most = max((k for k in range(less + 1) if clopper_upper(k, less) < margin), default=None)
        assert most is None or stats.binom.cdf(most, less, rate) < 0.8
    assert certifiable_rate(fewest, margin) >= rate


def test_the_power_of_the_paired_test_is_the_usual_formula() -> None:
    assert items_for_excess(0.05, 0.18) == 444
    assert detectable_excess(444, 0.18) == pytest.approx(0.05, abs=1e-4)
    assert math.isnan(detectable_excess(3, 0.18))
    assert math.isnan(certifiable_rate(20, 0.05))


# --- at any time ------------------------------------------------------------------------------


def test_the_bet_is_the_mean_likelihood_ratio() -> None:
    prior = stats.beta(0.5, 0.5)

    def ratio(q: float) -> float:
        return float(stats.binom.pmf(3, 40, q) / stats.binom.pmf(3, 40, 0.1) * prior.pdf(q))

    whole = integrate.quad(ratio, 0, 1)[0]
    below = integrate.quad(ratio, 0, 0.1)[0] / prior.cdf(0.1)
    above = integrate.quad(ratio, 0.1, 1)[0] / prior.sf(0.1)
    assert float(e_value(3, 40, 0.1)) == pytest.approx(whole, rel=1e-6)
    assert float(e_below(3, 40, 0.1)) == pytest.approx(below, rel=1e-6)
    assert float(e_above(3, 40, 0.1)) == pytest.approx(above, rel=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.15, 0.3])
def test_a_bet_below_the_margin_never_gains_on_average_at_or_above_it(rate: float) -> None:
    n = 30
    k = np.arange(n + 1)
    assert (stats.binom.pmf(k, n, rate) * e_below(k, n, 0.1)).sum() <= 1 + 1e-9
    assert (stats.binom.pmf(k, n, 0.1 * 0.1 / rate) * e_above(k, n, 0.1)).sum() <= 1 + 1e-9


def test_no_flip_is_certified_within_the_batches_of_a_sequential_design() -> None:
    """Without a flip the two-sided bet needs 116 items for 5 % and 53 for 10 %; ours fewer."""
    n = np.arange(1, 200)
    for margin, two_sided in ((0.05, 116), (0.10, 53)):
        assert n[np.argmax(e_value(0, n, margin) >= 20)] == two_sided
        word, stop = first_stop(np.zeros(199, dtype=bool), margin)
        assert word == "below"
        assert items_needed(margin)[0] <= stop < two_sided


def test_watching_stops_on_the_side_that_is_true() -> None:
    rng = np.random.default_rng(4)
    assert first_stop(rng.random(500) < 0.3, 0.1)[0] == "above"
    assert first_stop([True, False], 0.5) == ("undecided", 2)


def test_the_anytime_interval_is_wider_and_ends_where_the_bet_is_20() -> None:
    low, high = anytime_interval([0, 7, 50], [50, 50, 50])
    assert low[0] == 0
    assert high[2] == 1
    assert low[1] < 7 / 50 < high[1]
    assert float(e_value(7, 50, float(high[1]))) == pytest.approx(20, rel=1e-6)
    assert float(e_value(7, 50, float(low[1]))) == pytest.approx(20, rel=1e-6)
    assert high[1] > proportion_confint(7, 50, method="wilson")[1]


# --- many claims ------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_step_up_agrees_with_statsmodels(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])


def test_a_family_is_adjusted_by_itself_and_rows_keep_their_order() -> None:
    table = pl.DataFrame({"metric": list("abab"), "p": [0.01, 0.04, 0.03, None]})
    found = adjusted(table, ["metric"])
    assert found["metric"].to_list() == list("abab")
    assert found["p_holm"].to_list() == pytest.approx([0.02, 0.04, 0.03, None])
    assert found["p_bh"].to_list() == pytest.approx([0.02, 0.04, 0.03, None])


def frame(n_flips: int, n: int = 200, n_failed: int = 0) -> pl.DataFrame:
    """Write base, its repeat and reversed; the first items flip, the last ones fail."""
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3}
    moved = [2] * n_flips + [1] * (n - n_flips)
    read = [1] * (n - n_failed) + [0] * n_failed
    runs = [("base", 0, read), ("base", 1, read), ("reversed", 0, moved)]
    return pl.DataFrame(
        [
            key | {"view": view, "repeat": repeat, "item": f"i{i:03}", "rank": rank}
            for view, repeat, ranks in runs
            for i, rank in enumerate(ranks)
        ]
    )


def test_claims_are_a_family_and_the_adjusted_p_decides() -> None:
    claims = [Claim("P1", 0.05), Claim("P1", 0.20)]
    alone = certificates(frame(4), [P1], claims[:1]).to_dicts()[0]
    assert (alone["word"], alone["k"], alone["n"]) == ("certified", 4, 200)
    both = certificates(frame(4), [P1], claims)
    assert both["word"].to_list() == ["certified", "certified"]
    assert both["p_holm"].to_list() == pytest.approx([alone["p"], 2 * both["p"][1]])
    five = certificates(frame(5), [P1], claims)
    assert five["word"].to_list() == ["not shown", "certified"]
    assert five["n_needed"][0] > 200


def test_a_rater_that_fails_often_is_not_certified() -> None:
    one = certificates(frame(0, n_failed=50), [P1], [Claim("P1", 0.9)]).to_dicts()[0]
    assert (one["word"], one["k"], one["failed"]) == ("not shown", 50, 50)
    assert "75 %" in one["note"]


def test_a_claim_beyond_noise_uses_the_repeats() -> None:
    one = certificates(frame(6), [P1], [read_claim("P1-noise < 10 %")]).to_dicts()[0]
    assert (one["b"], one["c"], one["word"]) == (6, 0, "certified")
    failing = certificates(frame(0, n_failed=60), [P1], [read_claim("P1-noise<0.9")]).to_dicts()[0]
    assert (failing["word"], failing["failed"]) == ("not shown", 60)
    without = frame(6).filter(pl.col("repeat") == 0)
    found = certificates(without, [P1], [read_claim("P1-noise<0.1")]).to_dicts()[0]
    assert (found["word"], found["note"]) == ("not measured", "no view was run twice")


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: read_claim("P1 is stable"), "P1<0.10"),
        (lambda: read_claim("P1<1.5"), "between 0 and 1"),
        (lambda: certificates(frame(1), [P1], [Claim("P11", 0.1)]), "did you mean 'P1'"),
        (lambda: certificates(frame(1), [P1], []), "no claim"),
        (lambda: certificates(frame(1), [P3], [Claim("P3", 0.1, True)]), "aggregate"),
        (lambda: items_needed(0.05, 0.05), "cannot be certified"),
        (lambda: items_for_excess(0.3, 0.2), "discordant share"),
        (lambda: e_value(3, 2, 0.5), "between 0 and n"),
        (lambda: benjamini_hochberg([2.0]), "between 0 and 1"),
        (lambda: adjusted(pl.DataFrame({"p": [0.1]})), "lacks metric"),
    ],
)
def test_a_wrong_question_gets_a_clear_answer(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(Problem, match=says):
        ask()
