"""Phase 2 from study to table, on simulated raters whose preference for slots is planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from changed_runs import changed
from flipmeter.ask.plan import plan
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.rate import Rating, seat
from flipmeter.run.rows import DECISION, PLACE, tally
from flipmeter.show.gather import costs, gather, sentences
from flipmeter.show.page.origin import conditions_grid, models_grid
from flipmeter.stats.aspects import measure_aspects
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions

TILTED = "sim/first-slot?strength=2"
COMPARING = ("pairwise", "pairwise+copeland", "pairwise+bradley_terry", "listwise_compare")


def study(*pipelines: str, **changes: Any) -> Study:
    content = {
        "models": [{"name": "rater", "model": "sim/honest"}],
        "datasets": ["reviews"],
        "test_size": 20,
        "repeats": 1,
        "base": {"shots": 2},
        "vary": {"pipeline": list(pipelines)},
    }
    return read_study(content | changes)


def performed(folder: Path, *pipelines: str, **changes: Any) -> Run:
    return perform(study(*pipelines, **changes), folder / "run", Store())


def flips(run: Run, level: str, contrast: str = "P1") -> float | None:
    row = run.estimates.filter(level=level, metric=contrast, policy="complete").to_dicts()[0]
    return row["value"] if row["note"][:3] != "not" else None


def test_an_honest_rater_compares_as_it_rates(tmp_path: Path) -> None:
    names = [*COMPARING, "listwise", "listwise_compare+relabel"]
    run = performed(tmp_path, *names)
    assert not run.decisions.filter(pl.col("fault") != "").height
    for name in names:
        assert flips(run, f"pipeline={name}") == 0
    accuracy = run.estimates.filter(metric="accuracy", view="base", policy="complete")
    assert accuracy["value"].min() > 0.4  # type: ignore[operator]


def test_probes_that_a_pipeline_cannot_express_are_not_applicable(tmp_path: Path) -> None:
    run = performed(tmp_path, "pairwise+copeland", "pointwise+label_average")
    pairwise, averaged = "pipeline=pairwise+copeland", "pipeline=pointwise+label_average"
    for contrast in ("P2a", "P3a", "P3"):
        assert flips(run, pairwise, contrast) is None
    assert flips(run, averaged) is None
    assert flips(run, averaged, "P2a") == 0


def test_the_question_of_a_pairwise_prompt_is_turned_and_the_table_says_so(tmp_path: Path) -> None:
    run = performed(tmp_path, "pairwise+copeland")
    rows = run.estimates.filter(metric="P1", policy="complete")
    notes = dict(zip(rows["level"], rows["note"], strict=True))
    assert notes["pipeline=pairwise+copeland"].startswith("by polarity")
    assert not notes[""]


def test_every_aggregator_reads_the_same_comparisons() -> None:
    one, all_of_them = (_planned(study(*names)) for names in (["pairwise"], list(COMPARING[:3])))
    assert len(one) == len(all_of_them)


def _planned(asked: Study) -> tuple[object, ...]:
    grid = conditions(asked)
    return plan(Rating(grid, {seat(c): "any" for c in grid}).calls()).requests


def test_averages_ask_nothing_that_the_probes_do_not() -> None:
    probes = {"probes": ["label_order", "demo_order"]}
    plain = _planned(study(**probes))
    averaged = _planned(study("pointwise+label_average@paper", **probes))
    # Under ascending, descending and random orders the labels are reversed as well: three views.
    assert len(averaged) == len(plain) + 3 * 20
    only_labels = {"probes": ["label_order"]}
    assert len(_planned(study("pointwise+label_average", **only_labels))) == len(
        _planned(study(**only_labels))
    )


def test_calibration_items_are_neither_tested_nor_shown_but_in_the_papers_form() -> None:
    grid = conditions(study("pointwise+pride", "pointwise+pride@paper"))
    for condition in grid:
        tested, shown, apart = (
            {item.id for item in items}
            for items in (condition.items, condition.demos, condition.calibration)
        )
        if condition.level == "pipeline=pointwise+pride":
            assert len(apart) == 10
            assert not apart & (tested | shown)
        elif condition.level:
            assert len(apart) == 10
            assert apart <= tested


def test_recommended_corrections_remove_a_preference_and_the_papers_do_not(tmp_path: Path) -> None:
    recommended = (
        "pointwise+pride",
        "pointwise+pride_cyclic",
        "pointwise+contextual",
        "pointwise+domain_context",
    )
    run = performed(
        tmp_path,
        *recommended,
        "pointwise+pride@paper",
        models=[{"name": "rater", "model": TILTED}],
        probes=["label_order"],
        test_size=60,
    )
    planted = flips(run, "")
    assert planted is not None
    assert planted > 0.15
    assert [flips(run, f"pipeline={name}") for name in recommended] == [0, 0, 0, 0]
    paper = flips(run, "pipeline=pointwise+pride@paper")
    assert paper is not None
    assert paper > planted / 2


def test_what_items_share_is_counted_apart(tmp_path: Path) -> None:
    run = performed(tmp_path, "pointwise+contextual", probes=["label_order"])
    at = run.decisions.filter(level="pipeline=pointwise+contextual", view="base")
    assert set(at["n_calls"]) == {1}
    assert set(at["shared_calls"]) == {3}
    calls = run.calls.filter(level="pipeline=pointwise+contextual", view="base")
    assert len(calls) == 20 + 3


def test_decisions_keep_their_probabilities_by_class(tmp_path: Path) -> None:
    run = performed(tmp_path, probes=["label_order"], vary={}, scores=True)
    best = run.decisions.with_columns(best=pl.col("probabilities").list.arg_max() + 1)
    assert (best["best"] == best["rank"]).all()
    assert best["label_mass"].min() == pytest.approx(1)


def test_comparisons_need_demonstrations() -> None:
    with pytest.raises(Problem, match="'pairwise' compares with demonstrations, but level"):
        conditions(study("pairwise", base={"shots": 0}))


def test_too_few_items_to_calibrate_on_are_named() -> None:
    with pytest.raises(Problem, match="calibration needs 500"):
        conditions(study("pointwise+pride", calibration_size=500))


def test_a_batch_is_the_same_under_every_view_and_repeat() -> None:
    grid = conditions(
        study("pointwise+batch", repeats=2, test_size=40, probe_items={"label_order": 10})
    )
    sizes = {c.level: {len(o.items) for o in grid if o.level == c.level} for c in grid}
    assert sizes["pipeline=pointwise+batch"] == {40}
    assert sizes[""] == {10, 20, 40}


def test_a_batch_cannot_be_cut_into_blocks() -> None:
    with pytest.raises(Problem, match="'pointwise\\+batch' needs all items at once"):
        conditions(study("pointwise+batch", budget={"calls": 100}))


def test_what_blocks_share_is_listed_once(tmp_path: Path) -> None:
    whole, cut = (
        performed(tmp_path / name, "pointwise+pride", probes=["label_order"], **more)
        for name, more in (("whole", {}), ("cut", {"budget": {"calls": 9999}, "block_size": 5}))
    )
    assert len(cut.calls) == len(whole.calls)
    assert set(cut.calls["role"]) == {"test", "calibration"}


def test_a_run_says_that_the_papers_pride_learns_on_test_items(tmp_path: Path) -> None:
    run = performed(tmp_path, "pointwise+pride@paper", "pointwise+pride", probes=["label_order"])
    assert run.warnings == {
        "rater": "in sample: pipeline=pointwise+pride@paper learn their correction from test items"
    }


@pytest.mark.parametrize(("end", "word"), [("first", "first label"), ("last", "last label")])
def test_flips_lean_to_the_slot_that_is_preferred(tmp_path: Path, end: str, word: str) -> None:
    run = performed(
        tmp_path,
        probes=["label_order"],
        vary={},
        pipeline="listwise_compare",
        test_size=60,
        models=[{"name": "rater", "model": f"sim/{end}-slot?strength=4"}],
    )
    assert f"towards the {word}" in str(sentences(run)[0])


def test_a_pairwise_rater_is_not_said_to_see_a_list_reversed(tmp_path: Path) -> None:
    run = performed(
        tmp_path,
        vary={},
        pipeline="pairwise+copeland",
        models=[{"name": "rater", "model": "sim/noisy?strength=3"}],
    )
    said = str(sentences(run)[0])
    assert "when the question is negated" in said
    assert "option" not in said
    aspects = measure_aspects(run.decisions, run.study.contrasts, ["slots", "direction"])
    assert aspects["slots"].is_empty()
    assert not set(aspects["direction"]["metric"]) & {"slot_bias", "primacy"}


def test_tokens_are_counted_by_reply(tmp_path: Path) -> None:
    run = performed(tmp_path, "pairwise+copeland", probes=["label_order"])
    said = run.estimates.filter(metric="output_tokens", level="pipeline=pairwise+copeland")
    assert set(said["value"]) == {2.0}  # "Passage A" is two words


def test_a_run_warns_where_labels_have_little_of_the_probability(tmp_path: Path) -> None:
    run = performed(tmp_path, probes=["label_order"], vary={}, scores=True)
    assert not run.warnings
    first = pl.int_range(pl.len()) < 3
    little = pl.when(first).then(0.4).otherwise(pl.col("label_mass")).alias("label_mass")
    said = changed(run.folder, decisions=run.decisions.with_columns(little)).warnings["rater"]
    assert said == "in 3 of 40 decisions the labels together have a probability below 0.5"


def test_every_count_holds_what_items_share(tmp_path: Path) -> None:
    priced = {"name": "rater", "model": TILTED, "price": {"prompt": 1, "completion": 2}}
    run = performed(tmp_path, "pointwise+contextual", probes=["label_order"], models=[priced])
    calls = dict(run.estimates.filter(metric="calls").select("level", "value").iter_rows())
    assert calls == {"": 1, "pipeline=pointwise+contextual": pytest.approx(1 + 3 / 20)}
    taken = run.tally
    assert taken["n_calls"].sum() == len(run.calls) == 2 * 20 + 2 * 23
    own = run.decisions["prompt_tokens"].sum()
    shared = run.decisions.filter(view="base")["shared_prompt_tokens"].max()
    assert shared > 3 * 20  # type: ignore[operator]  # three prompts with demonstrations
    assert taken["prompt_tokens"].sum() > own + shared  # type: ignore[operator]
    total = [int(taken[f"{kind}_tokens"].sum()) for kind in ("prompt", "completion")]
    assert costs(run) == {"rater": pytest.approx((total[0] + 2 * total[1]) / 1e6)}


def test_runs_of_before_have_no_tokens_that_items_share(tmp_path: Path) -> None:
    run = performed(tmp_path, "pointwise+contextual", probes=["label_order"])
    old = run.decisions.select(pl.exclude("^shared_.*_tokens$"))
    taken = tally(DECISION.whole(old.lazy()).with_row_index(PLACE))
    assert taken["prompt_tokens"].sum() == old["prompt_tokens"].sum()


def test_the_report_counts_what_items_share(tmp_path: Path) -> None:
    run = performed(tmp_path, "pointwise+contextual", probes=["label_order"])
    found = gather(run)
    (models,) = models_grid(found).groups
    assert str(len(run.calls)) in [cell.text for cell in models.rows[0]]
    by_condition = conditions_grid(found)
    place = by_condition.heads.index("calls")
    shown = [row[place].text for row in by_condition.groups[0].rows]
    assert shown == ["1.00", "1.00", "1.15", "1.15"]
