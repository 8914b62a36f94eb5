"""All groups at once give what each gives alone, and two runs are held against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from flipmeter.errors import Problem
from flipmeter.stats.aspects import ASPECTS, measure_aspects
from flipmeter.stats.flips import flip_rate
from flipmeter.stats.formulas import mcnemar
from flipmeter.stats.residuals import compare
from flipmeter.types import Contrast, Estimate
from hand_made import group
from on_arrays import (
    agreement,
    direction,
    excess_over_noise,
    flip_matrix,
    severity,
    slot_preference,
    worst_case,
)

P1 = Contrast("P1", ("base", "reversed"), probe="label_order")
P2 = Contrast("P2", ("base", "random", "after"))
CONTRASTS = [P1, P2]
RUNS = [(view, repeat) for view in ("base", "reversed", "random", "after") for repeat in (0, 1)]
KEY = ["rater", "dataset", "level", "seed"]


def decisions(
    seed: int = 1, n: int = 40, *, tilt: float = 0.2, raters: tuple[str, ...] = ("r", "s")
) -> pl.DataFrame:
    """Simulate raters on two scales: a fault now and then, more slips where the list is turned."""
    rng = np.random.default_rng(seed)
    rows = []
    for rater in raters:
        for dataset, n_classes in (("five", 5), ("three", 3)):
            gold = np.random.default_rng(7).integers(1, n_classes + 1, n)
            for view, repeat in RUNS:
                slips = rng.random(n) < (0.15 + tilt * (view == "reversed"))
                ranks = np.clip(gold + slips, 1, n_classes) * (rng.random(n) > 0.05)
                key = {"rater": rater, "dataset": dataset, "level": "", "seed": 0}
                key |= {"view": view, "repeat": repeat, "n_classes": n_classes}
                rows += [
                    key | {"item": f"i{i:02}", "rank": int(rank), "gold": int(gold[i])}
                    for i, rank in enumerate(ranks)
                ]
    return pl.DataFrame(rows)


FRAME = decisions()


def alone(frame: pl.DataFrame) -> dict[tuple[str, str, str], Estimate]:
    """Measure one group through the functions on plain arrays."""
    wide = frame.pivot(["view", "repeat"], index=["item", "gold"], values="rank").sort("item")
    gold, n_classes = wide["gold"].to_numpy(), int(frame["n_classes"][0])

    def run(view: str, repeat: int = 0) -> np.ndarray:
        return wide[f'{{"{view}",{repeat}}}'].to_numpy()

    def runs(view: str) -> np.ndarray:
        return np.stack([run(view, 0), run(view, 1)], axis=1)

    found: dict[tuple[str, str, str], Estimate] = {}
    for contrast in CONTRASTS:
        table = np.stack([run(view) for view in contrast.views], axis=1)
        parts: dict[str, dict[str, Estimate]] = {
            "excess": excess_over_noise(
                *(runs(view) for view in contrast.views), n_classes=n_classes
            ),
            "severity": severity(table, n_classes),
            "worst": worst_case(gold, table, n_classes),
            "confidence": agreement(gold, table, n_classes),
        }
        if contrast.is_pair:
            pair = table[:, 0], table[:, 1]
            parts["direction"] = direction(*pair, n_classes, gold=gold, reverses_labels=True)
            parts["slots"] = slot_preference(*pair, n_classes, gold=gold)
        for aspect, estimates in parts.items():
            found |= {(aspect, contrast.name, name): one for name, one in estimates.items()}
    return found


def test_every_group_gets_what_the_functions_on_arrays_give_it_alone() -> None:
    tables = measure_aspects(FRAME, CONTRASTS)
    seen = set()
    for key, frame in FRAME.group_by(KEY):
        expected = alone(frame)
        for (aspect, contrast, metric), one in expected.items():
            where = dict(zip(KEY, key, strict=True)) | {"view": contrast, "metric": metric}
            row = tables[aspect].filter(**where).row(0, named=True)
            numbers = (one.value, one.low, one.high)
            got = [np.nan if row[name] is None else row[name] for name in ("value", "low", "high")]
            assert got == pytest.approx(numbers, nan_ok=True, abs=1e-6), where
            assert (row["n"], row["k"], row["failed"]) == (one.n, one.k, one.failed), where
            seen.add(aspect)
    assert seen == set(ASPECTS) - {"matrix", "certainty", "pairs", "systems"}


def test_the_matrix_is_there_cell_by_cell() -> None:
    rows = measure_aspects(FRAME, CONTRASTS, ["matrix"])["matrix"]
    own = FRAME.filter(rater="r", dataset="three", repeat=0).sort("item")
    views = [own.filter(view=view)["rank"].to_numpy() for view in P1.views]
    counts = flip_matrix(views[0], views[1], 3)
    for here, there in np.ndindex(3, 3):
        cell = rows.filter(rater="r", dataset="three", metric=f"{here + 1}>{there + 1}")
        assert cell["k"].to_list() == [counts[here, there]]
        assert cell["n"].to_list() == [counts[here].sum()]


def test_other_groups_and_the_order_of_rows_change_nothing() -> None:
    whole = measure_aspects(FRAME, CONTRASTS)
    part = FRAME.filter(rater="s").sample(fraction=1, shuffle=True, seed=3)
    for name, table in measure_aspects(part, CONTRASTS).items():
        assert_frame_equal(
            table.drop("p_holm", "p_bh"), whole[name].filter(rater="s").drop("p_holm", "p_bh")
        )


def test_p_values_of_one_metric_are_adjusted_together() -> None:
    tests = measure_aspects(FRAME, CONTRASTS, ["direction"])["direction"].filter(metric="bowker")
    assert tests["p_holm"].min() == pytest.approx(min(1, len(tests) * tests["p"].min()))  # type: ignore[operator]
    assert (tests["p_bh"] <= tests["p_holm"] + 1e-12).all()


def test_a_reproducible_rater_has_the_flip_rate_for_its_excess() -> None:
    still = FRAME.filter(pl.col("repeat") == 0)
    again = still.filter(view="base").with_columns(repeat=pl.lit(1, pl.Int64))
    frame = pl.concat([still, again])
    rows = measure_aspects(frame, [P1], ["excess"], reproducible=["r", "s"])["excess"]
    for row in rows.filter(metric="excess").to_dicts():
        own = frame.filter(rater=row["rater"], dataset=row["dataset"], repeat=0).sort("item")
        views = [own.filter(view=view)["rank"].to_numpy() for view in P1.views]
        assert row["value"] == pytest.approx(flip_rate(views[0], views[1]).value)
        assert "by construction" in row["note"]
    bare = measure_aspects(frame, [P1], ["excess"])["excess"].filter(metric="excess")
    assert bare["value"].to_list() == [None] * 4
    assert "repeat_views" in bare["note"][0]


def test_an_unknown_aspect_is_refused() -> None:
    with pytest.raises(Problem, match="did you mean 'severity'"):
        measure_aspects(FRAME, CONTRASTS, ["severety"])


# --- two runs ---------------------------------------------------------------------------------


def one(table: pl.DataFrame, **which: Any) -> dict[str, Any]:
    return table.filter(**which).row(0, named=True)


def test_a_run_is_not_distinguishable_from_itself() -> None:
    table = compare(FRAME, FRAME, CONTRASTS)
    assert set(table["word"]) == {"not distinguishable"}
    assert table["value"].to_list() == [0.0] * len(table)


def test_a_worse_run_is_lower_in_accuracy_and_higher_in_flips() -> None:
    better, worse = decisions(2, 200, tilt=0.0, raters=("r",)), decisions(3, 200, tilt=0.5)
    table = compare(better, worse, CONTRASTS)
    row = one(table, dataset="five", metric="P1")
    assert (row["word"], row["b"] > row["c"]) == ("higher", True)
    assert row["p"] == pytest.approx(mcnemar(row["b"], row["c"], alternative="two-sided"))
    assert row["p"] <= row["p_bh"] <= row["p_holm"]
    back = compare(worse, better, CONTRASTS)
    mirrored = one(back, dataset="five", metric="P1")
    assert mirrored["value"] == pytest.approx(-row["value"])
    assert (mirrored["b"], mirrored["c"]) == (row["c"], row["b"])


def test_the_difference_is_that_of_the_items_in_common() -> None:
    first, second = decisions(4, raters=("r",)), decisions(5, raters=("r",))
    part = second.filter(pl.col("item") < "i20")
    row = one(compare(first, part, [P1]), dataset="five", metric="accuracy")
    graded = [
        frame.filter(dataset="five", view="base", repeat=0).sort("item").head(20)
        for frame in (first, part)
    ]
    read = (graded[0]["rank"] > 0) & (graded[1]["rank"] > 0)
    right = [(frame["rank"] == frame["gold"]).filter(read) for frame in graded]
    b, c = (right[1] & ~right[0]).sum(), (right[0] & ~right[1]).sum()
    assert (row["n"], row["b"], row["c"]) == (20, b, c)
    assert "20 items in common" in row["note"]


def test_only_raters_are_paired_whatever_their_names_and_others_must_meet() -> None:
    mine, yours = decisions(6, raters=("mine",)), decisions(6, raters=("yours",))
    assert set(compare(mine, yours, [P1])["rater"]) == {"yours - mine"}
    with pytest.raises(Problem, match="share no rater"):
        compare(FRAME, yours, [P1])
    with pytest.raises(Problem, match="nothing to pair"):
        compare(mine, mine.with_columns(seed=pl.lit(9)), [P1])


def test_seeds_share_items_so_mcnemar_needs_one_seed() -> None:
    both = pl.concat([FRAME, FRAME.with_columns(seed=pl.lit(1, pl.Int64))])
    table = compare(both, both, [P1])
    assert table["p"].null_count() == len(table)
    assert table.filter(metric="P1")["b"].null_count() == 0


def test_copies_share_items_so_mcnemar_needs_items_of_their_own() -> None:
    frame = FRAME.with_columns(cluster=pl.col("item").str.slice(0, 2))
    table = compare(frame, frame, [P1])
    assert table["p"].null_count() == len(table)
    assert table.filter(metric="P1")["b"].null_count() == 0


def test_a_rater_that_cannot_be_read_has_aspects_without_numbers() -> None:
    unread = FRAME.with_columns(rank=pl.lit(0, pl.Int64))
    names = ["excess", "direction", "matrix", "severity", "slots"]
    for table in measure_aspects(unread, CONTRASTS, names).values():
        assert table["low"].drop_nulls().is_nan().all() or table.height == 0


@pytest.mark.parametrize("name", ["matrix", "severity", "direction"])
def test_an_item_that_was_not_asked_twice_does_not_hide_the_others(name: str) -> None:
    whole = group([1, 2, 3, 4], [1, 2, 4, 4])
    more = pl.concat([whole, group([5], items=["alone"])])
    tables = [
        measure_aspects(frame, [Contrast("P1", ("base", "reversed"))], [name])
        for frame in (whole, more)
    ]
    values = [
        table[name].filter(pl.col("value").is_not_nan())["value"].to_list() for table in tables
    ]
    assert values[0] == values[1] != []
