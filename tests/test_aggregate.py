"""Aggregators: the numbers of the method, the laws they keep, and naive twins."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipmeter import stats
from flipmeter.errors import Problem
from flipmeter.pipelines.aggregate import (
    aggregate,
    aggregators,
    log_strengths,
    oracle_check,
    weighted_sum,
)
from flipmeter.registry import OURS
from flipmeter.types import Mode
from naive_aggregators import NAIVE

MODES: tuple[Mode, ...] = get_args(Mode)
CASES = json.loads((Path(__file__).parent / "cases" / "aggregate.json").read_text(encoding="utf-8"))
Ints = npt.NDArray[np.int64]
Table = tuple[Ints, Ints, int]
FLAGS = ("tie_decided", "last_resort", "degenerate")

few = settings(max_examples=50)
every_aggregator = pytest.mark.parametrize("name", list(aggregators))
built_in = [name for name in aggregators if aggregators.package(name) == OURS]
every_mode = pytest.mark.parametrize("mode", MODES)


def lawful(exemption: str) -> pytest.MarkDecorator:
    """Return all aggregators and modes that do not declare this exemption."""
    kept = [
        (name, mode)
        for name, aggregator in aggregators.items()
        for mode in MODES
        if mode not in getattr(aggregator, exemption)
    ]
    return pytest.mark.parametrize(("name", "mode"), kept)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Draw outcomes, labels (not of every class, in any order) and the number of classes."""
    n_classes = draw(st.integers(2, 5))
    labels = draw(st.lists(st.integers(1, n_classes), min_size=1, max_size=9))
    row = st.lists(st.integers(-1, 1), min_size=len(labels), max_size=len(labels))
    return np.array(draw(st.lists(row, min_size=1, max_size=3))), np.array(labels), n_classes


def balanced(n_classes: int, shots: int) -> Ints:
    return np.repeat(np.arange(1, n_classes + 1), shots)


def noisy(n_items: int, seed: int = 0) -> tuple[Ints, Ints, Ints]:
    """Compare items with 25 demonstrations by their true classes and logistic noise, twice each."""
    rng, labels = np.random.default_rng(seed), balanced(5, 5)
    gold = rng.integers(1, 6, n_items)
    chance = 1 / (1 + np.exp(-2.0 * (gold[:, None] - labels)))
    first, second = (rng.random(chance.shape) < chance for _ in range(2))
    return first.astype(int) + second - 1, labels, gold


# Fixtures


@pytest.mark.parametrize("case", CASES, ids=[case["about"] for case in CASES])
def test_an_item_gets_the_class_that_the_case_says(case: dict[str, Any]) -> None:
    given_ = (case["outcomes"], case["labels"], case["n_classes"])
    settled = aggregate(case["aggregator"], *given_, mode=case["mode"])
    assert settled.ranks.tolist() == [case["rank"]]
    for flag in FLAGS:
        assert getattr(settled, flag).tolist() == [case.get(flag, False)], flag


@pytest.mark.parametrize(
    ("name", "mode", "classes"),
    [
        ("majority_vote", "paper", (1, 2, 3, 4, 5)),
        ("copeland", "paper", (1, 2, 3, 4, 5)),
        ("weighted_sum", "paper", (1, 1, 2, 3, 5)),
        ("mean_score", "paper", (2, 3, 3, 3, 4)),
        ("mean_score", "recommended", (2, 3, 3, 3, 4)),
        ("bradley_terry", "paper", (1, 2, 3, 4, 5)),
    ],
)
def test_a_perfect_comparator_gives_the_known_classes(
    name: str, mode: Mode, classes: tuple[int, ...]
) -> None:
    assert oracle_check(name, 5, 5, mode=mode) == classes


