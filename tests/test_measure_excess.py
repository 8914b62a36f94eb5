"""Excess over noise: the two sides of U, repeats of any number, warnings about repeats."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter.errors import Problem
from flipmeter.stats.excess import noise_warnings
from on_arrays import excess_disagreement, excess_over_noise

few = settings(max_examples=25)  # every example draws its intervals
RUNS = st.integers(2, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(1, 4), min_size=n, max_size=n), min_size=3, max_size=9)
)


def naive(a: list[list[int]], b: list[list[int]], *, ordinal: bool) -> float:
    """Count pairs of runs one by one."""

    def apart(x: int, y: int) -> int:
        return abs(x - y) if ordinal else int(x != y)

    def within(runs: list[int]) -> float:
        return float(np.mean([apart(x, y) for x, y in combinations(runs, 2)]))

    items = zip(a, b, strict=True)
    each = [
        np.mean([apart(x, y) for x, y in product(p, q)]) - (within(p) + within(q)) / 2
        for p, q in items
    ]
    return float(np.mean(each))


@few
@given(RUNS, st.data())
def test_counts_by_class_give_what_counting_pairs_of_runs_gives(
    a: list[list[int]], data: st.DataObject
) -> None:
    b = [data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=2)) for _ in a]
    found = excess_over_noise(a, b, n_classes=5)
    assert found["excess"].value == pytest.approx(naive(a, b, ordinal=False))
    assert found["excess_ordinal"].value == pytest.approx(naive(a, b, ordinal=True))


def test_two_runs_of_two_views_give_the_number_that_measure_prints() -> None:
    rng = np.random.default_rng(1)
    runs = rng.integers(1, 4, (4, 80))
    found = excess_over_noise(runs[:2].T, runs[2:].T, n_classes=5)["excess"]
    known = excess_disagreement(*runs)
    assert (found.value, found.n, found.failed) == pytest.approx(
        (known.value, known.n, known.failed)
    )


@pytest.mark.parametrize(("metric", "planted"), [("excess", 0.07), ("excess_ordinal", 0.10)])
def test_the_planted_excess_is_read_back(metric: str, planted: float) -> None:
    rng = np.random.default_rng(2)
    a = rng.choice([1, 2, 3], (60_000, 2), p=[0.7, 0.2, 0.1])
    b = rng.choice([1, 2, 3], (60_000, 2), p=[0.4, 0.4, 0.2])
    assert excess_over_noise(a, b, n_classes=5)[metric].value == pytest.approx(planted, abs=0.01)


def test_three_views_are_the_mean_over_their_pairs() -> None:
    views = np.random.default_rng(3).integers(1, 4, (3, 40, 2))
    pairs = [
        excess_over_noise(a, b, n_classes=5)["excess"].value for a, b in combinations(views, 2)
    ]
    assert excess_over_noise(*views, n_classes=5)["excess"].value == pytest.approx(np.mean(pairs))


def test_an_item_counts_when_every_view_was_read_twice() -> None:
    a, b = [[1, 1, 0], [2, 0, 0], [3, 3, 3]], [[1, 1, 1], [2, 2, 2], [1, 1, 0]]
    found = excess_over_noise(a, b, n_classes=5)["excess"]
    assert (found.value, found.n, found.failed) == (0.5, 2, 1)


def test_no_noise_has_no_signal_ratio() -> None:
    found = excess_over_noise([[1, 1]] * 9, [[2, 2]] * 9, n_classes=5)
    assert found["excess"].value == 1
    assert np.isnan(found["signal_ratio"].value)
    assert found["excess"].low < found["excess"].value <= found["excess"].high


def test_one_run_of_a_view_is_refused() -> None:
    with pytest.raises(Problem, match="nothing to compare"):
        excess_over_noise([[1], [2]], [[1, 1], [2, 2]], n_classes=5)


def repeats(rater: str, second: list[int]) -> pl.DataFrame:
    """Write two runs of the base view; the first gives class 1 to every item."""
    n = len(second)
    key = {"rater": rater, "dataset": "d", "level": "", "seed": 0, "view": "base", "n_classes": 3}
    rows = [
        {"repeat": repeat, "item": f"i{i}", "rank": rank} | key
        for repeat, ranks in enumerate(([1] * n, second))
        for i, rank in enumerate(ranks)
    ]
    return pl.DataFrame(rows)


def test_repeats_that_look_wrong_are_warned_of() -> None:
    frame = pl.concat(
        [
            repeats("frozen", [1] * 30),
            repeats("lively", [1] * 20 + [2] * 10),
            repeats("greedy", [1] * 27 + [3] * 3),
            repeats("steady", [1] * 30),
            repeats("brief", [1] * 10),
        ]
    )
    told = noise_warnings(frame, greedy=["greedy", "steady"])
    assert set(told) == {"frozen", "greedy"}
    assert told["frozen"][0].count == "0 of 30"
    assert told["greedy"][0].count == "3 of 30"
    assert "greedy" not in noise_warnings(frame, ["greedy", "steady"], reproducible=["greedy"])


@pytest.mark.parametrize(("rank", "is_told"), [(0, False), (2, True)])
def test_replies_that_are_all_cut_off_say_nothing_of_the_temperature(
    rank: int, is_told: bool
) -> None:
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3, "view": "base"}
    rows = [
        key | {"item": f"{i}", "repeat": k, "rank": rank, "fault": "" if rank else "truncated"}
        for i in range(40)
        for k in range(2)
    ]
    assert ("r" in noise_warnings(pl.DataFrame(rows), greedy=[])) == is_told


@pytest.mark.parametrize(("n", "is_told"), [(19, False), (20, True)])
def test_without_noise_twenty_items_are_enough_to_doubt_the_temperature(
    n: int, is_told: bool
) -> None:
    key = {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3, "view": "base"}
    rows = [
        key | {"item": f"{i}", "repeat": k, "rank": 2, "fault": ""}
        for i in range(n)
        for k in range(2)
    ]
    assert ("r" in noise_warnings(pl.DataFrame(rows), greedy=[])) == is_told
