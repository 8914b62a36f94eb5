"""Residuals: the arithmetic, what is paired with what, and what has no number."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter.errors import Problem
from flipmeter.stats.measured_items import Measurer, read_sides
from flipmeter.stats.residuals import residual, residuals, split_level
from flipmeter.types import Contrast, Mode
from hand_made import group, one
from on_arrays import performance

REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
P2A = Contrast("P2a", ("random", "ascending"), probe="demo_order")
BOTH = (P1, P2A)


# The paper's arithmetic


def test_paper_mode_averages_seeds_then_datasets_and_takes_the_population_sd() -> None:
    gold = [1, 2, 3, 4]
    right, three, two, none = gold, [1, 2, 3, 5], [1, 2, 4, 5], [2, 3, 4, 5]
    frame = pl.concat(
        group(answers, gold=gold, dataset=dataset, seed=seed, level=level)
        for dataset, seed, level, answers in (
            ("a", 0, "", two),  # 50
            ("a", 1, "", none),  # 0: base a is 25
            ("a", 0, "mood=indicative", right),  # 100
            ("a", 1, "mood=indicative", three),  # 75: level a is 87.5
            ("b", 0, "", three),
            ("b", 1, "", three),  # base b is 75
            ("b", 0, "mood=indicative", three),
            ("b", 1, "mood=indicative", two),  # level b is 62.5
        )
    )
    row = one(residuals(frame, [], mode="paper"), "accuracy")
    assert row["value"] == pytest.approx((62.5 - 12.5) / 2)
    assert row["dataset_sd"] == pytest.approx(37.5)  # |62.5 - -12.5| / 2, not / sqrt 2
    assert (row["n_datasets"], row["n_seeds"], row["n"], row["low"]) == (2, 2, 16, None)


def test_recommended_mode_keeps_the_two_spreads_apart_and_normalises_distances() -> None:
    gold = [1, 2, 3, 4]
    frame = pl.concat(
        group(answers, gold=gold, dataset=dataset, seed=seed, level=level)
        for dataset in ("a", "b", "c")
        for seed in (0, 1)
        for level, answers in (
            ("", [1, 2, 3, 4]),
            ("mood=indicative", [5, 2, 3, 4] if (dataset, seed) == ("a", 0) else [1, 2, 3, 4]),
        )
    )
    table = residuals(frame, [])
    row, own = one(table, "mae_normalised"), one(table, "mae_normalised", "a")
    assert row["value"] == pytest.approx(100 * (4 / 4 / 4) / 6)  # 4 of 4 steps, 1 of 4 items
    assert own["value"] == pytest.approx(100 / 4 / 2)
    assert own["seed_sd"] == pytest.approx(np.std([25, 0], ddof=1))
    assert row["seed_sd"] == pytest.approx(np.std([25 / 3, 0], ddof=1))
    assert row["dataset_sd"] == pytest.approx(np.std([12.5, 0, 0], ddof=1))
    half = 4.302652729911275 * row["dataset_sd"] / math.sqrt(3)  # t with 2 df
    assert row["spread_high"] - row["value"] == pytest.approx(half)


@pytest.fixture
def paper_tables() -> tuple[dict[tuple[str, ...], str], dict[tuple[str, ...], str]]:
    """The paper's absolute numbers and its transfer residuals; they may not be redistributed."""
    files = [REFERENCE / f"phase2_{name}.csv" for name in ("joint_absolute", "transfer_residuals")]
    if not all(file.is_file() for file in files):
        pytest.skip("the paper's tables are not here (../shared/reference)")
    texts = [file.read_text(encoding="utf-8") for file in files]
    absolute, printed = ([*csv.DictReader(text.splitlines())] for text in texts)
    return (
        {(row["model"], row["config"], row["metric"]): row["mean"] for row in absolute},
        {(row["model"], row["config"], row["metric"]): row["residual_x100"] for row in printed},
    )


