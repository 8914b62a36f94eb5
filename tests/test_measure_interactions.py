"""Effects: the equations against another library, tests that hold their level, planted terms."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import special, stats

from flipmeter.design import Cell, cell_name, factorial, fractional, one_at_a_time
from flipmeter.design.coding import columns, main_terms, model_matrix
from flipmeter.design.quality import encode
from flipmeter.measure import effects
from flipmeter.measure.effects.crossed import Response
from flipmeter.measure.effects.gee import Fit, Link, Outcomes, fit, score_test
from flipmeter.measure.effects.interactions import Analysis
from flipmeter.measure.effects.variance_shares import Variance
from flipmeter.types import Contrast, Problem
from hand_made import PAPER

Floats = npt.NDArray[np.float64]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
LEVELS: dict[str, list[Any]] = {
    "label_format": ["numeric", "letter", "neutral_id"],
    "clarity": ["explicit", "minimal"],
    "shots": [5, 1, 3],
}


def answers(
    shares: Floats, n_items: int, chance: np.random.Generator, alike: float = 0.4
) -> Floats:
    """Draw yes or no of items in cells with these shares; an item answers alike in all cells."""
    own = chance.normal(size=(n_items, 1)) * np.sqrt(alike)
    mixed = own + chance.normal(size=(n_items, len(shares))) * np.sqrt(1 - alike)
    return np.asarray(mixed < stats.norm.ppf(shares), dtype=np.float64)


Planted = tuple[float, Mapping[str, Any]]
"""Log-odds, and the levels that a cell must have to get them."""


def shares(cells: Sequence[Cell], start: float, *planted: Planted) -> Floats:
    """Return the share of yes in each cell: log-odds at the base and what is planted."""
    total = np.full(len(cells), start)
    for size, levels in planted:
        total += [size * all(cell[name] == at for name, at in levels.items()) for cell in cells]
    return np.asarray(special.expit(total))


def response(levels: Mapping[str, Sequence[Any]], cells: Sequence[Cell], hits: Floats) -> Response:
    names = tuple(tuple(str(value) for value in values) for values in levels.values())
    stratum = np.zeros(len(hits), dtype=np.int64)
    outcomes = Outcomes(hits, np.ones_like(hits), stratum)
    return Response("r", "accuracy", tuple(levels), names, encode(levels, cells), outcomes)


def decided(
    levels: Mapping[str, Sequence[Any]],
    cells: Sequence[Cell],
    right: Floats,
    flipped: Floats | None = None,
    **key: Any,
) -> pl.DataFrame:
    """Write decisions of two classes, gold 1: items x cells that are right, and that flip."""
    base = {name: values[0] for name, values in levels.items()}
    item, cell = (places.ravel() for places in np.indices(right.shape))
    ranks = {"base": 2 - right.ravel().astype(int)}
    if flipped is not None:
        ranks["reversed"] = np.where(flipped.ravel() > 0, 3 - ranks["base"], ranks["base"])
    names = pl.Series([cell_name(base, one) for one in cells])
    shared = {
        "rater": "r",
        "dataset": "d",
        "seed": 0,
        "repeat": 0,
        "gold": 1,
        "n_classes": 2,
    } | key
    return pl.concat(
        pl.DataFrame(
            {"level": names[cell], "item": [f"i{at}" for at in item], "rank": of, "view": view}
        ).with_columns(**{name: pl.lit(value) for name, value in shared.items()})
        for view, of in ranks.items()
    )


def terms_of(table: pl.DataFrame, metric: str = "accuracy") -> dict[str, dict[str, Any]]:
    return {row["term"]: row for row in table.filter(level="", metric=metric).to_dicts()}


def found(table: pl.DataFrame, metric: str = "accuracy") -> set[str]:
    rows = table.filter(pl.col("term").str.contains(":"), metric=metric, level="", in_model=True)
    return set(rows["term"])


# The equations


def drawn(n_items: int, seed: int = 0, n_missing: int = 0) -> tuple[list[Cell], Floats, Floats]:
    cells = factorial(LEVELS)
    chance = np.random.default_rng(seed)
    planted = shares(cells, 0.4, (-0.6, {"shots": 1}), (0.5, {"clarity": "minimal"}))
    hits, trials = answers(planted, n_items, chance), np.ones((n_items, len(cells)))
    trials.flat[chance.choice(trials.size, n_missing, replace=False)] = 0
    return cells, hits * trials, trials


def coded(cells: Sequence[Cell]) -> Floats:
    names = list(LEVELS)
    codes = [[LEVELS[name].index(cell[name]) for name in names] for cell in cells]
    return model_matrix(np.array(codes), [3, 2, 3], [(0,), (1,), (2,), (0, 2)])[:, 1:]


def gee_of(y: Floats, x: Floats, groups: npt.NDArray[Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import statsmodels.api as sm
    return sm.GEE(
        y, x, groups, family=sm.families.Binomial(), cov_struct=sm.cov_struct.Independence()
    )


def test_coefficients_and_covariance_are_those_of_statsmodels() -> None:
    cells, hits, trials = drawn(40, n_missing=60)
    columns = coded(cells)
    mine = fit(Outcomes(hits, trials, np.zeros(40, dtype=np.int64)), columns)
    item, cell = np.nonzero(trials)
    design = np.column_stack([np.ones(len(cell)), columns[cell]])
    theirs = gee_of(hits[item, cell], design, item).fit()
    assert mine is not None
    np.testing.assert_allclose(mine.coefficients, theirs.params, atol=1e-6)
    np.testing.assert_allclose(mine.covariance, theirs.cov_params() * 40 / 39, rtol=1e-4, atol=1e-9)


def test_the_score_test_is_that_of_statsmodels_but_for_the_centre() -> None:
    """Theirs does not subtract the mean score of an item: t / (1 + t / n) instead of t."""
    cells, hits, trials = drawn(40, n_missing=60)
    columns = coded(cells)
    outcomes = Outcomes(hits, trials, np.zeros(40, dtype=np.int64))
    mine = score_test(outcomes, columns[:, :-4], columns[:, -4:])
    item, cell = np.nonzero(trials)
    design = np.column_stack([np.ones(len(cell)), columns[cell]])
    full, without = (gee_of(hits[item, cell], part, item) for part in (design, design[:, :-4]))
    theirs = full.compare_score_test(without.fit())
    t = mine.statistic * (39 * 4) / (39 - 4 + 1) * 40 / 39
    assert t / (1 + t / 40) == pytest.approx(theirs["statistic"], rel=1e-4)
    assert (mine.df, theirs["df"]) == (4, 4)


def test_a_linear_fit_of_complete_data_is_hotellings_test_of_the_items_own_contrasts() -> None:
    cells, hits, trials = drawn(25)
    columns = coded(cells)
    outcomes = Outcomes(hits, trials, np.zeros(25, dtype=np.int64))
    mine = score_test(outcomes, columns[:, :-4], columns[:, -4:], "identity")
    own = hits @ columns[:, -4:] / len(cells)  # full factorial: columns are orthonormal
    mean, spread = own.mean(axis=0), np.cov(own.T)
    t_squared = 25 * mean @ np.linalg.solve(spread, mean)
    assert mine.statistic == pytest.approx(t_squared * (25 - 4) / (24 * 4))
    assert mine.p == pytest.approx(stats.f(4, 21).sf(mine.statistic))


def test_datasets_are_strata_whose_spread_is_their_own() -> None:
    cells, hits, trials = drawn(30)
    stratum = np.repeat([0, 1], [12, 18])
    columns = coded(cells)
    mine = fit(Outcomes(hits, trials, stratum), columns, "identity")
    own = hits @ columns / len(cells)
    parts = [own[stratum == place] for place in (0, 1)]
    wanted = sum(len(part) * np.cov(part.T) for part in parts) / 30**2
    assert mine is not None
    np.testing.assert_allclose(mine.covariance[2:, 2:], wanted, atol=1e-12)
    assert mine.freedom == 28


def test_seeds_are_several_trials_of_one_item() -> None:
    cells, hits, trials = drawn(20)
    columns = coded(cells)
    none = np.zeros(20, dtype=np.int64)
    once, twice = (fit(Outcomes(k * hits, k * trials, none), columns) for k in (1, 2))
    assert once is not None
    assert twice is not None
    np.testing.assert_allclose(once.covariance, twice.covariance, rtol=1e-6)


# Tests hold their level


@pytest.mark.parametrize(("start", "n_items"), [(0.8, 30), (-2.2, 30)])
def test_what_is_not_there_is_reported_in_five_of_a_hundred(start: float, n_items: int) -> None:
    """Two main effects and no interaction; 4 standard errors of 500 draws around 5 %."""
    cells, columns = factorial(LEVELS), coded(factorial(LEVELS))
    planted = shares(cells, start, (-0.5, {"shots": 1}), (0.4, {"label_format": "letter"}))
    chance, none = np.random.default_rng(7), np.zeros(n_items, dtype=np.int64)
    p = []
    for _ in range(500):
        hits = answers(planted, n_items, chance)
        outcomes = Outcomes(hits, np.ones_like(hits), none)
        p.append(score_test(outcomes, columns[:, :-4], columns[:, -4:]).p)
    rate = (np.array(p) < 0.05).mean()
    assert 0.01 < rate < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 500)


# Planted terms


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_interaction_is_found_in_thirty_six_cells_and_nothing_else(seed: int) -> None:
    cells = fractional(PAPER, 36)
    chance = np.random.default_rng(seed)
    right = answers(shares(cells, 0.8, (-0.7, {"shots": 0})), 60, chance)
    together = [
        (2.5, {"label_format": label, "clarity": "minimal"}) for label in ("letter", "neutral_id")
    ]
    flips = answers(shares(cells, -1.5, *together), 60, chance)
    table = effects(decided(PAPER, cells, right, flips), [P1])
    assert found(table, "P1") == {"label_format:clarity"}
    assert found(table, "accuracy") == set()
    significant = table.filter(pl.col("p_holm") < 0.05)
    assert set(significant.filter(metric="accuracy")["term"]) == {"shots"}
    assert set(significant.filter(metric="P1")["term"]) <= {
        "label_format",
        "clarity",
        "label_format:clarity",
    }


def test_an_honest_table_seldom_finds_an_interaction() -> None:
    cells, n = fractional(LEVELS, 12), 150
    chance, planted = (
        np.random.default_rng(3),
        shares(fractional(LEVELS, 12), 0.5, (-0.6, {"shots": 1})),
    )
    draws = [response(LEVELS, cells, answers(planted, 40, chance)) for _ in range(n)]
    false = np.mean([bool(Analysis(one, "logit").found) for one in draws])
    assert false < 0.05 + 4 * np.sqrt(0.05 * 0.95 / n)


def test_values_are_differences_of_means_where_the_design_is_complete() -> None:
    cells, hits, _ = drawn(50)
    table = effects(decided(LEVELS, cells, hits), [], link="identity")
    means = {
        tuple(cell.values()): mean for cell, mean in zip(cells, hits.mean(axis=0), strict=True)
    }
    minimal = np.mean([m for cell, m in means.items() if cell[1] == "minimal"])
    explicit = np.mean([m for cell, m in means.items() if cell[1] == "explicit"])
    (row,) = table.filter(term="clarity", level="minimal").to_dicts()
    assert row["value"] == pytest.approx(100 * (minimal - explicit))
    assert row["low"] < row["value"] < row["high"]

    def at(clarity: str, shots: int) -> float:
        return float(np.mean([m for cell, m in means.items() if cell[1:] == (clarity, shots)]))

    (row,) = table.filter(term="clarity:shots", level="minimal,1").to_dicts()
    together = at("minimal", 1) - at("explicit", 1) - at("minimal", 5) + at("explicit", 5)
    assert row["value"] == pytest.approx(100 * together)


def test_log_odds_give_nearly_the_same_points() -> None:
    cells, hits, _ = drawn(200)
    frame = decided(LEVELS, cells, hits)
    logit, linear = (effects(frame, [], link=link) for link in ("logit", "identity"))
    both = logit.join(linear, on=["term", "level"], suffix="_linear").drop_nulls("value")
    assert both.height > 5
    assert (both["value"] - both["value_linear"]).abs().max() < 1  # type: ignore[operator]


def test_intervals_cover_the_planted_difference() -> None:
    cells, n = factorial(LEVELS), 150
    planted = shares(cells, 0.5, (-0.8, {"clarity": "minimal"}))
    is_minimal = np.array([cell["clarity"] == "minimal" for cell in cells])
    wanted = 100 * (planted[is_minimal].mean() - planted[~is_minimal].mean())
    chance, hit = np.random.default_rng(11), 0
    for _ in range(n):
        found = Analysis(response(LEVELS, cells, answers(planted, 30, chance)), "logit")
        model = found.model([(0,), (1,), (2,)])
        minimal, explicit = (
            np.where([False, True, False], at, found.response.codes) for at in (1, 0)
        )
        _, low, high = model.change([(1, minimal), (-1, explicit)])
        hit += low < wanted < high
    assert abs(hit / n - 0.95) < 4 * np.sqrt(0.05 * 0.95 / n)


# Shares of variance


def test_shares_of_a_complete_design_are_those_of_the_analysis_of_variance() -> None:
    """A naive twin: the squared deviations of marginal means; balanced, they add up."""
    cells, hits, _ = drawn(80)
    table = terms_of(effects(decided(LEVELS, cells, hits), []))
    means = hits.mean(axis=0).reshape(3, 2, 3)
    total = ((means - means.mean()) ** 2).sum()
    axes = dict(zip(LEVELS, range(3), strict=True))
    for name, axis in axes.items():
        own = means.mean(axis=tuple({0, 1, 2} - {axis}))
        squares = ((own - means.mean()) ** 2).sum() * means.size / len(own)
        assert table[name]["share"] == pytest.approx(squares / total)
    left = 1 - sum(table[name]["share"] for name in LEVELS)
    assert table["(rest)"]["share"] == pytest.approx(left)
    both = means.mean(axis=1) - means.mean(axis=(1, 2))[:, None] - means.mean(axis=(0, 1))[None]
    squares = 2 * ((both + means.mean()) ** 2).sum()
    assert table["label_format:shots"]["share"] == pytest.approx(squares / total)


def test_without_any_effect_shares_are_about_what_chance_makes() -> None:
    cells, chance = factorial(LEVELS), np.random.default_rng(5)
    codes, sizes = encode(LEVELS, cells), [3, 2, 3]
    apart = []
    for _ in range(200):
        hits = answers(np.full(len(cells), 0.6), 60, chance)
        parts = Variance(response(LEVELS, cells, hits).outcomes)
        each = [columns(codes, sizes, term) for term in main_terms(sizes)]
        found = [parts.share(np.zeros((len(cells), 0)), own) for own in each]
        found.append(parts.rest(np.hstack(each)))
        apart.append([parts.total * (share.value - share.by_chance) for share in found])
    error = np.std(apart, axis=0) / np.sqrt(len(apart))
    assert (np.abs(np.mean(apart, axis=0)) < 4 * error).all()


def test_what_differs_between_datasets_is_a_part_of_its_own() -> None:
    cells, chance = factorial(LEVELS), np.random.default_rng(6)
    planted = [shares(cells, 0.5, (size, {"clarity": "minimal"})) for size in (1.5, -1.5)]
    frame = pl.concat(
        decided(LEVELS, cells, answers(share, 80, chance), dataset=name)
        for share, name in zip(planted, "ab", strict=True)
    )
    table = terms_of(effects(frame, []))
    assert table["(datasets)"]["share"] > 0.7
    assert table["clarity"]["share"] < 0.1
    assert table["clarity"]["n_items"] == 160


# What cannot be told


def test_one_factor_at_a_time_sees_main_effects_and_no_interaction() -> None:
    cells = one_at_a_time(LEVELS)
    hits = answers(shares(cells, 0.5, (-1.5, {"shots": 1})), 80, np.random.default_rng(1))
    table = terms_of(effects(decided(LEVELS, cells, hits), []))
    assert table["shots"]["p"] < 0.001
    pairs = [row for term, row in table.items() if ":" in term]
    assert len(pairs) == 3
    for row in pairs:
        assert (row["df"], row["p"], row["standing"]) == (0, None, "aliased")
        assert "not estimable" in row["note"]


def test_an_interaction_that_is_another_is_said_to_be() -> None:
    """The half fraction with ABCD = 1: AB cannot be told from CD."""
    levels = {name: [0, 1] for name in ("label_format", "clarity", "mood", "shots")}
    half = [cell for cell in factorial(levels) if sum(cell.values()) % 2 == 0]
    planted = shares(half, -1.0, (2.5, {"label_format": 1, "clarity": 1}))
    hits = answers(planted, 100, np.random.default_rng(2))
    table = terms_of(effects(decided(levels, half, hits), []))
    first, other = table["label_format:clarity"], table["mood:shots"]
    assert [first["in_model"], other["in_model"]] == [True, False]
    assert other["standing"] == "shared"
    assert (other["df"], other["p"]) == (0, None)
    assert "beside label_format:clarity" in other["note"]


def test_a_level_that_never_flips_is_tested_on_the_linear_scale_and_says_so() -> None:
    cells, chance = factorial(LEVELS), np.random.default_rng(4)
    flips = answers(np.full(len(cells), 0.3), 60, chance)
    flips[:, [cell["clarity"] == "minimal" for cell in cells]] = 0
    frame = decided(LEVELS, cells, np.ones_like(flips), flips)
    table = terms_of(effects(frame, [P1]), "P1")
    assert (table["clarity"]["link"], table["label_format"]["link"]) == ("logit", "identity")
    assert "no variation" in table["label_format"]["note"]
    (minimal,) = effects(frame, [P1]).filter(metric="P1", level="minimal").to_dicts()
    assert (minimal["link"], round(minimal["value"])) == (
        "identity",
        round(-100 * flips.mean() * 2),
    )
    assert table["clarity"]["p"] < 0.001
    assert table["label_format"]["p"] > 0.001
    constant = terms_of(effects(frame, [P1]), "accuracy")
    assert (constant["clarity"]["df"], constant["clarity"]["p"]) == (None, None)
    assert "the same everywhere" in constant["clarity"]["note"]


def test_cells_in_which_a_contrast_cannot_be_read_are_left_out_of_it_alone() -> None:
    cells, chance = factorial(LEVELS), np.random.default_rng(8)
    flips = answers(np.full(len(cells), 0.3), 40, chance)
    frame = decided(LEVELS, cells, answers(np.full(len(cells), 0.6), 40, chance), flips)
    gone = pl.col("level").str.contains("shots=1") & (pl.col("view") == "reversed")
    table = effects(frame.filter(~gone), [P1])
    assert terms_of(table, "P1")["shots"]["n_cells"] == 12
    assert terms_of(table, "P1")["shots"]["df"] == 1
    assert terms_of(table, "accuracy")["shots"]["df"] == 2


def test_raters_are_adjusted_each_for_their_own_tests() -> None:
    cells, hits, _ = drawn(40)
    frame = decided(LEVELS, cells, hits)
    both = effects(pl.concat([frame, frame.with_columns(rater=pl.lit("other"))]), [])
    alone = effects(frame, [])
    for column in ("p", "p_holm", "p_bh", "share"):
        assert both.filter(rater="r")[column].equals(alone[column])
    assert (alone["p_holm"] >= alone["p_bh"] - 1e-12).all()


def test_a_study_of_one_cell_has_no_effects() -> None:
    cells, hits, _ = drawn(10)
    with pytest.raises(Problem, match="only one cell"):
        effects(decided(LEVELS, cells[:1], hits[:, :1]), [])


def test_cells_that_are_all_alike_have_no_variance_to_share() -> None:
    cells = factorial(LEVELS)
    yes = np.repeat(np.arange(40)[:, None] % 3 > 0, len(cells), axis=1).astype(np.float64)
    table = effects(decided(LEVELS, cells, yes, 0 * yes), [P1]).filter(metric="accuracy")
    assert table["share"].null_count() == len(table)
    assert not (table["p"] < 0.05).any()


@pytest.mark.parametrize("link", ["logit", "identity"])
def test_the_slope_of_a_fit_is_the_derivative_of_its_mean(link: Link) -> None:
    rows = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, -1.0]])
    start, step = np.array([0.2, 0.3]), 1e-6
    found = Fit(start, np.eye(2), link, 9).slope(rows)
    for at in range(2):
        up, down = (
            Fit(start + sign * step * np.eye(2)[at], np.eye(2), link, 9) for sign in (1, -1)
        )
        assert (up.mean(rows) - down.mean(rows)) / (2 * step) == pytest.approx(found[:, at])


def test_as_many_degrees_of_freedom_as_columns_are_enough_for_a_test() -> None:
    cells, _, _ = drawn(5)
    hits = np.random.default_rng(3).random((5, len(cells)))
    columns = coded(cells)
    outcomes = Outcomes(hits, np.ones_like(hits), np.zeros(5, dtype=np.int64))
    found = score_test(outcomes, columns[:, :-4], columns[:, -4:], "identity")
    assert found.p == pytest.approx(stats.f(4, 1).sf(found.statistic))


def test_the_interval_of_a_linear_change_is_that_of_a_paired_t_test() -> None:
    levels = {"clarity": ["explicit", "minimal"]}
    hits = answers(np.array([0.7, 0.4]), 30, np.random.default_rng(12))
    found = Analysis(response(levels, factorial(levels), hits), "identity").model([(0,)])
    value, low, high = found.change([(1, np.array([[1], [1]])), (-1, np.array([[0], [0]]))])
    theirs = stats.ttest_rel(hits[:, 1], hits[:, 0]).confidence_interval()
    assert value == pytest.approx(100 * (hits[:, 1] - hits[:, 0]).mean())
    assert (low, high) == pytest.approx((100 * theirs.low, 100 * theirs.high))
