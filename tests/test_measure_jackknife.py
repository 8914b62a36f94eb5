"""Intervals of all groups at once, against statsmodels and planted values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.proportion import proportion_confint

from flipmeter.stats.formulas import exact_ends, share_ends
from flipmeter.stats.groups import Estimates, Groups, one_group
from flipmeter.stats.resampling import jackknife
from flipmeter.stats.severity import severity_estimates
from on_arrays import flip_matrix, severity

SIZES = (30, 200, 200, 1)
OF = Groups(np.repeat(np.arange(len(SIZES)), SIZES), len(SIZES))
VALUES = np.random.default_rng(1).uniform(size=sum(SIZES))
UNIT = [(0.0, 1.0)]


def test_the_interval_of_a_mean_is_students_but_for_one_item_more() -> None:
    found = jackknife(["mean"], [VALUES, np.ones(len(VALUES))], OF, reach=UNIT, n=OF.count())[
        "mean"
    ]
    for group in (1, 2):
        own = VALUES[OF.of == group]
        low, high = stats.t.interval(0.95, 199, own.mean(), stats.sem(own))
        assert found.value[group] == pytest.approx(own.mean())
        assert found.low[group] == pytest.approx(low, abs=0.05 * (high - low))
        assert found.high[group] == pytest.approx(high, abs=0.05 * (high - low))


def test_one_item_has_a_value_and_no_interval() -> None:
    found = jackknife(["mean"], [VALUES, np.ones(len(VALUES))], OF, reach=UNIT, n=OF.count())[
        "mean"
    ]
    assert found.value[3] == pytest.approx(VALUES[-1])
    assert np.isnan([found.low[3], found.high[3]]).all()
    assert found.note[3] == "no interval: 1 items; at least 5 are needed"


def test_the_same_items_get_the_same_interval_in_any_company() -> None:
    columns = [VALUES, np.ones(len(VALUES))]
    together = jackknife(["mean"], columns, OF, reach=UNIT, n=OF.count())["mean"]
    own = [column[OF.of == 2] for column in columns]
    alone = jackknife(["mean"], own, one_group(200), reach=UNIT, n=np.array([200]))["mean"].only()
    assert (alone.low, alone.high) == pytest.approx((together.low[2], together.high[2]))


def test_a_statistic_that_one_item_decides_has_no_interval() -> None:
    rare, rest = np.zeros(40), np.ones(40)
    rare[0] = 1.0
    found = jackknife(
        ["share"],
        [rare, rare, rest],
        one_group(40),
        lambda sums: np.where(
            sums[..., 1:2] > 0, sums[..., :1] / np.maximum(sums[..., 1:2], 1), np.nan
        ),
        reach=UNIT,
        n=np.array([40]),
    )["share"].only()
    assert found.value == 1
    assert np.isnan(found.low)
    assert "without one of the items" in found.note


def test_copies_of_items_do_not_narrow_an_interval() -> None:
    values, cluster = VALUES[:30], np.repeat(np.arange(30), 4)
    once = jackknife(["mean"], [values, np.ones(30)], one_group(30), reach=UNIT, n=np.array([30]))
    groups = Groups(np.zeros(120, dtype=np.int64), 1, cluster)
    columns = [np.repeat(values, 4), np.ones(120)]
    again = jackknife(["mean"], columns, groups, reach=UNIT, n=np.array([120]))["mean"].only()
    one = once["mean"].only()
    assert (again.low, again.high) == pytest.approx((one.low, one.high))
    hits = np.repeat(values > 0.8, 4)
    low, high = share_ends(hits, np.ones(120, bool), groups)
    exact = exact_ends(np.array([(values > 0.8).sum()]), np.array([30]))
    assert high[0] - low[0] > 0.9 * (exact[1][0] - exact[0][0])


@pytest.mark.parametrize(("k", "n"), [(0, 20), (1, 20), (20, 20), (7, 200)])
def test_a_share_has_the_exact_interval(k: int, n: int) -> None:
    low, high = exact_ends(np.array([k]), np.array([n]))
    assert (low[0], high[0]) == pytest.approx(proportion_confint(k, n, method="beta"))


@pytest.mark.parametrize(("power", "name"), [(0, "kappa"), (2, "qwk")])
def test_leaving_items_out_gives_the_spread_of_the_large_sample_formula(
    power: int, name: str
) -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(1, 4, 2000)
    second = np.where(rng.random(2000) < 0.3, rng.integers(1, 4, 2000), first)
    found = severity(np.stack([first, second], axis=1), 3)[name]
    apart = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    theirs = cohens_kappa(flip_matrix(first, second, 3), weights=np.where(apart, apart**power, 0))
    assert found.value == pytest.approx(theirs.kappa)
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(theirs.std_kappa, rel=0.03)


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("n_items", [20, 120])
def test_intervals_cover_a_planted_value_at_least_93_times_in_100(
    n_items: int, share: float
) -> None:
    rng, n_draws = np.random.default_rng(6), 1000
    groups = Groups(np.repeat(np.arange(n_draws), n_items), n_draws)
    first = rng.integers(1, 4, n_draws * n_items)
    second = np.where(rng.random(len(first)) < share, rng.integers(1, 4, len(first)), first)
    pair = np.stack([first, second], axis=1)
    found = severity_estimates(pair, 3, groups)
    # These answers are drawn anew: a step of 1 has a chance of 4 in 9, one of 2 of 2 in 9.
    planted = {"distance": share * (4 / 9 + 2 * 2 / 9) / 2, "disagreement": share * 2 / 3}
    planted |= {"far": share * 2 / 9, "kappa": 1 - share, "qwk": 1 - share, "alpha": 1 - share}
    for name, truth in planted.items():
        inside = (found[name].low <= truth + 1e-9) & (truth - 1e-9 <= found[name].high)
        given = ~np.isnan(found[name].low)
        assert given.mean() > 0.99, name
        assert inside.sum() / given.sum() > 0.915, name  # 93 % less two standard errors


@pytest.mark.parametrize("is_mixed", [False, True])
def test_items_that_add_the_same_are_left_out_once_for_all(
    monkeypatch: pytest.MonkeyPatch, is_mixed: bool
) -> None:
    rng = np.random.default_rng(4)
    sizes, values = (1100, 1300), rng.integers(0, 4, 2400) / 3
    of = np.repeat([0, 1], sizes)
    groups = Groups(rng.permutation(of) if is_mixed else of, 2, np.arange(2400))
    n_left_out = []

    def mean(sums: np.ndarray) -> np.ndarray:
        n_left_out.append(sums[..., 0].size)
        return np.asarray(sums[..., :1] / sums[..., 1:])

    found: list[Estimates] = []
    for many in (1000, 10**9):
        monkeypatch.setattr("flipmeter.stats.resampling.MANY", many)
        columns = [values, np.ones(2400)]
        found += jackknife(["mean"], columns, groups, mean, reach=UNIT, n=groups.count()).values()
    assert max(n_left_out[:4]) == 4 < max(n_left_out)
    assert (found[0].low == found[1].low).all()
    assert (found[0].high == found[1].high).all()