@pytest.mark.shared
def test_all_transfer_residuals_of_the_paper_follow_from_its_absolute_means(
    paper_tables: tuple[dict[tuple[str, ...], str], dict[tuple[str, ...], str]],
) -> None:
    absolute, printed = paper_tables
    reference = next(model for model, _, _ in absolute if "ref" in model)
    filled = {key: float(text) for key, text in printed.items() if text}
    for key, wanted in filled.items():
        base = float(absolute[reference, *key[1:]])
        assert residual(float(absolute[key]), base) == pytest.approx(wanted, abs=1e-9)
    assert len(filled) == 123


# A naive twin

LEVELS = ("", "mood=indicative", "shots=0")


@st.composite
def studies(draw: st.DrawFn) -> pl.DataFrame:
    """Draw small studies: failures, items that one side lacks, constant answers."""
    ranks = st.integers(0, 3)
    groups = []
    for dataset in draw(st.sampled_from([["a"], ["a", "b"]])):
        size = draw(st.integers(2, 6))
        gold = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
        for level in LEVELS:
            for seed in (0, 7):
                kept = draw(st.lists(st.booleans(), min_size=size, max_size=size))
                places = [place for place in range(size) if kept[place]] or [0]
                answers = st.lists(ranks, min_size=len(places), max_size=len(places))
                views = {} if level == "shots=0" else dict.fromkeys(["random", "ascending"])
                groups.append(
                    group(
                        draw(answers),
                        draw(answers),
                        views={view: draw(answers) for view in views},
                        gold=[gold[place] for place in places],
                        items=[f"i{place}" for place in places],
                        dataset=dataset,
                        level=level,
                        seed=seed,
                        n_classes=3,
                    )
                )
    return pl.concat(groups)


def naive(frame: pl.DataFrame, level: str, mode: Mode) -> dict[str, float]:
    """Measure each dataset, seed and side alone, and average with plain loops."""
    by_dataset = []
    for (_dataset,), own in frame.group_by("dataset", maintain_order=True):
        by_seed = []
        for (_seed,), of in own.group_by("seed", maintain_order=True):
            here, there = (_measured(side, mode) for side in _sides(of, level, mode))
            by_seed.append({name: 100 * (here[name] - there[name]) for name in here})
        by_dataset.append({name: _mean([one[name] for one in by_seed]) for name in by_seed[0]})
    return {name: _mean([one[name] for one in by_dataset]) for name in by_dataset[0]}


def _sides(frame: pl.DataFrame, level: str, mode: Mode) -> Iterator[pl.DataFrame]:
    sides = [frame.filter(level=name) for name in (level, "")]
    common = set(sides[0]["item"]) & set(sides[1]["item"])
    for side in sides:
        is_paired = mode == "recommended" and common
        yield side.filter(pl.col("item").is_in(list(common))) if is_paired else side


def _measured(frame: pl.DataFrame, mode: Mode) -> dict[str, float]:
    views: dict[str, dict[str, int]] = {}
    for view, item, rank in frame.select("view", "item", "rank").iter_rows():
        views.setdefault(view, {})[item] = rank
    gold = dict(frame.select("item", "gold").iter_rows())
    score = performance(list(gold.values()), [views["base"][item] for item in gold], 3)
    mae = "mae" if mode == "paper" else "mae_normalised"
    names = ("accuracy", "macro_f1", "spearman", mae)
    found = {name: float(getattr(score, name)) for name in names}
    for contrast in BOTH:
        first, second = (views.get(view, {}) for view in contrast.views)
        read = [item for item in first if first[item] and second[item]]
        flips = sum(first[item] != second[item] for item in read)
        found[contrast.name] = flips / len(read) if read else math.nan
    return found


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan


@settings(max_examples=25)
@given(frame=studies(), mode=st.sampled_from(["paper", "recommended"]))
def test_residuals_equal_those_of_plain_loops(frame: pl.DataFrame, mode: Mode) -> None:
    table = residuals(frame, BOTH, mode=mode)
    for level in LEVELS[1:]:
        factor, value = split_level(level)
        wanted = naive(frame, level, mode)
        rows = table.filter(factor=factor, level=value, dataset="").to_dicts()
        assert [row["metric"] for row in rows] == list(wanted)
        for row in rows:
            found = math.nan if row["value"] is None else row["value"]
            assert found == pytest.approx(wanted[row["metric"]], nan_ok=True), row
            assert row["value"] is not None or row["note"]


