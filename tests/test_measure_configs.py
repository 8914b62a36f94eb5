"""Configs: how they are chosen, what their levels add up to, and how they transfer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter.measure import (
    PROMPT_FACTORS,
    forecasts,
    objectives,
    residuals,
    select_greedy,
    transfer,
)
from flipmeter.measure.effects.additive import additive
from flipmeter.study.configs import configs
from flipmeter.types import Contrast, Mode, Problem, Style
from hand_made import group, one

CASES = json.loads((Path(__file__).parent / "cases" / "measure_configs.json").read_text("utf-8"))
CHOSEN = [case for case in CASES if case["function"] == "select_greedy"]
ADDED = [case for case in CASES if case["function"] == "additive"]
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
P2A = Contrast("P2a", ("random", "ascending"), probe="demo_order")
MOOD, SHOTS = "mood=indicative", "shots=1"
MINE = {"A": {"mood": "indicative", "shots": 1}}


def by_name(case: dict[str, Any]) -> str:
    return str(case["config"])


def long_form(cases: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Write the residuals of several metrics as `residuals` does."""
    return pl.DataFrame(
        {"factor": factor, "level": level, "metric": case["metric"], "value": value}
        | {"rater": "r", "dataset": ""}
        for case in cases
        for factor, levels in case["residuals"].items()
        for level, value in levels.items()
    )


# The six configs of the paper


@pytest.mark.parametrize("case", CHOSEN, ids=by_name)
def test_greedy_choice_gives_the_configs_of_the_paper(case: dict[str, Any]) -> None:
    chosen = select_greedy(case["residuals"], baseline=Style(), metric=case["metric"])
    assert {factor: asdict(chosen.style)[factor] for factor in PROMPT_FACTORS} == case["expected"]
    assert "interactions are ignored" in chosen.warning


@pytest.mark.parametrize("case", CHOSEN, ids=by_name)
def test_a_long_table_gives_the_same_choice_whatever_else_it_holds(case: dict[str, Any]) -> None:
    best = -99.0 if case["metric"] != "accuracy" else 99.0
    plain = {"metric": case["metric"], "value": best, "rater": "r", "dataset": ""}
    others = [
        plain | {"factor": "cardinality", "level": "2"},
        plain | {"factor": "model", "level": "s", "rater": "s"},
        plain | {"factor": "config", "level": "A"},
        plain | {"factor": "separator", "level": "space", "dataset": "one of two"},
    ]
    table = pl.concat([long_form(CHOSEN), pl.DataFrame(others)], how="diagonal")
    chosen = select_greedy(table, baseline=Style(), metric=case["metric"])
    assert {factor: asdict(chosen.style)[factor] for factor in PROMPT_FACTORS} == case["expected"]


@pytest.mark.parametrize("case", CHOSEN, ids=by_name)
def test_the_catalogue_holds_what_the_paper_chose_and_names_no_base(case: dict[str, Any]) -> None:
    config = configs[case["config"]]
    assert asdict(replace(Style(), **config)) == asdict(Style()) | case["expected"]
    assert all(value != getattr(Style(), factor) for factor, value in config.items())
    assert config.about


@pytest.mark.parametrize("case", ADDED, ids=by_name)
def test_levels_add_up_to_the_forecasts_of_the_reference(case: dict[str, Any]) -> None:
    (source,) = (other for other in CHOSEN if other["config"] == case["config"])
    chosen = select_greedy(source["residuals"], baseline=Style(), metric=source["metric"])
    forecast = additive(case["baseline"], list(chosen.residuals.values()))
    assert forecast == pytest.approx(case["expected"], abs=5e-4)


def test_an_unknown_config_answers_with_what_there_is() -> None:
    assert list(configs) == ["A", "P1", "P2a", "P2b", "P3a", "P3b"]
    with pytest.raises(Problem, match="did you mean 'P2a'"):
        configs["P2aa"]


# Choosing

points = st.one_of(st.none(), st.floats(-50, 50), st.just(0.0))
tables = st.dictionaries(
    st.sampled_from(PROMPT_FACTORS), st.dictionaries(st.sampled_from("0123"), points), min_size=1
)


