"""Study file -> Condition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flipmeter.errors import Problem
from flipmeter.prompt.levels import factors
from flipmeter.study.file import Study, find_study, read_study, study_keys
from flipmeter.study.grid import conditions

Write = Callable[[str, str], Path]
SMALL: dict[str, Any] = {"models": ["sim/honest"], "datasets": ["reviews"], "test_size": 30}


def test_what_is_not_named_stays_at_the_baseline() -> None:
    study = read_study({**SMALL, "base": {"shots": 2}})
    assert (study.style.label_format, study.style.shots, study.style.layout) == (
        "numeric",
        2,
        "cued",
    )


def test_the_paper_mode_uses_the_papers_layout() -> None:
    assert read_study({**SMALL, "mode": "paper"}).style.layout == "paper"


def test_the_grid_has_every_view_once_and_repeats_of_two() -> None:
    views = [(c.view.name, c.view.repeat) for c in conditions(read_study({**SMALL}))]
    assert len(views) == len(set(views)) == 9
    assert [view for view in views if view[1]] == [("base", 1), ("reversed", 1)]


def test_a_reproducible_rater_repeats_twenty_items_only() -> None:
    grid = conditions(read_study({**SMALL}))
    assert {len(c.items) for c in grid if c.view.repeat} == {20}
    noisy = conditions(read_study({**SMALL, "models": ["sim/noisy"]}))
    assert {len(c.items) for c in noisy if c.view.repeat} == {30}


def test_every_model_rates_the_same_items_with_the_same_demonstrations() -> None:
    grid = conditions(read_study({**SMALL, "models": ["sim/honest", "sim/noisy"]}))
    assert len({tuple(i.id for i in c.items) for c in grid if not c.view.repeat}) == 1
    assert len({tuple(d.id for d in c.demos) for c in grid}) == 1


def test_seeds_change_the_demonstrations_and_not_the_test_set() -> None:
    grid = conditions(read_study({**SMALL, "seeds": [0, 1]}))
    assert len({tuple(d.id for d in c.demos) for c in grid}) == 2
    assert len({tuple(i.id for i in c.items) for c in grid if not c.view.repeat}) == 1


def test_three_classes_around_the_middle() -> None:
    grid = conditions(read_study({**SMALL, "base": {"cardinality": 3, "shots": 1}}))
    assert grid[0].task.scale.names == ("negative", "neutral", "positive")
    assert sorted(d.gold or 0 for d in grid[0].demos) == [1, 2, 3]


def test_two_classes_leave_the_middle_out() -> None:
    grid = conditions(read_study({**SMALL, "base": {"cardinality": 2}}))
    assert {item.gold for item in grid[0].items} == {1, 2}


def test_raw_text_stops_at_the_end_of_the_line_but_not_in_paper_mode() -> None:
    local = {**SMALL, "models": ["local/smollm2-135m"]}
    recommended, paper = read_study(local), read_study({**local, "mode": "paper"})
    assert recommended.raters()[0].decoding.stop == ("\n",)
    assert paper.raters()[0].decoding.stop == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modles": []}, "no key named 'modles'; did you mean 'models'"),
        ({"probes": ["label_ordr"]}, "no probe named 'label_ordr'; did you mean 'label_order'"),
        ({"base": {"seperator": "tab"}}, "no factor named 'seperator'; did you mean 'separator'"),
        ({"base": {"mood": "imperativ"}}, "no mood named 'imperativ'; did you mean 'imperative'"),
        ({"base": {"shots": -1}}, "shots is -1"),
        ({"base": {"pipeline": "pairwise"}}, "base: a pipeline .*`pipeline:` beside it"),
        ({"base": {"cardinality": 4}}, "cannot be merged to 4"),
        ({"datasets": ["sst6"]}, "no dataset named 'sst6'; did you mean 'sst5'"),
        ({"models": ["locl/x"]}, "no model 'locl/x'.*did you mean 'local'"),
        ({"models": ["local/smollm3"]}, "no local model named 'smollm3'"),
        ({"models": []}, "models: .*at least 1"),
        ({"models": ["sim/honest", "sim/honest"]}, "two models are called 'sim/honest'"),
        ({"test_size": 0}, "test_size"),
        ({"test_size": 100_000}, "test_size|items"),
        ({"decoding": {"temprature": 1}}, "no key named 'decoding.temprature'.*'temperature'"),
        ({"pipeline": "pairwize"}, "no pipeline named 'pairwize'"),
        ({"repeat_views": ["bse"]}, "no view named 'bse'; did you mean 'base'"),
        ({"mode": "papr"}, "mode"),
        ({"seeds": [0, 0]}, "seeds: 0 appears more than once"),
        ({"datasets": ["reviews", "reviews"]}, "'reviews' appears more than once"),
        ({"repeats": 3}, "repeats"),
        ({"base": {"cardinality": 3.0}}, "cardinality is 3.0"),
        ({"data_dir": "x"}, "--data-dir"),
    ],
)
def test_a_wrong_study_is_refused_with_a_way_out(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        conditions(read_study({**SMALL, **change}))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "models: [", "\x00"])
def test_a_file_that_is_no_study_is_refused(write: Write, text: str) -> None:
    with pytest.raises(Problem, match=r"s\.yaml"):
        read_study(write("s.yaml", text))


def test_a_change_reaches_inside() -> None:
    study = read_study({**SMALL, "base": {"shots": 5}}, {"base.shots": 1, "test_size": 7})
    assert (study.style.shots, study.test_size) == (1, 7)


def test_a_study_survives_being_written_and_read() -> None:
    study = read_study({**SMALL, "base": {"shots": 2}, "decoding": {"temperature": 0.7}})
    again = read_study(yaml.safe_load(yaml.safe_dump(study.model_dump(mode="json"))))
    assert again.model_dump() == study.model_dump()


@pytest.mark.parametrize("name", ["demo", "phase0a", "phase0b", "phase1", "phase1-local"])
def test_the_studies_that_come_along_are_valid(name: str) -> None:
    assert isinstance(read_study(find_study(name)), Study)


def test_phase_0_sends_what_the_paper_lists() -> None:
    study = read_study(find_study("phase0a"))
    assert len(study.models) == 10
    pro = next(r for r in study.raters() if r.name == "Gemini 3.1 Pro")
    assert pro.model.max_tokens == 2048
    assert pro.model.extra == {"reasoning": {"effort": "minimal"}}
    assert pro.decoding.body() == {
        "temperature": 0,
        "top_k": 1,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 42,
        "repetition_penalty": 1.0,
        "max_tokens": 512,
    }


def test_phase_0b_leaves_seed_and_top_k_unset() -> None:
    study = read_study(find_study("phase0b"))
    body = study.raters()[0].decoding.body()
    assert body["temperature"] == 0.7
    assert not {"seed", "top_k"} & set(body)


@pytest.mark.parametrize("name", ["phase1", "phase1-local"])
def test_phase_1_has_every_level_of_the_papers_prompt_factors(name: str) -> None:
    study = read_study(find_study(name))
    levels = set(study.levels())
    missing = {f"{f}={level}" for f, registry in factors.items() for level in registry} - levels
    base = study.style
    ours = {"label_format=from_zero", "label_format=values", "clarity=reasoned"}
    assert missing - ours == {f"{factor}={getattr(base, factor)}" for factor in factors}
    assert {f"shots={n}" for n in (0, 1, 3)} | {"cardinality=3", "cardinality=2"} <= levels
    assert len(levels) == 17


def test_phase_1_varies_one_thing_at_a_time() -> None:
    study = read_study(find_study("phase1"))
    assert len(study.models) == 8
    assert study.vary_models == [study.entries[0].name]
    assert study.is_remapped
    assert {level.style.layout for level in study.levels().values()} == {"paper"}


MOOD = "indicative"


def crossed(**changes: Any) -> Study:
    return read_study(
        {
            "models": ["sim/honest"],
            "datasets": ["reviews"],
            "vary": {
                "label_format": ["letter", "neutral_id"],
                "shots": [0, 1],
                "mood": ["indicative"],
            },
            "base": {"shots": 2},
            **changes,
        }
    )


def test_a_factorial_design_asks_every_cell_once() -> None:
    levels = crossed(design="factorial").levels()
    assert len(levels) == 3 * 3 * 2
    assert len(set(levels.values())) == len(levels)
    assert levels["label_format=letter,mood=indicative,shots=1"].style.shots == 1


@pytest.mark.parametrize("keys", [{"design": "fractional"}, {"cells": 9}])
def test_what_was_removed_of_designs_names_what_replaces_it(keys: dict[str, Any]) -> None:
    with pytest.raises(Problem, match=r"removed; .*`design: factorial`"):
        crossed(**keys)


def test_a_crossed_design_leaves_out_prompts_that_mean_nothing() -> None:
    levels = crossed(design="factorial", base={"clarity": "minimal", "shots": 2}).levels()
    assert not any(level.style.shots == 0 for level in levels.values())


def test_pipelines_can_be_crossed_with_factors() -> None:
    vary = {"shots": [1], "pipeline": ["pairwise+copeland"]}
    levels = crossed(design="factorial", vary=vary).levels()
    assert levels["shots=1,pipeline=pairwise+copeland"].pipeline == "pairwise+copeland"


def test_levels_can_be_kept_to_some_datasets_by_pattern() -> None:
    study = crossed(
        vary={"pipeline": ["pairwise", "pairwise+copeland", "listwise"]},
        only_on={"pipeline=pairwise*": ["sst5"]},
    )
    assert set(study.levels_on("reviews")) == {"", "pipeline=listwise"}
    assert len(study.levels_on("sst5")) == 4


def test_configs_come_by_name_or_with_their_levels() -> None:
    named = crossed(vary={}, configs=["A", "P1"]).levels()
    assert named["config=A"].style.shots == 0
    own = crossed(vary={}, configs={"mine": {"shots": 1, "pipeline": "pairwise"}, "P1": None})
    assert own.levels()["config=mine"].pipeline == "pairwise"
    assert own.levels()["config=P1"].style.mood == "indicative"
    with pytest.raises(Problem, match="no config named 'P9'"):
        crossed(configs=["P9"])


def test_a_study_that_debiases_asks_for_scores_everywhere() -> None:
    plain, debiased = crossed(vary={}), crossed(vary={"pipeline": ["pointwise+pride"]})
    assert not any(rater.is_scored for rater in plain.raters())
    assert all(rater.is_scored for rater in debiased.raters())


# --- other models and datasets than the study names ---------------------------------------------


def test_the_model_that_takes_the_place_of_the_varied_one_is_varied() -> None:
    changes = {"models": ["sim/honest", "sim/noisy"]}
    assert read_study(find_study("phase1"), changes).vary_models == ["sim/honest"]


def test_a_level_stays_with_those_of_its_datasets_that_are_left() -> None:
    study = read_study(find_study("phase1"), {"datasets": ["sst5", "hate"]})
    assert "cardinality=3" in study.levels_on("sst5")
    assert "cardinality=3" not in study.levels_on("hate")


def test_a_dataset_that_a_study_did_not_have_is_rated_at_every_level() -> None:
    mine = {"file": "tickets.csv", "text": "body", "label": "severity", "scale": ["low", "high"]}
    study = read_study(find_study("phase2-pipelines"), {"datasets": ["reviews", mine]})
    for name in ("reviews", "tickets"):
        assert len(study.levels_on(name)) == len(study.levels())


def test_models_to_vary_that_are_named_with_the_change_are_checked() -> None:
    changes = {"models": ["sim/honest"], "datasets": ["reviews"], "vary_models": ["sim/noisy"]}
    with pytest.raises(Problem, match="vary_models: no model named 'sim/noisy'"):
        conditions(read_study(find_study("phase1"), changes))


@pytest.mark.parametrize(
    ("pipeline", "stops"),
    [("pointwise", True), ("listwise", True), ("pairwise", False), ("listwise_compare", False)],
)
def test_raw_text_goes_on_behind_a_question(pipeline: str, stops: bool) -> None:
    """Its answer begins with a line break; a stop there leaves nothing to read."""
    keys = {**SMALL, "models": ["local/smollm2-135m"], "pipeline": pipeline}
    (rater,) = read_study(keys).raters()
    assert (rater.decoding.stop == ("\n",)) == stops


@pytest.mark.parametrize(
    ("pipeline", "decoding", "temperature"),
    [
        ("votes(3)", {}, 0.7),
        ("votes(3)", {"top_k": 1}, 0.7),
        ("votes(3)", {"temperature": 1.0}, 1.0),
        ("random_orders(3)", {}, 0.0),
    ],
)
def test_votes_are_drawn_where_a_study_is_greedy(
    pipeline: str, decoding: dict[str, Any], temperature: float
) -> None:
    (rater,) = read_study({**SMALL, "pipeline": pipeline, "decoding": decoding}).raters()
    assert rater.decoding.temperature == temperature
    assert not rater.decoding.is_greedy or not temperature


def test_a_number_reaches_into_a_list_of_a_study() -> None:
    content = {"models": ["sim/honest"], "datasets": [{"file": "a.csv"}, {"file": "b.csv"}]}
    changed = study_keys(content, {"datasets.1.file": "c.csv"}, None)
    assert changed["datasets"] == [{"file": "a.csv"}, {"file": "c.csv"}]
    for place in ("2", "-1", "first"):
        with pytest.raises(Problem, match="cannot set"):
            study_keys(content, {f"datasets.{place}.file": "c.csv"}, None)