def test_leaving_an_item_out_gives_the_metrics_of_the_others() -> None:
    chance = np.random.default_rng(3)
    gold, base, other = (chance.integers(low, 6, 30) for low in (1, 0, 0))
    frame = group(base.tolist(), other.tolist(), gold=gold.tolist(), items=_names(30))
    _, (side,) = read_sides(frame, [P1], "recommended")
    found = Measurer("recommended", ["P1"]).measure(side)
    for place in (0, 17, 29):
        kept = np.delete(np.arange(30), place)
        score = performance(gold[kept], base[kept], 5)
        wanted = [score.accuracy, score.macro_f1, score.spearman, score.mae_normalised]
        assert found.without[:4, place] == pytest.approx(wanted)
        both = (base[kept] > 0) & (other[kept] > 0)
        assert found.without[4, place] == pytest.approx((base != other)[kept][both].mean())


def test_one_more_item_that_is_right_or_wrong_moves_accuracy_by_its_share() -> None:
    frame = group([1, 2, 3, 3], gold=[1, 2, 3, 4], items=_names(4))
    _, (side,) = read_sides(frame, [], "recommended")
    found = Measurer("recommended", []).measure(side)
    assert found.right[0] == pytest.approx(0.25)
    assert found.slip[0] == pytest.approx(-1)
    assert found.slip[3] == pytest.approx(1)  # by the whole scale


def _names(n: int) -> list[str]:
    return [f"i{place:03}" for place in range(n)]


# Intervals


def test_intervals_cover_the_planted_difference_about_95_times_in_100() -> None:
    chance = np.random.default_rng(11)
    n_items, n_datasets = 60, 120
    groups = []
    for dataset in range(n_datasets):
        gold = np.ones(n_items, dtype=int)
        base = np.where(chance.random(n_items) < 0.6, 1, 2)
        level = np.where(chance.random(n_items) < 0.5, 1, base)  # right in 0.8 of all
        for name, answers in (("", base), ("mood=indicative", level)):
            own = group(answers.tolist(), gold=gold.tolist(), dataset=f"d{dataset}", level=name)
            groups.append(own)
    table = residuals(pl.concat(groups), []).filter(pl.col("dataset") != "", metric="accuracy")
    covers = (table["low"] <= 20) & (table["high"] >= 20)
    assert 0.88 <= covers.mean() <= 1  # type: ignore[operator]
    widths = float((table["high"] - table["low"]).to_numpy().mean())
    paired = 100 * 2 * 1.96 * math.sqrt((0.2 - 0.04) / n_items)  # not that of two samples
    assert paired < widths < 1.3 * paired  # one item more at each end


def test_the_same_decisions_give_the_same_intervals_whatever_else_is_there() -> None:
    gold = [1, 2, 3, 4, 5] * 4
    base = group([1, 2, 3, 4, 4] * 4, gold=gold)
    level = group([1, 2, 3, 3, 5] * 4, gold=gold, level="mood=indicative")
    more = group([1, 1, 3, 4, 5] * 4, gold=gold, level="separator=tab")
    alone = residuals(pl.concat([base, level]), [])
    among = residuals(pl.concat([base, more, level]), [])
    assert alone.equals(among.filter(factor="mood"))


def test_raters_that_agree_on_everything_seen_may_still_differ() -> None:
    gold = [1, 2, 3, 4] * 5
    levels = ("", "mood=indicative")
    row = one(
        residuals(pl.concat(group(gold, gold=gold, level=of) for of in levels), []), "accuracy"
    )
    assert (row["value"], row["note"]) == (0, "")
    assert -20 < row["low"] < -10
    assert row["high"] == pytest.approx(-row["low"])


