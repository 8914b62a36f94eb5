"""Bounds, betting evidence and bounds after choosing, against planted rates."""

from __future__ import annotations

from functools import partial
from operator import le

import numpy as np
import pytest
from scipy import stats

from flipmeter.errors import Problem
from flipmeter.stats.bounds import (
    bounded_mean,
    bounded_share,
    fewest,
    mean_p,
    mean_upper,
    needed_above,
    needed_below,
    needed_mean_below,
    needed_real,
    share_p,
)
from flipmeter.stats.chosen import is_unreadable, simultaneous
from flipmeter.stats.groups import Floats
from flipmeter.stats.sequential import mean_bounds, mean_evidence, share_evidence
from on_arrays import allowed_flips
from planted_replies import flips

# --- shares -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "n"), [(0, 30), (4, 200), (7, 20), (20, 20)])
def test_one_pair_per_cluster_is_clopper_and_pearson(k: int, n: int) -> None:
    hits = np.arange(n) < k
    found = bounded_share(hits.astype(float), np.ones(n), 0.05)
    exact = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    one_sided = stats.binomtest(k, n, alternative="less").proportion_ci(0.95, method="exact")
    assert found.upper == pytest.approx(one_sided.high)


def test_the_bounds_of_a_share_and_of_its_complement_mirror_each_other() -> None:
    rng = np.random.default_rng(1)
    hits, trials = rng.binomial(3, 0.2, 40).astype(float), np.full(40, 3.0)
    one, other = bounded_share(hits, trials, 0.05), bounded_share(3 - hits, trials, 0.05)
    assert (one.low, one.upper) == pytest.approx((1 - other.high, 1 - other.lower))


@pytest.mark.parametrize("icc", [0.0, 0.3, 0.9])
def test_a_bound_over_seeds_holds_under_any_correlation(icc: float) -> None:
    rng, studies = np.random.default_rng(2), 400
    found = [
        bounded_share(
            flips(rng, n=60, seeds=5, rate=0.1, icc=icc).sum(axis=1), np.full(60, 5.0), 0.05
        )
        for _ in range(studies)
    ]
    allowed = 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies)
    assert np.mean([one.upper < 0.1 for one in found]) < allowed
    assert np.mean([one.lower > 0.1 for one in found]) < allowed


def test_a_few_items_that_always_flip_give_no_false_bound() -> None:
    rng, studies = np.random.default_rng(3), 400
    rate = 0.09 + 0.91 * 0.01
    false = 0
    for _ in range(studies):
        own = np.where(rng.random(30) < 0.09, 1.0, 0.01)
        hits = rng.binomial(5, own).astype(float)
        false += bounded_share(hits, np.full(30, 5.0), 0.05).upper < rate
    assert false / studies < 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies)


def test_nothing_seen_bounds_nothing() -> None:
    found = bounded_share(np.zeros(3), np.zeros(3), 0.05)
    assert (found.low, found.high, found.n) == (0.0, 1.0, 0)
    assert bounded_mean(np.zeros(0), 0.05).high == 1.0


# --- means ------------------------------------------------------------------------------------


def test_a_mean_of_hits_and_misses_is_held_to_clopper_and_pearson() -> None:
    values = (np.arange(100) < 4).astype(float)
    exact = stats.binomtest(4, 100, alternative="less").proportion_ci(0.95, method="exact")
    assert mean_upper(values, 0.05) >= exact.high - 1e-12


def test_bounds_of_many_columns_are_those_of_each() -> None:
    values = np.random.default_rng(4).uniform(-0.5, 1, (30, 3))
    together = mean_upper(values, 0.05)
    assert together.tolist() == pytest.approx([float(mean_upper(x, 0.05)) for x in values.T])


# --- betting ----------------------------------------------------------------------------------


def shown(rng: np.random.Generator, rate: float, margin: float) -> tuple[bool, bool]:
    seen = np.cumsum(rng.random(300) < rate)
    n = np.arange(1, 301)
    below, above = (share_evidence(seen, n, margin, side) for side in ("below", "above"))
    return bool((below >= 20).any()), bool((above >= 20).any())


def test_looking_after_every_item_settles_a_true_margin_rarely() -> None:
    rng, studies = np.random.default_rng(5), 400
    wrong = np.mean([shown(rng, 0.1, 0.1) for _ in range(studies)], axis=0)
    assert np.all(wrong < 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies))


