"""The long table: which rows a frame of decisions gives, and which it must not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from statsmodels.stats.proportion import proportion_confint

from flipmeter.errors import Problem
from flipmeter.stats.estimates import measure, phase0_table
from flipmeter.stats.formulas import cochran_q, mcnemar, wilson
from flipmeter.stats.judge import verdicts
from flipmeter.types import Contrast
from hand_made import group
from on_arrays import flip_rate_any, paper_round, performance

P1 = Contrast("P1", ("base", "reversed"))
P2A = Contrast("P2a", ("random", "ascending"))
P3 = Contrast("P3", ("base", "after", "split"))
PAPER = json.loads((Path(__file__).parent / "cases" / "measure_phase0.json").read_text())["models"]

Views = Mapping[str, Sequence[int | None]]


def decisions(
    views: Views,
    gold: Sequence[int | None] | None = None,
    prompts: Mapping[str, Sequence[str]] | None = None,
    **group: Any,
) -> pl.DataFrame:
    """Write a frame: `base` is a first run, `base#1` its repeat, None an item not asked."""
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 5} | group
    rows = [
        key
        | {"view": run.split("#")[0], "repeat": int((run + "#0").split("#")[1])}
        | {"item": f"i{i}", "rank": rank, "gold": gold[i] if gold else None}
        | {"prompt": prompts[run][i] if prompts else f"{run.split('#')[0]} {i}"}
        for run, ranks in views.items()
        for i, rank in enumerate(ranks)
        if rank is not None
    ]
    return pl.DataFrame(rows, schema_overrides={"gold": pl.Int64})


def one(table: pl.DataFrame, **which: Any) -> dict[str, Any]:
    return table.filter(**which).row(0, named=True) if which else table.row(0, named=True)


GOLD = [1, 2, 3, 4, 5, 1, 2, 3]
BASE = [1, 2, 3, 4, 5, 2, 0, 3]
REVERSED = [1, 1, 3, 2, 5, 2, 2, 0]
REPEAT = [1, 2, 3, 5, 5, 2, 0, 3]
AFTER = [1, 2, 3, 3, 3, 3, 3, 3]
SPLIT = [1, 2, 1, 4, 5, 1, 2, 3]
FULL = {"base": BASE, "reversed": REVERSED, "base#1": REPEAT, "after": AFTER, "split": SPLIT}


@pytest.mark.parametrize("policy", ["complete", "strict", "bounds"])
def test_a_flip_rate_in_the_table_is_the_function(policy: Any) -> None:
    table = measure(decisions(FULL, GOLD), [P1, P3])
    for name, views in (("P1", (BASE, REVERSED)), ("P3", (BASE, AFTER, SPLIT))):
        row, rate = one(table, metric=name, policy=policy), flip_rate_any(np.array(views).T, policy)
        assert (row["value"], row["low"], row["high"]) == (rate.value, rate.low, rate.high)
        assert (row["n"], row["k"], row["failed"]) == (rate.n, rate.k, rate.failed)
        assert row["note"] == rate.note


@pytest.mark.parametrize("policy", ["complete", "strict"])
def test_scores_in_the_table_are_the_function(policy: Any) -> None:
    table = measure(decisions(FULL, GOLD), [])
    scores = performance(GOLD, REVERSED, 5, policy)
    row = one(table, metric="accuracy", view="reversed", policy=policy)
    assert (row["value"], row["n"]) == (scores.accuracy, scores.n)
    exact = proportion_confint(row["k"], row["n"], method="beta")
    assert (row["low"], row["high"]) == pytest.approx(exact)
    assert one(table, metric="macro_f1", view="reversed", policy=policy)["value"] == scores.macro_f1
    assert one(table, metric="mae", view="reversed")["value"] == scores.mae
    assert one(table, metric="parse_failure", view="reversed")["value"] == 1 / 8


def test_total_is_held_against_noise() -> None:
    table = measure(decisions(FULL, GOLD), [P1])
    complete, strict = (
        one(table, metric="mcnemar_p", view="P1", policy=policy)
        for policy in ("complete", "strict")
    )
    assert (complete["b"], complete["c"], complete["n"], complete["failed"]) == (1, 0, 6, 2)
    assert complete["p"] == complete["value"] == mcnemar(1, 0)
    assert (strict["b"], strict["c"], strict["n"]) == (3, 0, 8)
    assert "exact 0.1250" in strict["note"]


def test_paper_mode_tests_complete_cases_with_the_corrected_chi_square() -> None:
    table = measure(decisions(FULL, GOLD), [P1], mode="paper")
    tests = table.filter(metric="mcnemar_p")
    assert tests["policy"].to_list() == ["complete"]
    assert tests["p"].to_list() == [mcnemar(1, 0, "paper")]
    assert table["mode"].unique().to_list() == ["paper"]
    assert table.filter(metric="P1")["policy"].to_list() == ["complete", "strict", "bounds"]
    assert set(table.filter(metric="accuracy")["policy"]) == {"complete"}


def test_paper_mode_has_wilsons_intervals_and_names_them() -> None:
    paper, ours = (
        one(measure(decisions(FULL, GOLD), [P1], mode=mode), metric="P1", policy="complete")
        for mode in ("paper", "recommended")
    )
    assert (paper["low"], paper["high"]) == pytest.approx(wilson(paper["k"], paper["n"]))
    assert "Wilson" in paper["note"]
    assert "Wilson" not in ours["note"]
    assert ours["low"] < paper["low"]


def test_accuracy_is_tested_in_pairs_and_over_all_conditions() -> None:
    table = measure(decisions(FULL, GOLD), [P1, P3])
    pair = one(table, metric="accuracy_mcnemar", view="P1", policy="strict")
    assert (pair["b"], pair["c"], pair["n"]) == (3, 1, 8)
    assert pair["p"] == mcnemar(3, 1, "mid-p", "two-sided")
    correct = np.array(GOLD)[:, None] == np.array([BASE, AFTER, SPLIT]).T
    q, _, p = cochran_q(correct)
    row = one(table, metric="accuracy_cochran", view="P3", policy="strict")
    assert (row["statistic"], row["p"]) == (q, p)


def test_noise_is_measured_for_every_repeated_view() -> None:
    views = {"base": [1, 2, 3], "base#1": [1, 2, 4], "reversed": [1, 1, 1], "reversed#1": [1, 1, 1]}
    table = measure(decisions(views), [P1])
    assert one(table, metric="noise", policy="complete")["k"] == 1
    silent = one(table, metric="noise:reversed", policy="complete")
    assert silent["k"] == 0
    assert "cached" in silent["note"]
    assert one(table, metric="excess:P1")["value"] == pytest.approx(2 / 3 - 1 / 6 + 0)


def test_a_contrast_borrows_the_noise_of_base_and_says_so() -> None:
    views = {"base": [1, 1, 1], "base#1": [1, 1, 2], "random": [1, 2, 3], "ascending": [2, 3, 3]}
    row = one(measure(decisions(views), [P2A]), metric="mcnemar_p", policy="complete")
    assert (row["b"], row["c"]) == (2, 1)
    assert "noise of view 'base'" in row["note"]


def test_an_aggregate_is_not_held_against_the_noise_of_a_pair() -> None:
    table = measure(decisions(FULL, GOLD), [P3])
    assert table.filter(metric="mcnemar_p").is_empty()


def test_equal_prompts_are_not_identified() -> None:
    same = ["a", "b", "c"]
    frame = decisions(
        {"base": [1, 2, 3], "reversed": [1, 2, 4]},
        GOLD[:3],
        prompts={"base": same, "reversed": same},
    )
    table = measure(frame, [P1])
    assert table.filter(metric="P1")["value"].to_list() == [None] * 3
    assert one(table, metric="P1")["note"].startswith("not identified")
    assert table.filter(metric="accuracy_mcnemar").is_empty()
    assert verdicts(frame, [P1]).select("word", "status").row(0) == (
        "not identified",
        "not identified",
    )


def test_items_with_equal_prompts_are_left_out_and_counted() -> None:
    prompts = {"base": ["a", "b", "c", "d"], "reversed": ["a", "b", "x", "y"]}
    views = {"base": [1, 2, 3, 4], "reversed": [5, 5, 3, 1]}
    row = one(measure(decisions(views, prompts=prompts), [P1]), metric="P1", policy="complete")
    assert (row["k"], row["n"]) == (1, 2)
    assert row["note"] == "2 items left out: their prompts are byte-equal"


def test_an_aggregate_survives_while_two_of_its_prompts_differ() -> None:
    prompts = {"base": ["a", "b"], "after": ["a", "b"], "split": ["x", "b"]}
    views = {"base": [1, 1], "after": [1, 1], "split": [2, 2]}
    row = one(measure(decisions(views, prompts=prompts), [P3]), metric="P3", policy="complete")
    assert (row["k"], row["n"]) == (1, 1)


def test_a_rater_without_prompts_is_not_taken_for_equal_prompts() -> None:
    views = {"base": [1, 2], "reversed": [1, 1]}
    nothing = {"base": ["", ""], "reversed": ["", ""]}
    for frame in (decisions(views, prompts=nothing), decisions(views).drop("prompt")):
        assert one(measure(frame, [P1]), metric="P1", policy="complete")["k"] == 1


def test_a_contrast_without_its_views_is_not_applicable() -> None:
    frame = decisions({"base": [1, 2]}, GOLD[:2])
    row = one(measure(frame, [P1]), metric="P1")
    assert row["value"] is None
    assert row["note"] == "not applicable: no view 'reversed'"
    assert verdicts(frame, [P1])["status"].to_list() == ["not applicable"]


def test_views_without_a_common_item_are_not_applicable() -> None:
    frame = decisions({"base": [1, None], "reversed": [None, 2]})
    assert "share no item" in one(measure(frame, [P1]), metric="P1")["note"]


def test_an_item_that_was_not_asked_is_no_failure() -> None:
    views: Views = {"base": [1, 2, 3, 4], "reversed": [1, 1, None, None]}
    row = one(measure(decisions(views), [P1]), metric="P1", policy="strict")
    assert (row["k"], row["n"], row["failed"]) == (1, 2, 0)


def test_without_gold_only_failures_are_scored() -> None:
    table = measure(decisions({"base": [1, 0]}), [])
    assert one(table, metric="accuracy")["note"] == "no labels"
    assert one(table, metric="accuracy")["value"] is None
    assert one(table, metric="parse_failure")["value"] == 0.5


def test_a_reproducible_rater_repeats_a_few_items_for_all() -> None:
    views: Views = {"base": [1] * 6, "base#1": [1, 1] + [None] * 4, "reversed": [2, 1, 2, 2, 2, 1]}
    table = measure(decisions(views), [P1], reproducible=["r"])
    noise = one(table, metric="noise", policy="complete")
    assert (noise["value"], noise["n"]) == (0, 2)
    assert noise["note"] == "0 by construction (2 items repeated)"
    test = one(table, metric="mcnemar_p", policy="strict")
    assert (test["b"], test["c"], test["n"]) == (4, 0, 6)


def test_a_rater_that_is_not_reproducible_after_all_is_held_to_its_repeats() -> None:
    views: Views = {"base": [1] * 6, "base#1": [1, 2] + [None] * 4, "reversed": [2, 1, 2, 2, 2, 1]}
    table = measure(decisions(views), [P1], reproducible={"r"})
    noise = one(table, metric="noise", policy="complete")
    assert "declared reproducible, but 1 of 2 repeated items differ" in noise["note"]
    test = one(table, metric="mcnemar_p", policy="strict")
    assert (test["b"], test["c"], test["n"]) == (1, 1, 2)


def test_hidden_tokens_are_one_row() -> None:
    frame = decisions({"base": [1, 2]}).with_columns(
        completion_tokens=pl.Series([5, 9]), reasoning_tokens=pl.lit(None)
    )
    row = one(measure(frame, []), metric="hidden_tokens")
    assert (row["value"], row["n"], row["policy"]) == (6, 2, None)
    assert measure(decisions({"base": [1]}), []).filter(metric="hidden_tokens").is_empty()


def groups() -> pl.DataFrame:
    other = {"base": [2, 2, 3], "reversed": [1, 2, 1]}
    return pl.concat(
        [
            decisions(FULL, GOLD),
            decisions(other, GOLD[:3], seed=42),
            decisions(other, GOLD[:3], rater="q", level="mood=indicative", n_classes=3),
        ]
    )


def test_groups_do_not_touch_each_other() -> None:
    together = measure(groups(), [P1, P3])
    alone = measure(decisions(FULL, GOLD), [P1, P3])
    assert_frame_equal(together.filter(rater="r", seed=0), alone)
    assert together.select("rater", "seed").unique().height == 3


def test_the_order_of_the_decisions_does_not_matter() -> None:
    shuffled = groups().sample(fraction=1, shuffle=True, seed=7)
    assert_frame_equal(measure(shuffled, [P1, P3]), measure(groups(), [P1, P3]))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda f: f.clear(), "no decisions"),
        (lambda f: f.drop("rank", "view"), "lack the columns 'view', 'rank'"),
        (lambda f: f.with_columns(rank=pl.lit(6)), "rank 6, outside 0 to 5"),
        (lambda f: f.with_columns(rank=pl.lit(-1)), "rank -1"),
        (lambda f: f.with_columns(gold=pl.lit(0)), "gold 0, outside 1 to 5"),
        (lambda f: f.with_columns(rank=pl.lit(None, dtype=pl.Int64)), "empty cells in 'rank'"),
        (lambda f: f.with_columns(rank=pl.lit("good")), "wrong type"),
        (lambda f: f.with_columns(repeat=pl.lit(-1)), "counted from 0"),
        (lambda f: pl.concat([f, f]), "decides an item twice"),
        (
            lambda f: f.with_columns(n_classes=5 + (pl.col("view") == "base").cast(pl.Int64)),
            "mixes scales of 5 and 6",
        ),
    ],
)
def test_a_spoilt_frame_gets_a_clear_answer(spoil: Any, says: str) -> None:
    with pytest.raises(Problem, match=says):
        measure(spoil(decisions(FULL, GOLD)), [P1])


def test_an_unknown_mode_or_a_lonely_view_is_refused() -> None:
    with pytest.raises(Problem, match="did you mean 'paper'"):
        measure(decisions(FULL), [P1], mode="papers")  # type: ignore[arg-type]
    with pytest.raises(Problem, match="lists 1 view; it needs two"):
        measure(decisions(FULL), [Contrast("P1", ("base",))])


# --- verdicts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("repeats", [{}, {"base#1": [0] * 300}])
def test_a_rater_that_always_refuses_is_unreadable(repeats: dict[str, list[int]]) -> None:
    frame = decisions({"base": [0] * 300, "reversed": [0] * 300} | repeats)
    row = one(verdicts(frame, [P1], reproducible=["r"]))
    assert (row["word"], row["unreadable"], row["value"]) == ("unreadable", 1.0, None)


def test_a_steady_rater_is_stable() -> None:
    frame = decisions({"base": [1, 2, 3] * 30, "reversed": [1, 2, 3] * 30})
    assert verdicts(frame, [P1])["word"].to_list() == ["stable"]


def test_seeds_of_an_item_are_one_cluster() -> None:
    steady = [1, 2] * 30
    moved = [2] * 7 + steady[7:]
    frames = [decisions({"base": steady, "reversed": moved}, seed=seed) for seed in (0, 1, 42)]
    alone, pooled = one(verdicts(frames[0], [P1])), one(verdicts(pl.concat(frames), [P1]))
    assert (pooled["seeds"], pooled["n_clusters"], pooled["n_pairs"]) == ([0, 1, 42], 60, 180)
    assert pooled["value"] == alone["value"]
    assert pooled["word"] == alone["word"]
    assert pooled["upper"] >= alone["upper"] - 1e-9  # copies are no evidence


# --- the paper's first table ------------------------------------------------------------------


def runs(k: int, n: int, views: Sequence[str]) -> dict[str, list[int]]:
    """Let the last of the views differ on the first k of n items."""
    return {view: [1] * n for view in views[:-1]} | {views[-1]: [2] * k + [1] * (n - k)}


def greedy(model: dict[str, Any]) -> pl.DataFrame:
    rates = model["rates"]
    views: dict[str, list[int]] = {}
    for name, shown in (
        ("P1", ["base", "reversed"]),
        ("P2", ["base", "random"]),
        ("P3", ["base", "after"]),
    ):
        rate = rates[name]
        ranks = runs(rate["k"], rate["n"], shown)
        views[shown[-1]] = ranks[shown[-1]] + [0] * (200 - rate["n"])
    return decisions({"base": [1] * 200} | views, rater=model["model"])


def stochastic(model: dict[str, Any]) -> pl.DataFrame:
    b, c, total = model["b"], model["c"], model["rates"]["total"]["k"]
    both = total - b
    views = {
        "base": [1] * 200,
        "reversed": [2] * (b + both) + [1] * (200 - b - both),
        "base#1": [1] * b + [2] * (both + c) + [1] * (200 - b - both - c),
    }
    return decisions(views, rater=model["model"], seed=7)


KNOWN = [model for model in PAPER if "b" in model]
PHASE0 = [P1, Contrast("P2", ("base", "random")), Contrast("P3", ("base", "after"))]


def test_the_papers_first_table_comes_back_from_decisions() -> None:
    first = measure(pl.concat([greedy(m) for m in PAPER]), PHASE0, mode="paper")
    second = measure(pl.concat([stochastic(m) for m in KNOWN]), [P1], mode="paper")
    table = phase0_table(first, second)
    assert table.height == 10
    for model in PAPER:
        row = one(table, model=model["model"])
        names = ["P1", "P2", "P3"] + (["noise", "total"] if "b" in model else [])
        for name in names:
            shown = [paper_round(row[name + end]) for end in ("", "_lo", "_hi")]
            assert shown == model["rates"][name]["printed"]
        assert row["sig"] == (model["sig"] if "b" in model else None)


def test_one_run_is_enough_for_the_table() -> None:
    table = phase0_table(measure(decisions(FULL, GOLD), [P1, P3]))
    assert table.columns == [
        *("model", "P1", "P1_lo", "P1_hi", "P2", "P2_lo", "P2_hi", "P3", "P3_lo", "P3_hi"),
        *("noise", "noise_lo", "noise_hi", "total", "total_lo", "total_hi"),
        *("p", "sig", "b", "c", "p_holm"),
    ]
    row = one(table)
    assert row["P1"] == row["total"] == 2 / 6
    assert row["P2"] is None


def test_what_varies_becomes_a_column() -> None:
    table = phase0_table(measure(groups(), [P1, P3]))
    assert table.columns[:3] == ["model", "level", "seed"]
    assert table.height == 3


def test_what_varies_in_one_of_two_runs_is_a_column_too() -> None:
    first, second = measure(groups(), [P1, P3]), measure(decisions(FULL, GOLD), [P1])
    assert phase0_table(first, second).columns[:3] == ["model", "level", "seed"]


def test_significance_is_corrected_except_in_the_papers_mode() -> None:
    frame = pl.concat([stochastic(model) for model in KNOWN])
    paper, ours = (
        phase0_table(measure(frame, [P1], mode="paper")),
        phase0_table(measure(frame, [P1])),
    )
    gpt = [one(table, model="GPT-5.4") for table in (paper, ours)]
    assert [row["sig"] for row in gpt] == [1, 0]
    assert gpt[1]["p_holm"] > gpt[1]["p"] == mcnemar(15, 5)


def test_pairs_of_many_orders_are_compared_by_their_first_answers() -> None:
    """Three orders: one item of four differs in two of three pairs; repeats say the same."""
    first = group([1, 2, 3, 4], views={"a": [1, 2, 3, 4], "b": [1, 2, 3, 5]})
    again = group([5, 5, 5, 5], views={"a": [1, 1, 1, 1], "b": [3, 3, 3, 3]})
    frame = pl.concat([first, again.with_columns(repeat=pl.lit(1, pl.Int64))])
    contrast = Contrast("X", ("base", "a", "b"), is_open=True)
    rate = measure(frame, [contrast]).filter(metric="X", policy="complete")["value"].to_list()
    assert rate == pytest.approx([2 / 12])


def test_distances_as_a_share_of_the_scale_are_at_most_1() -> None:
    found = measure(group([1, 5, 1, 3], gold=[1, 1, 5, 3]), [])
    value = dict(found.filter(view="base", policy="complete").select("metric", "value").iter_rows())
    assert (value["mae"], value["mae_normalised"]) == pytest.approx((2.0, 0.5))