def test_two_items_are_too_few_for_an_interval() -> None:
    frame = pl.concat(group([1, 2], gold=[1, 2], level=level) for level in ("", "mood=indicative"))
    row = one(residuals(frame, []), "accuracy")
    assert (row["value"], row["low"]) == (0, None)
    assert "2 items; at least 5 are needed" in row["note"]


def test_copies_and_seeds_of_an_item_do_not_narrow_an_interval() -> None:
    gold, base, level = [1, 2, 3] * 10, [1, 2, 2] * 10, [1, 1, 3, 1, 2, 3] * 5
    groups = [(answers, name) for name, answers in (("", base), ("mood=indicative", level))]
    once = pl.concat(group(of, gold=gold, level=name) for of, name in groups)
    seeds = pl.concat(
        group(of, gold=gold, level=name, seed=seed) for of, name in groups for seed in range(3)
    )
    texts = [f"text {place}" for place in range(30)] * 2
    copies = pl.concat(
        group(of * 2, gold=gold * 2, level=name).with_columns(cluster=pl.Series(texts))
        for of, name in groups
    )
    ends = [
        residuals(frame, []).filter(dataset="").select("metric", "value", "low", "high")
        for frame in (once, seeds, copies)
    ]
    for other in ends[1:]:
        for here, there in zip(ends[0].iter_rows(), other.iter_rows(), strict=True):
            assert here == pytest.approx(there, abs=1.0), here[0]


# What is paired with what


def test_recommended_mode_compares_the_items_that_both_sides_have() -> None:
    base = group([1, 2, 1, 1], gold=[1, 2, 3, 4], items=list("abcd"))
    level = group([1, 2, 4, 5], gold=[1, 2, 4, 5], items=list("abde"), level="mood=indicative")
    row = one(residuals(pl.concat([base, level]), []), "accuracy")
    assert row["value"] == pytest.approx(100 * (1 - 2 / 3))
    assert row["n"] == 3
    assert "on the 3 items in common" in row["note"]
    whole = one(residuals(pl.concat([base, level]), [], mode="paper"), "accuracy")
    assert whole["value"] == pytest.approx(50)


def test_without_a_common_item_there_is_a_difference_but_no_interval() -> None:
    base = group([1, 2], gold=[1, 3], items=list("ab"))
    level = group([1, 2], gold=[1, 2], items=list("cd"), level="mood=indicative")
    row = one(residuals(pl.concat([base, level]), []), "accuracy")
    assert (row["value"], row["low"]) == (50, None)
    assert "no item in common" in row["note"]


def test_a_rater_is_held_against_the_first_one_that_the_study_names() -> None:
    frame = pl.concat(
        group(answers, gold=[1, 2], rater=rater)
        for rater, answers in (("zeta", [1, 1]), ("alpha", [1, 2]))
    )
    row = one(residuals(frame, []), "accuracy")
    assert (row["factor"], row["level"], row["value"]) == ("model", "alpha", 50)


def test_a_rater_that_was_asked_at_the_base_only_has_no_other_rows() -> None:
    groups = (("one", ""), ("one", "mood=indicative"), ("two", ""))
    frame = pl.concat(group([1, 2], gold=[1, 2], rater=rater, level=of) for rater, of in groups)
    found = residuals(frame, []).select("factor", "rater").unique(maintain_order=True).rows()
    assert found == [("model", "two"), ("mood", "one")]


def test_a_probe_on_fewer_items_is_held_against_the_same_items() -> None:
    base = group([1, 2, 3, 4], [2, 2, 3, 4], gold=[1, 2, 3, 4])
    level = group([1, 2, 3, 4], [2, 1, 3, 4], gold=[1, 2, 3, 4], level="mood=indicative")
    is_more = (pl.col("view") == "reversed") & pl.col("item").is_in(["i2", "i3"])
    table = residuals(pl.concat([base, level]).filter(~is_more), [P1])
    assert (one(table, "accuracy")["n"], one(table, "P1")["n"]) == (4, 2)
    assert one(table, "P1")["value"] == pytest.approx(50)