@given(tables, st.sampled_from(["accuracy", "spearman", "mae", "P3b"]))
def test_no_level_is_better_than_the_chosen_one_and_none_is_chosen_that_does_not_improve(
    table: dict[str, dict[str, float | None]], metric: str
) -> None:
    sign = 1 if metric in ("accuracy", "spearman") else -1
    chosen = select_greedy(table, baseline=Style(), metric=metric)
    for factor, levels in table.items():
        gains = [sign * value for value in levels.values() if value is not None]
        mine = sign * chosen.residuals.get(factor, 0.0)
        assert mine == pytest.approx(max([0.0, *gains]), abs=1e-9)
        assert (factor in chosen.levels) == (mine > 0)


def test_the_choice_of_a_run_is_made_on_its_own_residuals() -> None:
    gold = [1, 2, 3, 4]
    answers = {
        "": [1, 2, 4, 5],
        "mood=indicative": [1, 2, 3, 5],
        "mood=interrogative": [1, 2, 3, 4],
        "shots=0": [1, 2, 4, 5],
        "shots=1": [2, 3, 4, 5],
        "cardinality=3": [1, 2, 3, 3],
    }
    table = residuals(pl.concat(group(a, gold=gold, level=of) for of, a in answers.items()), [])
    base = Style(shots=3)
    chosen = select_greedy(table, baseline=base, metric="acc")
    assert chosen.levels == {"mood": "interrogative"}
    assert chosen.residuals == {"mood": pytest.approx(50)}
    assert chosen.style == Style(shots=3, mood="interrogative")
    assert objectives(table) == ["accuracy"]


@pytest.mark.parametrize(
    ("name", "metric"), [("ACC", "accuracy"), ("p1", "P1"), ("mae", "mae_normalised")]
)
def test_metrics_have_the_short_names_of_the_paper_too(name: str, metric: str) -> None:
    frame = pl.concat(
        group([1, 2], [1, 2], gold=[1, 2], level=level) for level in ("", "mood=indicative")
    )
    assert select_greedy(residuals(frame, [P1]), baseline=Style(), metric=name).metric == metric


def test_what_cannot_be_chosen_from_is_refused() -> None:
    table = long_form(CHOSEN[:1])
    with pytest.raises(Problem, match="did you mean 'accuracy'"):
        select_greedy(table, baseline=Style(), metric="accurac")
    two = pl.concat([table, table.with_columns(rater=pl.lit("s"))])
    with pytest.raises(Problem, match="'r', 's'; choose for one rater"):
        select_greedy(two, baseline=Style(), metric="accuracy")
    with pytest.raises(Problem, match="lack the columns 'value'"):
        select_greedy(table.drop("value"), baseline=Style(), metric="accuracy")


# What levels add up to


def joint(answers: dict[str, Sequence[int]], **key: Any) -> pl.DataFrame:
    """Write the decisions of a config and of its parts, all on the same four items."""
    gold = {"gold": [1, 2, 3, 4]} | key
    return pl.concat(group(own, level=level, **gold) for level, own in answers.items())


BASE, RIGHT = [1, 2, 4, 5], [1, 2, 3, 4]
TOGETHER: dict[str, Sequence[int]] = {
    "": BASE,  # 0.5
    MOOD: [1, 2, 3, 5],  # 0.75
    SHOTS: [1, 3, 4, 5],  # 0.25
    "config=A": RIGHT,  # 1, and 0.5 were forecast
}


@pytest.mark.parametrize("mode", ["paper", "recommended"])
def test_the_interaction_is_what_was_measured_minus_what_the_levels_add_up_to(mode: Mode) -> None:
    row = one(forecasts(joint(TOGETHER), [], MINE, mode=mode), "accuracy")
    found = [row[name] for name in ("baseline", "forecast", "measured", "interaction")]
    assert found == pytest.approx([0.5, 0.5, 1.0, 0.5])
    assert (row["config"], row["levels"], row["n"]) == ("A", "mood=indicative, shots=1", 4)
    assert ("at least 5 are needed" in row["note"]) == (mode == "recommended")


