"""The paper's printed numbers, and its errata shown on raters that are known to be honest."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from conftest import ROOT, Cli
from flipmeter.errors import Problem
from flipmeter.paper.answer_page import errata_markdown
from flipmeter.paper.errata import ErratumRow, ShownErratum, shown_errata
from flipmeter.paper.published import FOLDER, printed, published, published_cell

Shown = dict[str, ShownErratum]


@pytest.fixture(scope="module")
def shown() -> Shown:
    return {one.name: one for one in shown_errata()}


def row(shown: Shown, name: str, what: str) -> ErratumRow:
    (found,) = [one for one in shown[name].rows if one.what.startswith(what)]
    return found


def numbers(found: ErratumRow) -> tuple[float, float]:
    assert isinstance(found.honest, float)
    assert isinstance(found.right, float)
    return found.honest, found.right


# --- the printed numbers ------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_a_published_table_is_the_reference_byte_for_byte(path: Path, shared_data: Path) -> None:
    reference = shared_data.parent / "reference" / path.name
    if not reference.is_file():
        pytest.skip("the reference tables are not here")
    assert path.read_bytes() == reference.read_bytes()


def test_a_cell_keeps_its_sign_and_zeros() -> None:
    assert printed("phase1_residuals", "macro_f1", level="Letter") == "+2.71 ± 4.08"
    assert (
        printed("phase2_transfer_residuals", "accuracy", model="Gemma3-12B", config="A") == "-2.30"
    )


def test_a_cell_that_the_paper_leaves_empty_is_none() -> None:
    assert published_cell("phase1_residuals", "P2a", level="0-shot") is None
    assert published_cell("phase1_residuals", "P2a", level="7-shot") is None


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(Problem, match="did you mean 'phase2_pipeline'"):
        published("phase2_pipelines")


def test_transfer_residuals_are_differences_of_the_absolute_table() -> None:
    """All 123 filled cells follow from the other table, so that both were read as printed."""
    absolute = published("phase2_joint_absolute").with_columns(pl.col("mean").cast(pl.Float64))
    keys = ["config", "metric"]
    reference = absolute.filter(pl.col("model").str.starts_with("Qwen")).select(*keys, base="mean")
    both = published("phase2_transfer_residuals").drop_nulls("residual_x100")
    both = both.join(absolute, on=["model", *keys]).join(reference, on=keys)
    assert len(both) == 123
    computed = (100 * (both["mean"] - both["base"])).round(1).to_list()
    assert computed == pytest.approx(both["residual_x100"].cast(pl.Float64).to_list(), abs=1e-9)


# --- errata -------------------------------------------------------------------------------------


def test_the_page_of_errata_holds_the_numbers_of_the_command(shown: Shown) -> None:
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert page == errata_markdown(shown.values()), "flipmeter paper --errata --out docs/errata.md"


def test_the_method_links_every_erratum(shown: Shown) -> None:
    corrections = (ROOT / "docs" / "method.md").read_text(encoding="utf-8").partition("## 15.")[2]
    missing = [name for name in shown if f"errata.md#{_anchor(shown[name])}" not in corrections]
    assert not missing


def _anchor(one: ShownErratum) -> str:
    kept = (sign for sign in one.erratum.title.casefold() if sign.isalnum() or sign in " -")
    return "".join(kept).replace(" ", "-")


def test_intervals_exclude_zero_for_ten_raters_without_a_preference(shown: Shown) -> None:
    found = row(shown, "zero-intervals", "combinations")
    assert (found.paper, found.honest) == ("30 of 30", "30 of 30")
    assert str(found.right).startswith("0 of 10")


def test_holm_over_mid_p_leaves_five_models(shown: Shown) -> None:
    found = row(shown, "halved-mcnemar", "models above")
    assert found.paper == "6 of 10"
    assert str(found.honest).startswith("6 of 10")
    assert found.right == "5 of 10"


def test_halving_alone_calls_a_deficit_significant(shown: Shown) -> None:
    halved, right = numbers(row(shown, "halved-mcnemar", "p of a rater with fewer"))
    assert halved < 0.05 < 0.95 < right


def test_the_corrected_test_is_conservative_and_ten_of_them_are_not_one(shown: Shown) -> None:
    alone, mid = numbers(row(shown, "halved-mcnemar", "honest raters called biased, 20"))
    assert alone < 0.025 < 0.05 < mid < 0.06
    ten, held = numbers(row(shown, "halved-mcnemar", "one or more of 10"))
    assert held < 0.06 < 0.25 < ten


@pytest.mark.parametrize(("classes", "points"), [(5, 80), (3, 66), (2, 100)])
def test_words_make_an_honest_rater_flip(shown: Shown, classes: int, points: float) -> None:
    by_position, by_name = numbers(row(shown, "word-labels", f"P1, {classes} classes"))
    assert by_position == pytest.approx(points, abs=8)
    assert by_name == 0


def test_equal_prompts_are_not_identified(shown: Shown) -> None:
    found = row(shown, "word-labels", "P1 of configuration P2a")
    assert found.right == "not identified"
    assert float(str(found.honest)) == pytest.approx(0.82, abs=0.05)


def test_other_levels_improve_both_in_the_papers_own_table(shown: Shown) -> None:
    found = row(shown, "only-intervention", "levels")
    assert found.paper == "3-way, 2-way"
    assert set(str(found.right).split(", ")) - {"3-way", "2-way"} == {
        *("3-shot", "Gemma3-12B", "Gemma4-12B")
    }


def test_merging_answers_alone_lowers_flips_as_much_as_fewer_classes(shown: Shown) -> None:
    fewer, merged = numbers(row(shown, "only-intervention", "P1, 3 classes"))
    assert merged < fewer < -5


def test_a_rater_without_any_spread_over_seeds_gets_a_printed_sd(shown: Shown) -> None:
    mean = row(shown, "sd-over-what", "accuracy, 3 classes")
    assert float(str(mean.honest).partition("±")[2]) > 1
    assert row(shown, "sd-over-what", "SD over the three").honest == "0.00"


def test_the_printed_sd_is_a_population_sd(shown: Shown) -> None:
    found = row(shown, "sd-over-what", "two datasets")
    assert found.honest == "1 as population SD"
    assert found.right == "0 as sample SD"


def test_equal_bins_are_wrong_under_a_perfect_comparator(shown: Shown) -> None:
    found = row(shown, "weighted-sum-bins", "classes")
    assert (found.honest, found.right) == ("1, 1, 2, 3, 5", "1, 2, 3, 4, 5")


@pytest.mark.parametrize("name", ["weighted-sum-bins", "mean-score", "bradley-terry-star"])
def test_an_aggregator_costs_an_honest_rater_its_accuracy(shown: Shown, name: str) -> None:
    lost, kept = numbers(row(shown, name, "accuracy"))
    assert lost < kept - 15


def test_the_star_gives_class_1_to_everything(shown: Shown) -> None:
    star, anchored = numbers(row(shown, "bradley-terry-star", "items"))
    assert star > 0.95
    assert anchored < 0.35


def test_the_vote_seen_first_flips_by_reordering_alone(shown: Shown) -> None:
    first_seen, right = numbers(row(shown, "first-seen-majority", "flips"))
    assert first_seen > 5
    assert right == 0


@pytest.mark.parametrize("contrast", ["P3a", "P3b"])
def test_what_cannot_vary_is_not_a_gain(shown: Shown, contrast: str) -> None:
    found = row(shown, "structural-p3", contrast)
    assert isinstance(found.honest, float)
    assert found.honest < -10
    assert found.right == "not applicable"


def test_five_calls_are_steadier_than_one_whatever_is_asked(shown: Shown) -> None:
    found = row(shown, "listwise-compare-ensemble", "P1")
    assert isinstance(found.honest, float)
    assert found.honest < -5


def test_rounding_half_up_prefers_the_upper_class(shown: Shown) -> None:
    up, right = numbers(row(shown, "half-up", "items"))
    assert up > 0.6
    assert right == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("mix", ["mostly neutral", "mostly extreme"])
def test_pride_from_two_orders_learns_what_the_items_say(shown: Shown, mix: str) -> None:
    lost, kept = numbers(row(shown, "pride-two-orders", f"accuracy without a preference, {mix}"))
    assert lost < -5
    assert kept == 0
    worse, better = numbers(row(shown, "pride-two-orders", f"P1 with 1 log-odds for slot 1, {mix}"))
    assert better < 0 < worse


def test_the_accuracy_optimal_configuration_is_beaten_in_the_papers_own_table(
    shown: Shown,
) -> None:
    assert row(shown, "accuracy-optimal", "most accurate").right == "P2a"


def test_levels_that_are_bad_alone_can_be_good_together(shown: Shown) -> None:
    alone, together = numbers(row(shown, "accuracy-optimal", "accuracy: sum"))
    assert alone < -20 < together


# --- the command --------------------------------------------------------------------------------


def test_the_command_prints_one_erratum_as_json(cli: Cli) -> None:
    code, out, _ = cli("paper", "--errata", "--only", "first-seen-majority", "--json")
    (found,) = json.loads(out)["errata"]
    assert code == 0
    assert found["name"] == "first-seen-majority"
    assert found["rows"][0]["right"] == 0


def test_the_command_names_the_nearest_erratum(cli: Cli) -> None:
    code, _, err = cli("paper", "--errata", "--only", "first-seen-majorty")
    assert code == 2
    assert "did you mean 'first-seen-majority'" in err


def test_errata_are_written_as_markdown_only(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("paper", "--errata", "--out", str(tmp_path / "errata.docx"))
    assert code == 2
    assert "Markdown" in err