def test_failures_are_left_out_and_counted() -> None:
    base = group([1, 2, 0], gold=[1, 1, 1])
    level = group([1, 0, 1], gold=[1, 1, 1], level="mood=indicative")
    row = one(residuals(pl.concat([base, level]), []), "accuracy")
    assert row["value"] == pytest.approx(100 * (1 - 1 / 2))
    assert (row["n"], row["failed"]) == (3, 2)


# Cardinality


def five_and(n_classes: int, answers: Sequence[int], gold: Sequence[int], items: str) -> Any:
    base = group([1, 2, 3, 4, 5], [2, 3, 3, 5, 1], gold=[1, 2, 3, 4, 5], items=list("abcde"))
    merged = group(
        answers,
        answers,
        gold=gold,
        items=list(items),
        dataset=f"d/{n_classes}",
        level=f"cardinality={n_classes}",
        n_classes=n_classes,
    )
    return pl.concat([base, merged])


def test_a_merged_dataset_is_held_against_the_whole_one() -> None:
    frame = five_and(3, [1, 1, 2, 3, 3], [1, 1, 2, 3, 3], "abcde")
    row = one(residuals(frame, [P1]), "P1", dataset="d", level="3")
    assert row["value"] == pytest.approx(-80)


def test_merging_the_base_answers_is_shown_beside_a_cardinality() -> None:
    frame = five_and(3, [1, 1, 2, 3, 3], [1, 1, 2, 3, 3], "abcde")
    table = residuals(frame, [P1])
    row = one(table, "P1", level="3 by merging")
    assert row["value"] == pytest.approx(100 * (2 / 5 - 4 / 5))  # b and e still flip
    assert "control" in row["note"]
    assert table.filter(level="3 by merging")["metric"].unique().to_list() == ["P1"]


@pytest.mark.parametrize("mode", ["paper", "recommended"])
def test_an_answer_that_two_classes_have_no_place_for_stays_one_of_its_own(mode: Mode) -> None:
    frame = five_and(2, [1, 1, 2, 2], [1, 1, 2, 2], "abde")
    row = one(residuals(frame, [P1], mode=mode), "P1", level="2 by merging")
    of_base = 4 / 5 if mode == "paper" else 1.0  # c, neutral, is not in common
    assert row["value"] == pytest.approx(100 * (2 / 4 - of_base))  # b: negative, then neutral


def test_a_dataset_that_already_has_so_few_classes_is_left_out() -> None:
    small = pl.concat(
        group([1, 2], [1, 2], gold=[1, 2], dataset="small", level=level, n_classes=3)
        for level in ("", "cardinality=3")
    )
    frame = pl.concat([five_and(3, [1, 1, 2, 3, 3], [1, 1, 2, 3, 3], "abcde"), small])
    row = one(residuals(frame, [P1]), "P1", level="3")
    assert row["n_datasets"] == 1
    assert "small" in row["note"]


@settings(max_examples=25)
@given(st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=3, max_size=12))
def test_merging_never_adds_a_flip(rows: list[tuple[int, int, int]]) -> None:
    merge = {1: 1, 2: 1, 3: 2, 4: 3, 5: 3}
    gold, first, second = (list(column) for column in zip(*rows, strict=True))
    base = group(first, second, gold=gold)
    coarse = [merge[rank] for rank in gold]
    level = group(coarse, coarse, gold=coarse, dataset="d/3", level="cardinality=3", n_classes=3)
    assert one(residuals(pl.concat([base, level]), [P1]), "P1", level="3 by merging")["value"] <= 0


# What has no number


def test_what_a_level_cannot_show_is_empty_and_not_minus_the_base() -> None:
    views = {"random": [1, 2], "ascending": [2, 2]}
    base = group([1, 2], [1, 2], gold=[1, 2], views=views)
    level = group([1, 2], [1, 2], gold=[1, 2], level="shots=0")
    row = one(residuals(pl.concat([base, level]), BOTH), "P2a")
    assert row["value"] is None
    assert row["note"] == "not applicable: no view 'random', 'ascending'"