def test_seeds_are_averaged_first_and_then_datasets() -> None:
    none = TOGETHER | {"config=A": [2, 3, 4, 5]}
    frame = pl.concat(
        [
            joint(TOGETHER, dataset="a", seed=0),
            joint(none, dataset="a", seed=1),
            joint(TOGETHER, dataset="b", seed=0),
        ]
    )
    table = forecasts(frame, [], MINE, mode="paper")
    assert one(table, "accuracy", "a")["measured"] == pytest.approx(0.5)
    row = one(table, "accuracy")
    assert (row["measured"], row["interaction"]) == (pytest.approx(0.75), pytest.approx(0.25))
    assert (row["n_datasets"], row["n_seeds"]) == (2, 1)


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=4, max_size=4))
def test_forecasts_agree_with_residuals(answers: list[list[int]]) -> None:
    levels = ["", MOOD, SHOTS, "config=A"]
    gold = [1, 2, 3, 4, 5, 1]
    frame = pl.concat(
        group(own, own[::-1], gold=gold, level=level)
        for level, own in zip(levels, answers, strict=True)
    )
    table, points = (make(frame, [P1], mode="paper") for make in (_forecast_mine, residuals))
    for metric in ("accuracy", "mae", "P1"):
        row = one(table, metric)
        alone = [one(points, metric, factor=of)["value"] for of in ("mood", "shots", "config")]
        if None in alone:
            assert row["forecast"] is None
            assert row["note"]
        else:
            assert 100 * (row["forecast"] - row["baseline"]) == pytest.approx(sum(alone[:2]))
            assert 100 * (row["measured"] - row["baseline"]) == pytest.approx(alone[2])


def _forecast_mine(
    frame: pl.DataFrame, contrasts: Sequence[Contrast], *, mode: Mode
) -> pl.DataFrame:
    return forecasts(frame, contrasts, MINE, mode=mode)


def test_intervals_cover_a_planted_interaction_about_95_times_in_100() -> None:
    chance = np.random.default_rng(5)
    n_items, n_datasets = 80, 60
    right = {"": 0.5, MOOD: 0.6, SHOTS: 0.7, "config=A": 0.9}  # 0.8 if nothing interacts
    frame = pl.concat(
        group(
            np.where(chance.random(n_items) < share, 1, 2).tolist(),
            gold=[1] * n_items,
            dataset=f"d{dataset}",
            level=level,
        )
        for dataset in range(n_datasets)
        for level, share in right.items()
    )
    rows = forecasts(frame, [], MINE).filter(pl.col("dataset") != "", metric="accuracy")
    covers = (rows["interaction_low"] <= 0.1) & (rows["interaction_high"] >= 0.1)
    assert 0.88 <= covers.mean() <= 1  # type: ignore[operator]
    measured = (rows["measured_low"] <= 0.9) & (rows["measured_high"] >= 0.9)
    assert 0.85 <= measured.mean() <= 1  # type: ignore[operator]


def test_a_level_that_was_not_asked_alone_is_named() -> None:
    more = MINE | {"P1": {"mood": "indicative", "clarity": "minimal"}}
    frame = joint(TOGETHER | {"config=P1": RIGHT})
    row = one(forecasts(frame, [], more), "accuracy", config="P1")
    assert (row["forecast"], row["note"]) == (None, "not asked alone: clarity=minimal")
    with pytest.raises(Problem, match="clarity=minimal was not varied alone; add it"):
        forecasts(frame.filter(pl.col("level") != "config=A"), [], more)


def test_all_numbers_are_about_the_items_that_all_parts_have() -> None:
    frame = joint(TOGETHER)
    fewer = frame.filter(~((pl.col("level") == MOOD) & (pl.col("item") == "i0")))
    row = one(forecasts(fewer, [], MINE), "accuracy")
    assert (row["measured"], row["baseline"]) == (1.0, pytest.approx(1 / 3))
    assert row["note"].startswith("on the 3 items in common; no interval: 3 items")


def test_what_a_part_cannot_show_is_not_forecast() -> None:
    views = {"random": RIGHT, "ascending": BASE}
    with_views = {level: own for level, own in TOGETHER.items() if level != SHOTS}
    frame = pl.concat([joint(with_views, views=views), joint({SHOTS: BASE})])
    row = one(forecasts(frame, [P2A], MINE), "P2a")
    assert (row["forecast"], row["measured"]) == (None, None)
    assert row["note"].startswith("shots=1: not applicable")


