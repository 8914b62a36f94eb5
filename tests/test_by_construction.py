"""Flips that are ruled out: declared, proved on the run, and told apart from measured zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flipmeter as fm
from flipmeter.prompt.probes import contrasts_of
from flipmeter.stats.blocks import Row
from flipmeter.stats.conclude import verdict, verdicts
from flipmeter.stats.estimates import measure
from flipmeter.stats.judge import judge
from flipmeter.stats.panel import compared
from flipmeter.stats.reading import read_panel
from flipmeter.stats.verdict import headlines

(P1,) = contrasts_of(["label_order"])
Done = Callable[..., fm.Run]
WHY = "0 by construction (average over labels:reversal)"


@pytest.fixture
def done(tmp_path: Path) -> Done:
    """Run a small study of a rater that likes the first slot."""

    def run(**changes: Any) -> fm.Run:
        study = fm.Study(
            **{
                "models": ["sim/first-slot?strength=3"],
                "datasets": ["reviews"],
                "test_size": 20,
                "base": {"cardinality": 3, "shots": 2, "label_format": "natural_language"},
                "probes": ["label_order", "demo_order"],
                "repeats": 1,
                **changes,
            }
        )
        return study.run(tmp_path / "run", store=tmp_path / "replies.sqlite")

    return run


def words(run: fm.Run) -> dict[str, tuple[str, str, str]]:
    rows = run.verdicts.select("contrast", "status", "word", "reason").iter_rows()
    return {contrast: (status, word, reason) for contrast, status, word, reason in rows}


def test_an_average_over_both_orders_is_stable_by_construction_and_says_why(done: Done) -> None:
    assert words(done(pipeline="orbit"))["P1"] == ("by construction", "stable", WHY)


def test_what_is_not_declared_is_measured_beside_it(done: Done) -> None:
    found = words(done(pipeline="orbit", models=["sim/recency?strength=3"]))
    assert found["P1"][0] == "by construction"
    assert found["P2b"][0] == "measured"


def test_views_that_are_ruled_out_take_no_further_request(done: Done) -> None:
    run = done(pipeline="orbit")
    asked = run.calls.filter(pl.col("view").is_in(["base", "reversed"]))
    assert asked["key"].n_unique() == 2 * 20


def test_equal_prompts_that_nobody_declares_stay_not_identified(done: Done) -> None:
    base = {"cardinality": 3, "shots": 2, "label_format": "natural_language", "clarity": "minimal"}
    found = words(done(base=base))
    assert found["P1"][0] == "not identified"


def test_the_estimate_is_0_without_an_interval(done: Done) -> None:
    (row,) = done(pipeline="orbit").estimates.filter(metric="P1", policy="complete").to_dicts()
    assert (row["value"], row["low"], row["n"]) == (0.0, None, 20)
    assert row["note"] == WHY


def test_a_rater_whose_contrasts_are_all_ruled_out_is_stable(done: Done) -> None:
    run = done(pipeline="orbit", probes=["label_order"])
    assert headlines(run.verdicts)["word"].to_list() == ["stable"]


def test_tables_show_what_is_ruled_out_apart_from_a_measured_zero(done: Done) -> None:
    run = done(pipeline="orbit", probes=["label_order"])
    assert WHY in str(run)


def test_a_claim_about_it_is_shown_by_the_first_block(done: Done) -> None:
    options = {"pipeline": "orbit", "until": "P1<0.10", "block_size": 10, "test_size": 60}
    run = done(probes=["label_order"], **options)
    assert run.decisions.filter(view="base").height == 10


@pytest.mark.parametrize("suffix", ["html", "md", "tex"])
def test_a_report_in_the_form_of_the_papers_first_table_has_no_interval_of_it(
    done: Done, tmp_path: Path, suffix: str
) -> None:
    run = done(pipeline="orbit", repeats=2, models=["sim/biased-noisy"])
    out = tmp_path / f"report.{suffix}"
    run.report(out)
    assert "0.000" in out.read_text(encoding="utf-8")


# --- declared falsely -----------------------------------------------------------------------------


def frame(ranks: list[tuple[int, int]], **columns: Any) -> pl.DataFrame:
    """Two views of some items, with what a pipeline says of them."""
    return pl.DataFrame(
        [
            {
                "rater": "r",
                "dataset": "d",
                "level": "",
                "seed": 0,
                "view": view,
                "repeat": 0,
                "item": str(item),
                "rank": pair[place],
                "n_classes": 3,
                "prompt": f"p{item}",
                "orbit": "same",
                "invariance": "no label list" if place else "",
                **columns,
            }
            for item, pair in enumerate(ranks)
            for place, view in enumerate(("base", "reversed"))
        ]
    )


SAME = [(1, 1), (2, 2), (3, 3)] * 10


def standing(table: pl.DataFrame) -> tuple[str, str]:
    found = compared(read_panel(table), P1)
    return found.status[0], found.note[0]


def test_it_is_proved_by_equal_prompts_and_equal_answers() -> None:
    assert standing(frame(SAME)) == ("by construction", "0 by construction (no label list)")


def test_equal_answers_to_different_prompts_prove_nothing() -> None:
    table = frame(SAME).with_columns(prompt=pl.col("prompt") + pl.col("view"))
    status, note = standing(table)
    assert status == "measured"
    assert note == "declared invariant (no label list), and 30 items are not"


def test_a_declaration_that_does_not_hold_is_measured_and_called_so() -> None:
    ((row, found),) = judge(frame([*SAME, *[(1, 3)] * 20]), [P1])
    assert row.status == "measured"
    assert found.word == "flips"
    assert found.value == pytest.approx(0.4)
    assert "declared invariant (no label list), and 20 items are not" in found.reason


def test_no_orbit_declares_nothing() -> None:
    assert standing(frame(SAME, orbit=""))[0] == "not identified"
    assert standing(frame(SAME).drop("orbit", "invariance"))[0] == "not identified"


def test_the_rates_of_all_policies_are_0(done: Done) -> None:
    rates = measure(frame(SAME), [P1]).filter(metric="P1")
    assert rates["value"].to_list() == [0.0, 0.0, 0.0]


# --- the core ---------------------------------------------------------------------------------


def test_few_items_are_enough_where_nothing_can_flip() -> None:
    few = [[1, 1], [2, 2]]
    assert verdict(few).word == "inconclusive"
    (found,) = verdicts([Row(few, by_construction="0 by construction (why)")])
    assert (found.word, found.reason) == ("stable", "0 by construction (why)")
    assert (found.value, found.upper, found.high, found.p_stable) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("n_unread", "word"), [(20, "unreadable"), (4, "inconclusive"), (1, "stable")]
)
def test_a_rater_that_cannot_be_read_is_not_stable(n_unread: int, word: str) -> None:
    pairs = [[0, 0]] * n_unread + [[1, 1]] * (40 - n_unread)
    (found,) = verdicts([Row(pairs, by_construction="0 by construction (why)")])
    assert found.word == word


def test_noise_is_told_beside_it() -> None:
    pairs = [[1, 1]] * 30
    row = Row(pairs, repeats=[[2, 2]] * 30, by_construction="0 by construction (why)")
    (found,) = verdicts([row])
    assert found.word == "stable"
    assert found.has("noisy")


def test_items_that_a_pipeline_learns_from_in_both_orders_are_measured_too(done: Done) -> None:
    run = done(pipeline="pointwise+pride_paper", probes=["label_order"])
    (row,) = run.verdicts.filter(contrast="P1").iter_rows(named=True)
    assert (row["status"], row["n_clusters"]) == ("measured", 20)
