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
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.errors import Problem
from flipmeter.stats.held_out import PROMPT_FACTORS, objectives, select_greedy
from flipmeter.stats.residuals import residuals, transfer
from flipmeter.study.entries import configs
from flipmeter.types import Contrast, Mode, Style
from hand_made import group, one

CASES = json.loads((Path(__file__).parent / "cases" / "measure_configs.json").read_text("utf-8"))
CHOSEN = [case for case in CASES if case["function"] == "select_greedy"]
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
    chosen = select_greedy(long_form([case]), baseline=Style(), metric=case["metric"])
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
    case = {"metric": metric, "residuals": {"model": {"s": 0.0}, **table}}
    chosen = select_greedy(long_form([case]), baseline=Style(), metric=metric)
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


BASE, RIGHT = [1, 2, 4, 5], [1, 2, 3, 4]


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