# How configs transfer


def transferred(*rows: tuple[str, str, str, int, Sequence[int]]) -> pl.DataFrame:
    return pl.concat(
        group(own, gold=RIGHT, rater=rater, level=level, dataset=dataset, seed=seed)
        for rater, level, dataset, seed, own in rows
    )


def test_a_model_is_held_against_the_reference_under_the_same_config() -> None:
    three, none = [1, 2, 3, 5], [2, 3, 4, 5]
    frame = transferred(
        ("other", "", "a", 0, RIGHT),
        ("other", "config=A", "a", 0, RIGHT),  # 100
        ("other", "config=A", "a", 1, BASE),  # 50: a is 75
        ("other", "config=A", "b", 0, three),
        ("other", "config=A", "b", 1, three),  # b is 75
        ("ref", "", "a", 0, RIGHT),
        ("ref", "config=A", "a", 0, none),
        ("ref", "config=A", "a", 1, none),  # a is 0
        ("ref", "config=A", "b", 0, RIGHT),
        ("ref", "config=A", "b", 1, BASE),  # b is 75
    )
    table = transfer(frame, [], "ref", mode="paper")
    assert table["level"].unique(maintain_order=True).to_list() == ["baseline", "A"]
    row = one(table, "accuracy", level="A")
    assert (row["value"], row["dataset_sd"]) == (pytest.approx(37.5), pytest.approx(37.5))
    assert (row["rater"], row["against"], row["factor"]) == ("other", "ref", "transfer")
    assert one(table, "accuracy", level="baseline")["value"] == 0


def some_transfer() -> pl.DataFrame:
    chance = np.random.default_rng(2)
    return pl.concat(
        group(
            *chance.integers(0, 6, (2, 12)).tolist(),
            gold=[1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2],
            rater=rater,
            level=level,
            dataset=dataset,
        )
        for rater in ("ref", "x", "y")
        for level in ("", "config=A", "mood=indicative")
        for dataset in ("a", "b", "c")
    )


@pytest.mark.parametrize("mode", ["paper", "recommended"])
@pytest.mark.parametrize(("config", "level"), [("baseline", ""), ("A", "config=A")])
def test_a_config_transfers_as_a_model_differs_in_a_study_of_that_config_alone(
    config: str, level: str, mode: Mode
) -> None:
    frame = some_transfer()
    table = transfer(frame, [P1], "ref", mode=mode).filter(level=config)
    alone = frame.filter(level=level).with_columns(level=pl.lit(""))
    wanted = residuals(alone, [P1], mode=mode)
    assert table.drop("factor", "level").equals(wanted.drop("factor", "level"))


def test_the_other_way_round_every_difference_has_the_other_sign() -> None:
    frame = some_transfer().filter(pl.col("rater") != "y")
    there, back = (transfer(frame, [P1], name) for name in ("ref", "x"))
    assert there["value"].to_list() == pytest.approx([-value for value in back["value"]])
    assert there["low"].to_list() == pytest.approx([-value for value in back["high"]])


def test_one_factor_levels_are_no_configs() -> None:
    levels = transfer(some_transfer(), [], "y")["level"].unique(maintain_order=True)
    assert levels.to_list() == ["baseline", "A"]


def test_a_side_without_a_number_is_called_by_its_name() -> None:
    frame = transferred(("x", "config=A", "d", 0, RIGHT), ("ref", "config=A", "d", 0, [2, 2, 2, 2]))
    row = one(transfer(frame, [], "ref"), "spearman")
    assert row["value"] is None
    assert row["note"] == "ref: undefined: gold or answers are constant"


def test_what_has_no_transfer_is_refused() -> None:
    frame = some_transfer()
    with pytest.raises(Problem, match="no model named 'reff' in this run; did you mean 'ref'"):
        transfer(frame, [], "reff")
    with pytest.raises(Problem, match="the only model of this run"):
        transfer(frame.filter(rater="ref"), [], "ref")
    bare = frame.filter(pl.col("level") != "config=A")
    with pytest.raises(Problem, match="no config was asked in this run"):
        transfer(bare, [], "ref")
    with pytest.raises(Problem, match="no config was asked in this run"):
        forecasts(bare, [], MINE)