def test_equal_prompts_are_not_identified() -> None:
    base = group([1, 2], [2, 2], gold=[1, 2])
    level = group([1, 2], [1, 2], gold=[1, 2], level="clarity=minimal")
    level = level.with_columns(prompt=pl.col("item"))
    row = one(residuals(pl.concat([base, level]), [P1]), "P1")
    assert row["value"] is None
    assert row["note"].startswith("not identified")


def test_a_correlation_with_a_constant_is_undefined_and_left_out_of_the_mean() -> None:
    frame = pl.concat(
        group(answers, gold=[1, 2, 3], dataset=dataset, level=level)
        for dataset, level, answers in (
            ("a", "", [1, 2, 3]),
            ("a", "mood=indicative", [3, 2, 1]),
            ("b", "", [1, 2, 3]),
            ("b", "mood=indicative", [2, 2, 2]),
        )
    )
    row = one(residuals(frame, [], mode="paper"), "spearman")
    assert (row["value"], row["n_datasets"]) == (pytest.approx(-200), 1)
    assert row["note"] == "undefined: gold or answers are constant (b)"


@pytest.mark.parametrize("mode", ["paper", "recommended"])
def test_words_are_read_by_position_in_paper_mode_only(mode: Mode) -> None:
    base = group([1, 2, 3], [1, 2, 3], gold=[1, 2, 3], n_classes=3)
    level = group([1, 2, 3], [1, 2, 3], gold=[1, 2, 3], level="label_format=words", n_classes=3)
    frame = pl.concat(
        [
            base.with_columns(labels=pl.lit("identifiers")),
            level.with_columns(labels=pl.lit("words")),
        ]
    )
    row = one(residuals(frame, [P1], mode=mode), "P1")
    wanted = 100 * 2 / 3 if mode == "paper" else 0
    assert row["value"] == pytest.approx(wanted)
    assert ("by position" in row["note"]) == (mode == "paper")


# Order and names


def test_rows_and_columns_stand_in_the_order_of_the_paper() -> None:
    levels = ("mood=indicative", "own=x", "shots=3", "shots=0", "cardinality=2", "label_format=b")
    frame = pl.concat(
        group([1, 2], [1, 2], gold=[1, 2], level=level, n_classes=2 if "=2" in level else 3)
        for level in ("", *levels)
    )
    table = residuals(frame, [P2A, P1], mode="paper")
    found = table.select("factor", "level").unique(maintain_order=True).rows()
    assert [row for row in found if "merging" not in row[1]] == [
        ("label_format", "b"),
        ("cardinality", "2"),
        ("shots", "0"),
        ("shots", "3"),
        ("mood", "indicative"),
        ("own", "x"),
    ]
    metrics_ = table.filter(factor="mood", dataset="")["metric"].to_list()
    assert metrics_ == ["accuracy", "macro_f1", "spearman", "mae", "P1", "P2a"]


@pytest.mark.parametrize(("mode", "shown"), [("recommended", ["P6", "P1"]), ("paper", ["P1"])])
def test_contrasts_that_the_paper_does_not_have_are_columns_too(mode: Mode, shown: Any) -> None:
    frame = pl.concat(group([1, 2], [2, 2], gold=[1, 2], level=level) for level in ("", "own=x"))
    other = Contrast("P6", P1.views, probe="pair_order")
    table = residuals(frame, [other, P1], mode=mode)
    assert table.filter(dataset="")["metric"].to_list()[-len(shown) :] == shown


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("mood=indicative", ("mood", "indicative")),
        ("mood=x, shots=0", ("joint", "mood=x, shots=0")),
        ("A", ("joint", "A")),
    ],
)
def test_a_level_of_several_factors_is_joint(level: str, wanted: tuple[str, str]) -> None:
    assert split_level(level) == wanted


def test_one_model_at_one_level_leaves_nothing_to_subtract() -> None:
    with pytest.raises(Problem, match="nothing to subtract"):
        residuals(group([1, 2], gold=[1, 2]), [])


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(Problem, match="did you mean 'paper'"):
        residuals(group([1, 2], gold=[1, 2]), [], mode="papers")  # type: ignore[arg-type]
