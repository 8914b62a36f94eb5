"""Intervals of all groups at once, against scipy and statsmodels one by one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.inter_rater import cohens_kappa

from flipmeter.measure import severity
from flipmeter.measure.aspects.direction import flip_matrix
from flipmeter.measure.aspects.severity import severity_estimates
from flipmeter.measure.panel.groups import Groups, one_group
from flipmeter.measure.statistics.bootstrap import bootstrap, jackknife, means

SIZES = (30, 200, 200, 1)
OF = Groups(np.repeat(np.arange(len(SIZES)), SIZES), len(SIZES))
VALUES = np.random.default_rng(1).exponential(size=sum(SIZES))


def test_the_interval_of_a_mean_is_scipys_but_for_the_draw_and_few_items() -> None:
    found = bootstrap(["mean"], [VALUES, np.ones(len(VALUES))], OF, n=OF.count())["mean"]
    for group in (1, 2):
        own = VALUES[OF.of == group]
        theirs = stats.bootstrap((own,), np.mean, rng=np.random.default_rng(2))
        low, high = theirs.confidence_interval
        width = high - low
        assert found.value[group] == pytest.approx(own.mean())
        assert found.low[group] == pytest.approx(low, abs=0.06 * width)
        assert found.high[group] == pytest.approx(high, abs=0.06 * width)


def test_one_item_has_a_value_and_no_interval() -> None:
    found = bootstrap(["mean"], [VALUES, np.ones(len(VALUES))], OF, n=OF.count())["mean"]
    assert found.value[3] == pytest.approx(VALUES[-1])
    assert np.isnan([found.low[3], found.high[3]]).all()
    assert found.note[3] == "no interval: the same in every resample"


def test_the_same_items_get_the_same_interval_in_any_company() -> None:
    columns = [VALUES, np.ones(len(VALUES))]
    together = bootstrap(["mean"], columns, OF, n=OF.count())["mean"]
    own = OF.of == 2
    alone = bootstrap(["mean"], [c[own] for c in columns], one_group(200), n=np.array([200]))
    assert alone["mean"].only().low == pytest.approx(together.low[2], rel=1e-6)  # single precision


def test_a_statistic_that_most_resamples_lose_has_no_interval() -> None:
    rare = np.zeros(40)
    rare[0] = 1.0
    found = bootstrap(["share"], [rare, rare], one_group(40), n=np.array([40]))["share"].only()
    assert found.value == 1
    assert np.isnan(found.low)


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
    spread = (np.arctanh(found.high) - np.arctanh(found.low)) / 2 / 1.96
    assert spread * (1 - found.value**2) == pytest.approx(theirs.std_kappa, rel=0.03)


def test_intervals_cover_a_planted_value_about_95_times_in_100() -> None:
    rng, n_draws, n_items = np.random.default_rng(6), 1000, 120
    groups = Groups(np.repeat(np.arange(n_draws), n_items), n_draws)
    first = rng.integers(1, 4, n_draws * n_items)
    second = np.where(rng.random(len(first)) < 0.3, rng.integers(1, 4, len(first)), first)
    pair = np.stack([first, second], axis=1)
    found = severity_estimates(pair, np.full(len(first), 3), groups)
    # Three in ten answers are drawn anew: a step of 1 has a chance of 4 in 9, one of 2 of 2 in 9.
    planted = {"distance": 0.3 * (4 / 9 + 2 * 2 / 9) / 2, "disagreement": 0.2, "far": 0.3 * 2 / 9}
    planted |= {"kappa": 0.7, "qwk": 0.7, "alpha": 0.7}
    for name, truth in planted.items():
        inside = (found[name].low <= truth) & (truth <= found[name].high)
        # 950 of 1,000, with a standard error of 7: four of them either way.
        assert 922 <= inside.sum() <= 978, name


def test_many_items_are_drawn_in_several_blocks() -> None:
    values = np.random.default_rng(4).normal(size=6000)
    found = bootstrap(["mean"], [values, np.ones(6000)], one_group(6000), n=np.array([6000]))
    one = found["mean"].only()
    half = 1.96 * values.std() / np.sqrt(6000)
    assert (one.high - one.low) / 2 == pytest.approx(half, rel=0.05)


def test_a_share_of_1_is_at_the_end_of_its_scale() -> None:
    columns = [np.ones(20), np.ones(20)]
    found = jackknife(["share"], columns, one_group(20), means, n=np.array([20]), scale="logit")
    one = found["share"].only()
    assert (one.value, np.isnan(one.low)) == (1, True)