def test_an_excess_far_from_the_margin_is_settled() -> None:
    rng = np.random.default_rng(6)
    low = rng.choice([-0.25, 0.0, 0.25], 400)
    assert mean_evidence(low, 0.1, "below")[-1] > 20
    assert mean_evidence(np.full(60, 0.5), 0.1, "above")[-1] > 20


def test_looking_at_an_excess_at_the_margin_settles_it_rarely() -> None:
    rng, studies = np.random.default_rng(7), 300
    wrong = 0
    for _ in range(studies):
        values = (rng.random(200) < 0.1).astype(float)
        wrong += mean_evidence(values, 0.1, "below").max() >= 20
    assert wrong / studies < 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies)


def test_bounds_by_betting_agree_with_the_evidence() -> None:
    values = np.random.default_rng(8).choice([-0.25, 0.0, 0.5], 80)
    low, high = mean_bounds(values)
    assert low <= values.mean() <= high
    assert mean_evidence(values, high + 1e-6, "below").max() >= 20
    assert mean_evidence(values, low - 1e-6, "above").max() >= 20
    assert mean_bounds([]) == (-0.5, 1.0)


def test_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(Problem, match="values must lie"):
        mean_evidence([2.0], 0.1, "below")
    with pytest.raises(Problem, match="a margin must lie"):
        mean_evidence([0.0], 1.0, "below")
    with pytest.raises(Problem, match="between 0 and n"):
        share_evidence(3, 2, 0.1, "below")


# --- after choosing ---------------------------------------------------------------------------


def correlated(rng: np.random.Generator, n: int, candidates: int, share: float) -> Floats:
    """Items x candidates of flips at a rate of 10 %, alike over candidates by a shared part."""
    common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, candidates))
    hidden = np.sqrt(share) * common + np.sqrt(1 - share) * own
    return np.asarray((hidden < stats.norm.ppf(0.1)).astype(np.float64))


@pytest.mark.parametrize("candidates", [1, 10, 40])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_candidates_at_the_limit_rarely_pass(candidates: int, share: float) -> None:
    rng, studies = np.random.default_rng(9), 100
    passed = 0
    for _ in range(studies):
        found = simultaneous(correlated(rng, 200, candidates, share))
        passed += any(one.upper < 0.1 for one in found.bounds)
    assert passed / studies < 0.05 + 2 * np.sqrt(0.05 * 0.95 / studies)


def test_candidates_that_flip_alike_cost_less_than_bonferroni() -> None:
    rng = np.random.default_rng(10)
    alike, apart = (simultaneous(correlated(rng, 200, 10, share)).level for share in (0.99, 0.0))
    assert apart == pytest.approx(0.005, abs=0.001)
    assert 0.01 < alike < 0.05
    assert simultaneous(correlated(rng, 200, 1, 0.0)).level == 0.05


def test_candidates_looked_at_and_dropped_still_count() -> None:
    found = simultaneous(np.zeros((100, 2)), looked_at=40)
    assert found.level == 0.05 / 40
    assert found.n_candidates == 40


def test_unreadable_pairs_of_a_candidate_are_left_out() -> None:
    hits, trials = np.zeros((50, 2)), np.ones((50, 2))
    trials[:20, 1] = 0
    one, other = simultaneous(hits, trials).bounds
    assert (one.n, other.n) == (50, 30)
    assert one.upper < other.upper


def test_flips_without_candidates_are_refused() -> None:
    with pytest.raises(Problem, match="items x candidates"):
        simultaneous([0.0, 1.0])
    with pytest.raises(Problem, match="align them"):
        simultaneous(np.zeros((3, 2)), np.ones((2, 2)))


# --- items needed -----------------------------------------------------------------------------


def test_items_needed_are_those_of_the_exact_binomial() -> None:
    assert needed_below(0.0, 0.10, 0.05) == 29
    for rate, margin in ((0.01, 0.05), (0.02, 0.05), (0.05, 0.10)):
        n = needed_below(rate, margin, 0.05) or 0
        assert stats.binom.cdf(allowed_flips(n, margin, 0.05), n, rate) >= 0.8
        fewer = [allowed_flips(m, margin, 0.05) for m in range(1, n)]
        assert np.max(stats.binom.cdf(fewer, np.arange(1, n), rate)) < 0.8
    assert allowed_flips(200, 0.10, 0.05) == 12
    assert allowed_flips(20, 0.10, 0.05) == -1


