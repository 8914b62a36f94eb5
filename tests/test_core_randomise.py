"""The randomisation test of the core against its definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from flipmeter.stats.blocks import Row, read_blocks
from flipmeter.stats.conclude import verdict
from flipmeter.stats.exchanges import exact_tail, shape_of
from flipmeter.stats.groups import Ints
from flipmeter.stats.randomise import EffectTest, _bundle_units, _looked_up, evidence, find_units
from naive_verdict import Table, p_value

Block = tuple[int, ...]
"""Replies of a block: first and repeat of each view in turn; 0 unreadable, -1 not asked."""

Rows = list[tuple[Block, int]]

ALL = 1_000_000
"""Draws from which on small cases are listed in full."""


def arrays(blocks: Sequence[Block]) -> tuple[Ints, Ints]:
    table = np.array(blocks)
    return table[:, ::2], table[:, 1::2]


def evidence_of(blocks: Sequence[Block], clusters: list[int], draws: int = ALL) -> EffectTest:
    pairs, repeats = arrays(blocks)
    return evidence(read_blocks(Row(pairs, repeats, clusters)), draws=draws, seed=0)


def naive_p(blocks: Sequence[Block], clusters: list[int]) -> float:
    views = [tuple(zip(block[::2], block[1::2], strict=True)) for block in blocks]
    found = p_value(Table(views, clusters), most=ALL)
    assert found is not None
    return found


reply = st.integers(0, 4)
again = st.integers(-1, 4)
two_views = st.lists(
    st.tuples(st.tuples(reply, again, reply, again), st.integers(0, 2)), min_size=1, max_size=4
)


@given(two_views)
@settings(max_examples=60)
def test_p_of_two_views_is_that_of_listing_every_permutation(
    rows: Rows,
) -> None:
    blocks, clusters = [row[0] for row in rows], [row[1] for row in rows]
    assert evidence_of(blocks, clusters).p == pytest.approx(naive_p(blocks, clusters))


three_once = st.lists(
    st.tuples(st.tuples(*(reply, st.just(-1)) * 3), st.integers(0, 1)), min_size=1, max_size=3
)


@given(three_once)
@settings(max_examples=30)
def test_p_of_three_views_is_that_of_listing_every_permutation(
    rows: Rows,
) -> None:
    blocks, clusters = [row[0] for row in rows], [row[1] for row in rows]
    assert evidence_of(blocks, clusters).p == pytest.approx(naive_p(blocks, clusters))


@given(st.tuples(*(st.integers(0, 3),) * 6))
@settings(max_examples=15)
def test_p_of_three_repeated_views_is_that_of_listing_every_permutation(
    block: Block,
) -> None:
    assert evidence_of([block], [0]).p == pytest.approx(naive_p([block], [0]))


def seen(n: int, seed: int = 0) -> list[Block]:
    rng = np.random.default_rng(seed)
    return [tuple(row) for row in rng.integers(1, 4, (n, 4)).tolist()]


def test_drawn_assignments_agree_with_listed_ones() -> None:
    blocks, clusters = seen(8), list(range(8))
    listed, drawn = evidence_of(blocks, clusters), evidence_of(blocks, clusters, draws=6000)
    assert listed.n_draws == 0
    assert drawn.n_draws == 6000
    assert drawn.p == pytest.approx(listed.p, abs=4 * np.sqrt(listed.p * (1 - listed.p) / 6000))


def test_a_tail_is_that_of_listing_every_sum() -> None:
    blocks = [(1, 1, 2, 2)] * 4 + [(1, 2, 3, 3), (1, 3, 1, 2)]
    units = find_units(read_blocks(Row(*arrays(blocks))))
    found = evidence_of(blocks, list(range(6)))
    tail = exact_tail(
        [table[:, :, 0] for table in units.tables], units.observed[0], two_sided=False
    )
    assert tail == pytest.approx(found.p_excess)


def test_a_p_at_its_floor_is_resolved_by_its_exact_tail() -> None:
    found = evidence_of([(1, 1, 3, 3)] * 40, list(range(40)), draws=200)
    assert found.p == pytest.approx(2 * (1 / 3) ** 40, rel=1e-6)
    assert found.n_draws == 200


def test_draws_double_only_until_holm_could_reject() -> None:
    # Five views asked twice have more assignments than can be listed, and no exact tail.
    rows = np.tile([1, 2, 3, 4, 5], (30, 1))
    blocks = read_blocks(Row(rows, rows))
    found = evidence(blocks, draws=100, seed=0, enough=1 / 300)
    assert found.n_draws == 400
    assert found.p == 1 / 401


def test_p_does_not_depend_on_the_chunks_that_draws_are_made_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks, clusters = seen(30), list(range(30))
    whole = evidence_of(blocks, clusters, draws=500)
    monkeypatch.setattr("flipmeter.stats.randomise.CHUNK", 64 * 100)
    parts = evidence_of(blocks, clusters, draws=500)
    assert parts.p == pytest.approx(whole.p, abs=0.1)


def test_thousands_of_clusters_are_tested() -> None:
    rng = np.random.default_rng(2)
    pairs, repeats = rng.integers(1, 4, (2, 3000, 2))
    assert (verdict(pairs, repeats=repeats, draws=200).p or 0) > 0.001


def test_no_difference_is_no_evidence() -> None:
    assert verdict([[2, 2]] * 50, repeats=[[2, 2]] * 50).p == 1.0


def test_p_is_uniform_where_the_view_does_not_matter() -> None:
    rng = np.random.default_rng(7)
    p = []
    for _ in range(300):
        true = rng.integers(2, 5, (40, 1))
        slips = np.where(rng.random((40, 4)) < 0.25, rng.choice([-1, 1], (40, 4)), 0)
        four = true + slips
        blocks = read_blocks(Row(four[:, :2], four[:, 2:]))
        p.append(evidence(blocks, draws=400, seed=0).p)
    below = [float(np.mean(np.array(p) <= level)) for level in (0.05, 0.2, 0.5)]
    assert np.all(np.array(below) <= np.array([0.05, 0.2, 0.5]) + 0.05)


def test_assignments_keep_the_number_of_readable_replies_of_every_view() -> None:
    shape = shape_of(((True, True), (True, False)), "every view")
    dealt = shape.assignments()
    assert len(dealt) == shape.n_assignments == 3
    assert dealt[0].tolist() == [0, 1, 2, 3]
    assert (dealt[:, 3] == 3).all()


# --- nominal answers --------------------------------------------------------------------------


def test_slots_show_a_lean_that_classes_cannot() -> None:
    # Two fields in both orders: the first shown wins, whichever it is; items favour neither.
    pairs = np.array([[1, 2]] * 12)
    slots = np.array([[1, 1]] * 12)
    found = verdict(pairs, nominal=True, slots=slots, draws=5000)
    assert found.p == pytest.approx(2 / 2**12)
    assert found.direction == pytest.approx(1.0)


def test_slots_may_be_given_for_every_class_and_differ_by_item() -> None:
    places = np.array([[[1, 2, 3], [3, 2, 1]], [[1, 2, 0], [2, 1, 0]]] * 6)
    pairs = np.array([[1, 3], [1, 2]] * 6)
    found = verdict(pairs, nominal=True, slots=places, draws=5000)
    assert found.p == pytest.approx(2 / 2**12)


def test_an_unknown_slot_makes_no_evidence() -> None:
    # Orders differ by item and only the slots of the answers are known.
    rng = np.random.default_rng(1)
    pairs = rng.integers(1, 6, (40, 3))
    found = verdict(pairs, nominal=True, slots=rng.integers(1, 6, (40, 3)))
    assert found.p == 1.0


def test_nominal_classes_without_slots_are_compared_between_views() -> None:
    pairs = np.array([[1, 3]] * 8 + [[2, 2]] * 4)
    assert verdict(pairs, nominal=True, draws=5000).p == pytest.approx(2 / 2**8)


def test_slot_counts_that_are_thirds_tie_as_whole_numbers_do() -> None:
    rng = np.random.default_rng(1)
    order = np.array([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])
    for _ in range(20):
        pairs, again = rng.integers(1, 6, (7, 2)), rng.integers(1, 6, 7)
        repeats = np.stack([again, np.full(7, -1)], axis=1)
        slots = np.broadcast_to(order, (7, 2, 5))
        found = verdict(pairs, repeats=repeats, nominal=True, slots=slots, draws=ALL)
        replies = np.stack([pairs[:, 0], again, pairs[:, 1]], axis=1)
        assert found.p == pytest.approx(_whole_p(replies, order))


def _whole_p(replies: Ints, order: Ints) -> float:
    """p by listing who of three replies was the second view's, all numbers times 6."""
    totals = np.zeros((1, 6), dtype=np.int64)
    for block in replies:
        dealt = [np.roll(block, step) for step in range(3)]
        counts = np.array([_six_times(deal, order) for deal in dealt])
        counts[:, 1:] -= counts[:, 1:].sum(axis=0) // 3
        totals = (totals[:, None] + counts[None]).reshape(-1, 6)
    statistics = np.abs(totals[:, 0]), (totals[:, 1:] ** 2).sum(axis=1)
    tails = [(x[None, :] >= np.unique(x)[:, None]).mean(axis=1) for x in statistics]
    each = [
        tail[np.searchsorted(np.unique(x), x)] for x, tail in zip(statistics, tails, strict=True)
    ]
    least = np.minimum(*each)
    return float((least <= least[0]).mean())


