"""Intervals of paired differences at small n, against planted differences."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from flipmeter.stats.differences import (
    DECISIVE,
    Influences,
    average_ends,
    influence_ends,
    mean_influences,
    reasons,
    student_ends,
)
from flipmeter.stats.groups import Booleans, Floats, Ints
from flipmeter.stats.measured_items import MeasuredItems, Measurer, combined

MEASURER = Measurer("recommended", ["P1"])


def rated(gold: Ints, answer: Ints, flips: Booleans, cluster: Ints | None = None) -> MeasuredItems:
    """A rater of five classes, item by item, and which items it flips."""
    items = np.arange(len(gold))
    turned = np.where(flips, answer % 5 + 1, answer)
    usable = np.ones((2, len(gold)), dtype=np.bool_)
    own = items if cluster is None else cluster
    return MeasuredItems(
        5, items, own, gold, answer, np.stack([answer, turned])[None], usable, ("", "")
    )


def two_raters(
    rng: np.random.Generator, n: int, *, own: float, shared: float, step: int = 0
) -> list[MeasuredItems]:
    """Raters with errors and flips in common; only the second has some of its own."""
    gold = rng.integers(1, 6, n)
    wrong = np.clip(np.where(gold > 3, gold - step, gold + step), 1, 5)
    wrong = wrong if step else (gold + rng.integers(0, 4, n)) % 5 + 1
    at = rng.random(n)
    first = np.where(at < shared, wrong, gold)
    second = np.where(at < shared + own, wrong, gold)
    flip = rng.random(n)
    return [rated(gold, first, flip < 0.02), rated(gold, second, flip < 0.02 + own)]


def ends_of(sides: list[MeasuredItems]) -> tuple[Floats, Floats, Floats]:
    value, influences = combined([MEASURER.measure(side) for side in sides], [1.0, -1.0])
    return value, *influence_ends(value, influences)


@cache
def true_differences(own: float, shared: float, step: int) -> Floats:
    """Differences of very many items, whose interval is a point."""
    rng = np.random.default_rng(step)
    value, *_ = ends_of(two_raters(rng, 100_000, own=own, shared=shared, step=step))
    return value


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize(
    ("own", "shared", "step"), [(0.03, 0.05, 1), (0.02, 0.05, 4), (0.06, 0.3, 0)]
)
def test_differences_are_covered_when_errors_are_rare_and_raters_alike(
    n: int, own: float, shared: float, step: int
) -> None:
    rng, studies = np.random.default_rng([n, step]), 250
    truth = true_differences(own, shared, step)
    inside, widths = np.zeros(5), np.zeros(5)
    for _ in range(studies):
        _, low, high = ends_of(two_raters(rng, n, own=own, shared=shared, step=step))
        inside += (low <= truth + 1e-3) & (truth - 1e-3 <= high)
        widths += high - low
    # 93 % less two standard errors of so few studies.
    assert (inside / studies > 0.93 - 2 * np.sqrt(0.07 * 0.93 / studies)).all(), inside / studies
    # No wider than three and a half standard errors of raters that differ on a tenth of the items.
    assert (widths / studies)[[0, 4]].max() < 3.5 / np.sqrt(n)


def test_raters_that_agree_on_everything_may_still_differ() -> None:
    gold = np.array([1, 2, 3, 4, 5] * 4)
    value, low, high = ends_of([rated(gold, gold, gold < 0)] * 2)
    assert value == pytest.approx(np.zeros(5))
    assert low == pytest.approx(-high)
    assert 0.1 < high[0] < 0.2
    assert (high > 0).all()


def test_copies_of_rows_do_not_narrow_an_interval() -> None:
    rng = np.random.default_rng(1)
    gold, first, second = rng.integers(1, 6, (3, 40))
    once = ends_of([rated(gold, answer, gold > 4) for answer in (first, second)])
    thrice, of = [np.repeat(x, 3) for x in (gold, first, second)], np.repeat(np.arange(40), 3)
    again = ends_of([rated(thrice[0], answer, thrice[0] > 4, of) for answer in thrice[1:]])
    for one, other in zip(once, again, strict=True):
        assert one == pytest.approx(other, abs=0.02)
        assert one[[0, 3, 4]] == pytest.approx(other[[0, 3, 4]])


def test_swapping_raters_turns_the_interval() -> None:
    sides = two_raters(np.random.default_rng(2), 80, own=0.2, shared=0.2)
    value, low, high = ends_of(sides)
    back, other_low, other_high = ends_of(sides[::-1])
    assert value == pytest.approx(-back)
    assert low == pytest.approx(-other_high)
    assert high == pytest.approx(-other_low)


def test_an_interval_stays_within_what_is_possible() -> None:
    gold = np.array([1, 2, 3, 4, 5, 1])
    _, low, high = ends_of([rated(gold, gold, gold < 0), rated(gold, 6 - gold, gold > 0)])
    assert (low >= [-1, -1, -2, -1, -1]).all()
    assert (high <= [1, 1, 2, 1, 1]).all()


def influences(moves: Floats, *, first: int = 0) -> Influences:
    clusters, shape = np.arange(first, first + moves.shape[1]), (len(moves), 2)
    return Influences(
        clusters,
        moves,
        np.ones(moves.shape, bool),
        np.zeros(shape),
        np.tile([-9.0, 9.0], (len(moves), 1)),
    )


def test_seeds_of_the_same_items_count_once_and_of_other_items_each() -> None:
    values = np.random.default_rng(3).normal(size=(1, 40))
    one = influences((values - values.mean()) / 39)
    defined = np.ones((2, 1), bool)
    same = influence_ends(np.zeros(1), mean_influences([one, one], defined))[1]
    alone = influence_ends(np.zeros(1), one)[1]
    apart = influence_ends(
        np.zeros(1), mean_influences([one, influences(one.moves, first=40)], defined)
    )[1]
    assert same == pytest.approx(alone)
    assert apart == pytest.approx(alone / np.sqrt(2), rel=0.05)


def test_without_anything_unseen_it_is_students_interval() -> None:
    values = np.random.default_rng(4).normal(size=30)
    squares = ((values - values.mean()) ** 2).sum()
    low, high = student_ends(
        np.array([values.mean()]), np.array([squares]), np.array([30]), np.zeros((1, 2))
    )
    assert (high - low)[0] == pytest.approx(2 * 2.04 * values.std(ddof=1) / np.sqrt(30), rel=0.05)


def test_without_an_interval_there_is_a_reason() -> None:
    few = influences(np.zeros((1, 4)))
    low, _ = influence_ends(np.zeros(1), few)
    assert reasons(np.zeros(1), few, low) == ["no interval: 4 items; at least 5 are needed"]
    decided = influences(np.full((1, 20), np.nan))
    low, _ = influence_ends(np.zeros(1), decided)
    assert reasons(np.zeros(1), decided, low) == [DECISIVE]


def test_an_average_over_datasets_is_narrower_than_each() -> None:
    values = np.full((4, 1), 0.1)
    low, high = average_ends(values, values - 0.1, values + 0.1)
    assert (low[0], high[0]) == pytest.approx((0.05, 0.15))


def test_an_average_needs_every_interval_of_what_it_averages() -> None:
    values = np.array([[0.1], [0.3], [np.nan]])
    low, _ = average_ends(values, values - 0.1, values + 0.1)
    assert low[0] == pytest.approx(0.2 - 0.1 / np.sqrt(2))
    low, _ = average_ends(values, np.array([[0.0], [np.nan], [np.nan]]), values)
    assert np.isnan(low[0])