def test_items_needed_grow_as_a_rate_nears_the_margin() -> None:
    below = [needed_below(rate, 0.10, 0.05) or 0 for rate in (0.0, 0.03, 0.06)]
    above = [needed_above(rate, 0.10, 0.05) or 0 for rate in (0.4, 0.2, 0.13)]
    mean = [needed_mean_below(mean, 0.3, 0.10, 0.05) or 0 for mean in (0.0, 0.03, 0.06)]
    for needed in (below, above, mean):
        assert needed == sorted(needed)
        assert needed[0] > 0


def test_what_no_number_of_items_settles_has_none() -> None:
    assert needed_below(0.10, 0.10, 0.05) is None
    assert needed_above(0.10, 0.10, 0.05) is None
    assert needed_mean_below(0.2, 0.3, 0.10, 0.05) is None
    assert needed_real(0.7, 100, 0.05) is None
    assert needed_below(0.0999, 0.10, 0.05) is None


def test_a_few_items_that_always_flip_do_not_give_false_bounds() -> None:
    rng = np.random.default_rng(5)
    always, seldom, n, n_seeds = 0.05, 0.05, 25, 5
    rate, n_false = always + (1 - always) * seldom, 0
    for _ in range(600):
        chances = np.where(rng.random(n) < always, 1.0, seldom)
        hits = rng.binomial(n_seeds, chances).astype(np.float64)
        n_false += bounded_share(hits, np.full(n, float(n_seeds)), 0.05).upper < rate
    assert n_false / 600 < 0.07  # 0.15 without the pseudo-cluster


@pytest.mark.parametrize("top", [1.0, 2.5])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_the_p_of_a_mean_is_alpha_where_its_bound_is_the_margin(alpha: float, top: float) -> None:
    rng = np.random.default_rng(3)
    for values in (rng.uniform(-top, top, (12, 5)), np.zeros((9, 1)), rng.uniform(0, top, (40, 3))):
        upper = mean_upper(values, alpha, top)
        for column, bound in zip(values.T, upper, strict=True):
            assert float(mean_p(column, float(bound), top)) == pytest.approx(alpha, abs=1e-6)


def test_the_p_of_a_share_is_alpha_where_its_bound_is_the_margin() -> None:
    rng = np.random.default_rng(4)
    trials = np.full(30, 1.0)
    for rate in (0.0, 0.1, 0.4):
        hits = (rng.random(30) < rate).astype(float)
        upper = bounded_share(hits, trials, 0.05).upper
        assert share_p(hits, upper, 0.05, 1.0) == pytest.approx(0.05, abs=1e-6)


def test_the_fewest_that_suffice_are_not_below_the_start() -> None:
    for start, least in ((1, 1), (5, 3), (2, 7), (6, 6), (3, 1000)):
        assert fewest(partial(le, least), start) == max(start, least)
    assert fewest(lambda n: False) is None


def test_the_items_that_a_mean_needs_are_those_with_which_its_bound_is_below() -> None:
    for margin in (0.3, 0.1, 0.02):
        n = needed_mean_below(0.0, 0.0, margin, 0.05)
        assert n is not None
        assert mean_upper(np.zeros(n), 0.05) < margin <= mean_upper(np.zeros(n - 1), 0.05)


def test_as_many_unreadable_pairs_as_allowed_are_allowed() -> None:
    shares = np.array([0.05, 0.05 + 1e-12, 0.06, np.nan])
    assert is_unreadable(shares, 0.05).tolist() == [False, False, True, False]


def test_the_p_of_clustered_shares_is_no_smaller_than_its_bound_allows() -> None:
    """The effective number of items shrinks with the level, and the p-value allows for that."""
    hits, trials = np.repeat([0.0, 1.0, 2.0], [14, 8, 2]), np.full(24, 4.0)
    p = share_p(hits / trials, 0.3, 0.05, 4.0)
    assert p < 0.05
    assert bounded_share(hits, trials, p).upper <= 0.3