def _six_times(replies: Ints, order: Ints) -> list[int]:
    a, again, b = replies.tolist()
    apart = 3 * (a != b) + 3 * (again != b) - 6 * (a != again)
    at = [order[0, a - 1], order[0, again - 1], order[1, b - 1]]
    return [apart, *(6 * at.count(slot) for slot in range(1, 6))]


@pytest.mark.parametrize("n_ways", [2, 6])
@pytest.mark.parametrize("n_kinds", [3, 960])
def test_sums_of_many_units_are_those_of_one_after_the_other(n_ways: int, n_kinds: int) -> None:
    rng = np.random.default_rng(n_ways)
    kinds = rng.normal(size=(n_kinds, n_ways, 3)) / 3
    table = kinds[np.sort(rng.permutation(960) % n_kinds)]
    bundles = _bundle_units(table)
    size = 960 // len(bundles.of)
    assert len(bundles.outcomes) <= min(2 * n_kinds, 960 // size)
    picked = rng.integers(0, n_ways, (960, 7), dtype=np.uint16)
    alone = np.zeros((7, 3))
    for start in range(0, 960, size):
        of_bundle = table[start][picked[start]]
        for unit in range(start + 1, start + size):
            of_bundle = of_bundle + table[unit][picked[unit]]
        alone += of_bundle
    assert (_looked_up(bundles, picked, n_ways) == alone).all()


def test_the_tail_of_many_coins_is_binomial() -> None:
    """300 coins of -1 or +1: long enough for the ends of their sum to be cut."""
    coins = np.tile([-1.0, 1.0], (300, 1))
    found = exact_tail([coins], 40.0, two_sided=False)
    assert found == pytest.approx(binom.sf(169, 300, 0.5), rel=1e-9)


def test_a_direction_at_the_floor_counts_both_sides() -> None:
    found = evidence_of([(1, 1, 2, 2)] * 20, list(range(20)), draws=99)
    assert found.p_direction == pytest.approx(2 * (1 / 6) ** 20, rel=1e-6, abs=0)