@lawful("imperfect")
@pytest.mark.parametrize("n_classes", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("shots", [1, 2, 5])
def test_a_perfect_comparator_gets_the_truth_unless_declared(
    name: str, mode: Mode, n_classes: int, shots: int
) -> None:
    assert oracle_check(name, n_classes, shots, mode=mode) == tuple(range(1, n_classes + 1))


@pytest.mark.parametrize(
    ("n_classes", "cuts"), [(5, (-62.5, -42.5, -12.5, 27.5)), (3, (-17.5, 2.5))]
)
def test_expected_thresholds_lie_between_the_ideal_sums(
    n_classes: int, cuts: tuple[float, ...]
) -> None:
    labels = balanced(n_classes, 5)
    rng, up = np.random.default_rng(3), np.linspace(0, 1, 500)[:, None]
    above, below = (rng.random((500, len(labels))) < share for share in (up, 1 - up))
    outcomes = above.astype(int) - below
    sums = outcomes @ labels
    expected = 1 + (sums[:, None] > np.array(cuts)).sum(axis=1)
    assert set(expected) == set(range(1, n_classes + 1))
    assert (weighted_sum(outcomes, labels, n_classes) == expected).all()


@pytest.mark.parametrize("n_classes", [3, 5])
def test_the_star_says_class_1_to_every_item_that_ties_with_nobody(n_classes: int) -> None:
    classes, labels = np.arange(2, n_classes + 1), balanced(n_classes, 5)
    outcomes = np.sign(2 * (classes[:, None] - labels) + np.tile([1, -1, 1, -1, 1], n_classes))
    star = aggregate("bradley_terry", outcomes, labels, n_classes, mode="paper")
    assert set(star.ranks) == {1}
    assert star.degenerate.all()
    anchored = aggregate("bradley_terry", outcomes, labels, n_classes)
    assert (anchored.ranks == classes).all()
    assert not anchored.degenerate.any()


@pytest.mark.parametrize(
    ("points", "games", "expected"),
    [
        ([2, 1, 1], [[0, 2, 1], [2, 0, 1], [1, 1, 0]], (0.419617624, -0.419617624, 0)),
        ([1, 1, 1], [[0, 1, 1], [1, 0, 1], [1, 1, 0]], (0, 0, 0)),
    ],
)
def test_strengths_are_those_of_a_small_table(
    points: list[int], games: list[list[int]], expected: tuple[float, ...]
) -> None:
    found = log_strengths(np.array([points], float), np.array([games], float), prior=1e-9)
    assert found[0] == pytest.approx(expected, abs=1e-6)


def test_what_the_recommended_forms_mend_shows_under_noise() -> None:
    outcomes, labels, gold = noisy(400)
    right = {
        (name, mode): float((aggregate(name, outcomes, labels, 5, mode=mode).ranks == gold).mean())
        for name in aggregators
        for mode in MODES
    }
    for name in ("weighted_sum", "bradley_terry"):
        assert right[name, "recommended"] > right[name, "paper"] + 0.15
    assert (
        right["copeland", "paper"] > right["majority_vote", "paper"] > right["mean_score", "paper"]
    )


# Laws


def test_every_built_in_aggregator_has_a_naive_twin_and_a_function() -> None:
    unsorted = [name for name in built_in if name not in NAIVE or not hasattr(stats, name)]
    assert not unsorted, f"write twins in tests/naive_aggregators.py and export: {unsorted}"


@pytest.mark.parametrize("name", built_in)
@every_mode
@given(table=tables())
@few
def test_a_naive_twin_says_the_same(name: str, mode: Mode, table: Table) -> None:
    outcomes, labels, n_classes = table
    settled = aggregate(name, outcomes, labels, n_classes, mode=mode)
    for k, row in enumerate(outcomes.tolist()):
        twin = NAIVE[name](row, labels.tolist(), n_classes, mode)
        assert settled.ranks[k] == twin.rank
        assert [bool(getattr(settled, flag)[k]) for flag in FLAGS] == [
            getattr(twin, flag) for flag in FLAGS
        ]


@every_mode
@pytest.mark.parametrize("name", ["majority_vote", "copeland", "bradley_terry", "weighted_sum"])
def test_a_naive_twin_says_the_same_of_many_noisy_items(name: str, mode: Mode) -> None:
    outcomes, labels, _ = noisy(150, seed=1)
    twin = [NAIVE[name](row, labels.tolist(), 5, mode).rank for row in outcomes.tolist()]
    assert aggregate(name, outcomes, labels, 5, mode=mode).ranks.tolist() == twin


@lawful("order_dependent")
@given(table=tables(), data=st.data())
@few
def test_the_order_of_demonstrations_does_not_matter_unless_declared(
    name: str, mode: Mode, table: Table, data: st.DataObject
) -> None:
    outcomes, labels, n_classes = table
    order = data.draw(st.permutations(range(len(labels))))
    here, there = (
        aggregate(name, outcomes[:, places], labels[places], n_classes, mode=mode)
        for places in (list(range(len(labels))), order)
    )
    for part in ("ranks", *FLAGS):
        assert (getattr(here, part) == getattr(there, part)).all()


@lawful("lopsided")
@given(table=tables())
@few
def test_turning_everything_round_turns_the_class_round_unless_declared(
    name: str, mode: Mode, table: Table
) -> None:
    outcomes, labels, n_classes = table
    here = aggregate(name, outcomes, labels, n_classes, mode=mode)
    there = aggregate(name, -outcomes, n_classes + 1 - labels, n_classes, mode=mode)
    sure = ~here.last_resort
    assert (there.ranks[sure] == n_classes + 1 - here.ranks[sure]).all()
    assert (there.last_resort == here.last_resort).all()
    assert (there.tie_decided == here.tie_decided).all()


@every_aggregator
@every_mode
def test_a_law_that_is_declared_broken_is_broken(name: str, mode: Mode) -> None:
    rng, labels = np.random.default_rng(5), np.repeat([2, 5, 1, 4, 3], 5)
    outcomes = rng.integers(-1, 2, (500, 25))
    here = aggregate(name, outcomes, labels, 5, mode=mode)
    moved = aggregate(name, outcomes[:, ::-1], labels[::-1], 5, mode=mode).ranks
    turned = 6 - aggregate(name, -outcomes, 6 - labels, 5, mode=mode).ranks
    sure = ~here.last_resort
    assert (moved != here.ranks).any() == (mode in aggregators[name].order_dependent)
    assert (turned != here.ranks)[sure].any() == (mode in aggregators[name].lopsided)
    is_imperfect = oracle_check(name, 5, 5, mode=mode) != (1, 2, 3, 4, 5)
    assert is_imperfect == (mode in aggregators[name].imperfect)


@every_aggregator
@every_mode
@given(table=tables())
@few
def test_an_item_gets_the_same_class_alone_as_among_others(
    name: str, mode: Mode, table: Table
) -> None:
    outcomes, labels, n_classes = table
    together = aggregate(name, outcomes, labels, n_classes, mode=mode).ranks
    alone = [int(aggregate(name, row, labels, n_classes, mode=mode).ranks[0]) for row in outcomes]
    assert together.tolist() == alone
    assert all(1 <= rank <= n_classes for rank in alone)


@pytest.mark.parametrize("name", built_in)
@every_mode
def test_the_function_and_the_name_say_the_same(name: str, mode: Mode) -> None:
    outcomes, labels, _ = noisy(60)
    function: Callable[..., Ints] = getattr(stats, name)
    found = function(outcomes, labels, 5, mode=mode)
    assert found.tolist() == aggregate(name, outcomes, labels, 5, mode=mode).ranks.tolist()


# Thresholds


def test_equal_thresholds_without_a_side_differ_from_the_papers_on_a_cut_only() -> None:
    outcomes, labels, _ = noisy(2000)
    paper = weighted_sum(outcomes, labels, 5, mode="paper")
    equal = weighted_sum(outcomes, labels, 5, thresholds="equal")
    differs, is_on_a_cut = paper != equal, np.isin(outcomes @ labels, (-45, -15, 15, 45))
    assert differs.any()
    assert is_on_a_cut[differs].all()


def test_self_thresholds_run_from_the_quantiles_to_the_expected_ones() -> None:
    outcomes, labels, _ = noisy(500)
    shares = (0.1, 0.3, 0.2, 0.3, 0.1)
    expected = weighted_sum(outcomes, labels, 5)
    learned, mixed, kept = (
        weighted_sum(outcomes, labels, 5, thresholds="self", lam=lam, shares=shares)
        for lam in (0, 0.5, 1)
    )
    assert (kept == expected).all()
    assert np.bincount(learned, minlength=6)[1:] / 500 == pytest.approx(shares, abs=0.05)
    assert ((mixed >= np.minimum(learned, kept)) & (mixed <= np.maximum(learned, kept))).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": "expcted"}, "no thresholds named 'expcted'; did you mean 'expected'"),
        ({"thresholds": "self", "mode": "paper"}, "paper mode has equal thresholds"),
        ({"thresholds": "self", "lam": 1.5}, "from 0 to 1; got 1.5"),
        ({"thresholds": "self", "shares": (0.5, 0.5)}, "shares must be 3 numbers"),
        ({"thresholds": "self", "shares": (0.5, 0.5, 0.5)}, "add up to 1.5"),
        ({"mode": "papr"}, "no mode named 'papr'; did you mean 'paper'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        weighted_sum([[1, 0, -1]], [1, 2, 3], 3, **options)


# Faults


@pytest.mark.parametrize(
    ("outcomes", "labels", "n_classes", "message"),
    [
        ([[1, 0]], [1, 2, 3], 3, r"each of the 3 labels; got shape \(1, 2\)"),
        ([[[1, 0, 1]]], [1, 2, 3], 3, "items x demonstrations"),
        ([[1, 2, 0]], [1, 2, 3], 3, "outcomes must be whole numbers from -1 to 1; got 2"),
        ([[1, 0.5, 0]], [1, 2, 3], 3, "got 0.5"),
        ([[1, float("nan"), 0]], [1, 2, 3], 3, "got nan"),
        ([[True, False, True]], [1, 2, 3], 3, "outcomes must be whole numbers"),
        ([[1, 0], [1]], [1, 2], 3, "ragged"),
        ([], [1, 2], 3, "outcomes is empty"),
        ([[]], [], 3, "labels is empty"),
        ([[1, 0]], [0, 2], 3, "labels must be whole numbers from 1 to 3; got 0"),
        ([[1, 0]], [1, 4], 3, "got 4"),
        ([[1, 0]], [[1, 2]], 3, r"one class per demonstration; got shape \(1, 2\)"),
        ([[1, 0]], [1, 1], 1, "n_classes is 1"),
    ],
)
def test_what_is_no_comparison_is_refused(
    outcomes: Any, labels: Any, n_classes: int, message: str
) -> None:
    for name in aggregators:
        with pytest.raises(Problem, match=message):
            aggregate(name, outcomes, labels, n_classes)


def test_an_unknown_aggregator_answers_with_the_nearest() -> None:
    with pytest.raises(Problem, match="no aggregator named 'copland'; did you mean 'copeland'"):
        aggregate("copland", [[1]], [1], 2)


def test_a_perfect_comparator_needs_demonstrations() -> None:
    with pytest.raises(Problem, match="shots is 0"):
        oracle_check("copeland", 5, 0)


def test_a_perfect_comparator_has_five_classes_unless_told() -> None:
    assert oracle_check("copeland") == oracle_check("copeland", 5, 5)
