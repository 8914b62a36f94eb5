"""Debiasing against worked examples, naive twins and a model whose slot preference is planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.errors import Problem
from flipmeter.pipelines import averaging
from flipmeter.pipelines import averaging as priors
from flipmeter.pipelines.averaging import (
    NULL_TEXTS,
    PAPER_NULL_TEXTS,
    Prior,
    average_probabilities,
    average_ranks,
    batch_prior,
    choose,
    contextual_prior,
    divide,
    median_ranks,
    pride_cyclic_prior,
    pride_odd_prior,
    pride_paper_prior,
    pseudo_texts,
)
from flipmeter.pipelines.corrections import debiasers
from flipmeter.pipelines.symmetries import by_class, ranks_at, rotations
from flipmeter.registry import OURS
from flipmeter.types import View

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Orders = tuple[tuple[int, ...], ...]

CASES = json.loads((Path(__file__).parent / "cases" / "debias.json").read_text())
SEEDS = st.integers(0, 2**32 - 1)
CLASSES = st.integers(2, 11)
ORDERS = CLASSES.flatmap(lambda n: st.permutations(range(1, n + 1)))
RANK_TABLES = st.tuples(st.integers(1, 6), st.integers(2, 7)).flatmap(
    lambda shape: st.lists(
        st.lists(st.integers(0, shape[1]), min_size=shape[0], max_size=shape[0]),
        min_size=1,
        max_size=5,
    )
)
FULL_TABLES = RANK_TABLES.map(lambda table: [[rank or 1 for rank in row] for row in table])

TRUE_PRIOR = (0.10, 0.15, 0.20, 0.25, 0.30)


def about(case: dict[str, Any]) -> str:
    return str(case["about"])


def mirrored(n_classes: int) -> Orders:
    natural = tuple(range(1, n_classes + 1))
    return natural, natural[::-1]


def shown(content: Floats, orders: Orders, slots: npt.ArrayLike = 1.0) -> Floats:
    """Ask a model that multiplies what it thinks by what it likes: items x views x slots."""
    odds = content[:, np.array(orders) - 1] * np.asarray(slots, dtype=np.float64)
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


def some_content(rng: np.random.Generator, n_classes: int, n_items: int = 12) -> Floats:
    """Draw contents that favour low classes, so that nothing is symmetric by chance."""
    return rng.dirichlet(1.0 / np.arange(1, n_classes + 1), n_items) * 0.99 + 0.01 / n_classes


# --- worked examples --------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES["priors"], ids=about)
def test_worked_priors_and_what_they_correct(case: dict[str, Any]) -> None:
    prior = (getattr(priors, case["function"], None) or getattr(averaging, case["function"]))(
        **case["inputs"]
    )
    assert prior.weights == pytest.approx(case["weights"], abs=1e-6)
    corrected = divide(case["raw"], prior)
    assert corrected == pytest.approx(np.array(case.get("corrected", corrected)), abs=1e-6)
    assert choose(corrected, case["order"]).ranks.tolist() == case["ranks"]


@pytest.mark.parametrize("case", CASES["ranks"], ids=about)
def test_worked_averages_of_ranks(case: dict[str, Any]) -> None:
    choice = (getattr(priors, case["function"], None) or getattr(averaging, case["function"]))(
        **case["inputs"]
    )
    assert choice.ranks.tolist() == case["ranks"]
    assert choice.tie_decided.tolist() == case["tied"]


@pytest.mark.parametrize("case", CASES["averages"], ids=about)
def test_worked_averages_of_probabilities(case: dict[str, Any]) -> None:
    found = average_probabilities(**case["inputs"])
    assert found == pytest.approx(np.array(case["expected"]), abs=1e-6)


# --- slots and classes ------------------------------------------------------------------------


@given(ORDERS, SEEDS)
def test_classes_are_found_where_a_view_puts_them(order: list[int], seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.ones(len(order)), 3)
    view = View("shuffled", tuple(order))
    expected = np.stack([p[:, view.slot_of(rank) - 1] for rank in sorted(order)], axis=1)
    assert (by_class(p, order) == expected).all()


def test_each_view_has_its_own_order() -> None:
    p = [[[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]]]
    found = by_class(p, [[1, 2, 3], [2, 3, 1]])
    assert found.tolist() == [[[0.7, 0.2, 0.1], [0.1, 0.7, 0.2]]]
    assert ranks_at([[1, 1], [0, 3]], [[1, 2, 3], [2, 3, 1]]).tolist() == [[1, 2], [0, 1]]


@given(CLASSES)
def test_in_rotations_every_class_visits_every_slot_once(n_classes: int) -> None:
    orders = rotations(n_classes)
    assert orders[0] == tuple(range(1, n_classes + 1))
    everything = set(orders[0])
    assert all(set(order) == everything for order in orders)
    assert all({order[slot] for order in orders} == everything for slot in range(n_classes))


# --- averages of ranks ------------------------------------------------------------------------


@given(RANK_TABLES)
def test_the_papers_average_rounds_half_up(table: list[list[int]]) -> None:
    found = average_ranks(table, mode="paper")
    for row, rank, tied in zip(table, found.ranks, found.tie_decided, strict=True):
        mean = Fraction(sum(row), len(row))
        assert rank == (floor(mean + Fraction(1, 2)) if all(row) else 0)
        assert tied == (all(row) and mean % 1 == Fraction(1, 2))


@given(FULL_TABLES)
def test_the_recommended_average_has_no_direction(table: list[list[int]]) -> None:
    top = 1 + max(map(max, table))
    found = average_ranks(table)
    turned = average_ranks(top - np.array(table))
    assert (turned.ranks == top - found.ranks).all()
    assert (turned.tie_decided == found.tie_decided).all()


@given(FULL_TABLES, st.data())
def test_both_averages_rise_with_any_view(table: list[list[int]], data: st.DataObject) -> None:
    view = data.draw(st.integers(0, len(table[0]) - 1))
    more = np.array(table)
    more[:, view] += 1
    for average in (average_ranks, median_ranks, lambda t: average_ranks(t, mode="paper")):
        assert (average(more).ranks >= average(table).ranks).all()


@given(FULL_TABLES, SEEDS)
def test_the_median_is_nearest_to_all_views_in_any_order(table: list[list[int]], seed: int) -> None:
    found = median_ranks(table)
    shuffled = np.random.default_rng(seed).permuted(np.array(table), axis=1)
    assert (median_ranks(shuffled).ranks == found.ranks).all()
    for row, rank, tied in zip(table, found.ranks, found.tie_decided, strict=True):
        distances = {c: sum(abs(c - other) for other in row) for c in range(1, 8)}
        least = min(distances.values())
        assert distances[int(rank)] == least
        assert tied == (sum(d == least for d in distances.values()) > 1)


@given(FULL_TABLES)
def test_the_median_has_no_direction_but_for_the_last_resort(table: list[list[int]]) -> None:
    found, turned = median_ranks(table), median_ranks(8 - np.array(table))
    halfway = np.isclose(np.array(table).mean(axis=1) % 1, 0.5)
    assert (turned.ranks == 8 - found.ranks)[~(found.tie_decided & halfway)].all()


def test_views_that_agree_are_left_alone() -> None:
    table = np.repeat([[1], [4], [7], [0]], 4, axis=1)
    for average in (average_ranks, median_ranks):
        assert average(table).ranks.tolist() == [1, 4, 7, 0]
        assert not average(table).tie_decided.any()


def test_half_an_average_is_none_unless_one_view_is_enough() -> None:
    p = [[[0.7, 0.2, 0.1], [np.nan] * 3], [[np.nan] * 3] * 2]
    for mean in ("geometric", "arithmetic"):
        assert np.isnan(average_probabilities(p, mirrored(3), mean=mean)).all()
        found = average_probabilities(p, mirrored(3), mean=mean, least=1)
        assert found[0] == pytest.approx([0.7, 0.2, 0.1])
        assert np.isnan(found[1]).all()


# --- the most probable class ------------------------------------------------------------------


def test_among_equals_the_paper_takes_the_first_slot_and_we_the_class_near_the_mean() -> None:
    p = [[0.4, 0.1, 0.4, 0.1], [0.4, 0.1, 0.1, 0.4], [0.1, 0.2, 0.3, 0.4], [np.nan] * 4]
    reverse = [4, 3, 2, 1]
    assert choose(p, mode="paper").ranks.tolist() == [1, 1, 4, 0]
    assert choose(p, reverse, mode="paper").ranks.tolist() == [4, 4, 1, 0]
    assert choose(p).ranks.tolist() == [3, 1, 4, 0]
    assert choose(p, reverse).ranks.tolist() == [2, 1, 1, 0]
    for mode in ("paper", "recommended"):
        assert choose(p, mode=mode).tie_decided.tolist() == [True, True, False, False]


@given(ORDERS, SEEDS)
def test_without_ties_the_most_probable_class_is_the_one_at_the_best_slot(
    order: list[int], seed: int
) -> None:
    p = np.random.default_rng(seed).dirichlet(np.ones(len(order)), 4)
    expected = [order[row.argmax()] for row in p]
    assert choose(p, order).ranks.tolist() == expected
    assert choose(p, order, mode="paper").ranks.tolist() == expected


# --- laws over all corrections ----------------------------------------------------------------

Correction = Callable[[Floats, Orders, Floats], Floats]
"""From items x views x slots, their orders and null texts x slots, to items x views x slots."""


def _batch(p: Floats, orders: Orders, null: Floats) -> Floats:
    views = np.moveaxis(p, 1, 0)
    return np.stack([divide(view, batch_prior(view)) for view in views], axis=1)


def _average(p: Floats, orders: Orders, null: Floats) -> Floats:
    """The average by class, put back into the slots of every view."""
    average = average_probabilities(p, orders)
    return np.stack([average[:, np.array(order) - 1] for order in orders], axis=1)


CORRECTIONS: dict[str, tuple[Callable[[int], Orders], Correction]] = {
    "pride_paper": (mirrored, lambda p, orders, null: divide(p, pride_paper_prior(p, orders))),
    "pride_odd": (mirrored, lambda p, orders, null: divide(p, pride_odd_prior(p, orders))),
    "pride_cyclic": (rotations, lambda p, orders, null: divide(p, pride_cyclic_prior(p, orders))),
    "contextual": (mirrored, lambda p, orders, null: divide(p, contextual_prior(null))),
    "batch": (mirrored, _batch),
    "average of two": (mirrored, _average),
    "average of rotations": (rotations, _average),
}
BY_ANOTHER_NAME = {"pride": "pride_odd", "domain_context": "contextual"}
"""Debiasers whose formula is that of another, on other texts or in another mode."""
correction = pytest.mark.parametrize("name", CORRECTIONS)


def test_every_built_in_debiaser_is_sorted_into_the_laws() -> None:
    ours = [name for name in debiasers if debiasers.package(name) == OURS]
    unsorted = [name for name in ours if BY_ANOTHER_NAME.get(name, name) not in CORRECTIONS]
    assert not unsorted, f"sort into CORRECTIONS in {Path(__file__).name}: {unsorted}"


@correction
@given(n_classes=CLASSES, seed=SEEDS)
def test_a_correction_keeps_probabilities_and_passes_over_what_is_missing(
    name: str, n_classes: int, seed: int
) -> None:
    orders, correct = CORRECTIONS[name][0](n_classes), CORRECTIONS[name][1]
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(n_classes, 0.3), (6, len(orders)))
    p[p < 0.05] = 0.0
    p[0] = np.eye(n_classes)[0]
    p[0, 0] = np.eye(n_classes)[-1]
    p /= p.sum(axis=-1, keepdims=True)
    missing = np.array([False, False, True, False, False, True])
    p[missing] = np.nan
    corrected = correct(p, orders, p[:, 0])
    assert np.isnan(corrected[missing]).all()
    assert (corrected[~missing] >= 0).all()
    assert corrected[~missing].sum(axis=-1) == pytest.approx(1)


@correction
@given(n_classes=CLASSES, seed=SEEDS)
def test_an_untilted_model_is_left_alone(name: str, n_classes: int, seed: int) -> None:
    orders, correct = CORRECTIONS[name][0](n_classes), CORRECTIONS[name][1]
    one = some_content(np.random.default_rng(seed), n_classes, 1)[0]
    balanced = np.stack([np.roll(one, turn) for turn in range(n_classes)])
    p = shown(balanced, orders)
    null = np.full((3, n_classes), 1 / n_classes)
    assert correct(p, orders, null) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("name", ["pride_cyclic", "contextual", "average of rotations"])
@given(n_classes=CLASSES, seed=SEEDS)
def test_slot_preference_is_removed_whatever_the_items_say(
    name: str, n_classes: int, seed: int
) -> None:
    orders, correct = CORRECTIONS[name][0](n_classes), CORRECTIONS[name][1]
    rng = np.random.default_rng(seed)
    content, slots = some_content(rng, n_classes), rng.uniform(0.2, 5.0, n_classes)
    corrected = correct(shown(content, orders, slots), orders, slots[None] / slots.sum())
    assert by_class(corrected, orders) == pytest.approx(
        np.repeat(content[:, None], len(orders), axis=1), abs=1e-9
    )


@pytest.mark.parametrize("name", ["pride_odd", "average of two"])
@given(n_classes=CLASSES, seed=SEEDS)
def test_two_orders_agree_on_every_item_whatever_the_items_say(
    name: str, n_classes: int, seed: int
) -> None:
    orders, correct = mirrored(n_classes), CORRECTIONS[name][1]
    rng = np.random.default_rng(seed)
    p = shown(some_content(rng, n_classes), orders, rng.uniform(0.2, 5.0, n_classes))
    classes = by_class(correct(p, orders, p[:, 0]), orders)
    assert classes[:, 0] == pytest.approx(classes[:, 1], abs=1e-9)
    natural, reverse = choose(classes).ranks.T
    assert (natural == reverse).all()


@given(CLASSES, SEEDS)
def test_the_odd_prior_is_the_part_of_the_preference_that_mirroring_turns_round(
    n_classes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    slots = rng.uniform(0.2, 5.0, n_classes)
    p = shown(some_content(rng, n_classes), mirrored(n_classes), slots)
    odd = np.sqrt(slots / slots[::-1])
    assert pride_odd_prior(p, mirrored(n_classes)).weights == pytest.approx(odd / odd.sum())


# --- priors -----------------------------------------------------------------------------------


def test_a_prior_says_what_it_is_made_of() -> None:
    p = shown(some_content(np.random.default_rng(1), 3, 5), mirrored(3), (3, 2, 1))
    p[1, 0] = np.nan
    prior = pride_odd_prior(p, mirrored(3))
    assert (prior.form, prior.n_items) == ("pride_odd", 4)
    assert prior.weights == pytest.approx(pride_odd_prior(p[[0, 2, 3, 4]], mirrored(3)).weights)
    assert contextual_prior(p[:, 0]).n_items == 4
    assert contextual_prior(p[:, 1], form="domain_context").form == "domain_context"


def test_a_slot_that_was_never_chosen_does_not_win_by_division() -> None:
    prior = contextual_prior([[0.9, 0.1, 0.0]])
    assert prior.weights[2] == pytest.approx(1e-10)
    assert divide([[0.5, 0.5, 0.0]], prior) == pytest.approx(np.array([[0.1, 0.9, 0.0]]))


# METHODS A11 does not say what its items were; these opinions give all of its numbers.
SKEWS = pytest.mark.parametrize(
    ("shares", "estimate", "flips"),
    [
        ((0.2, 0.2, 0.2, 0.2, 0.2), (0.17, 0.20, 0.21, 0.21, 0.21), None),
        ((0.05, 0.1, 0.7, 0.1, 0.05), (0.05, 0.14, 0.54, 0.18, 0.08), 0.125),
        ((0.45, 0.05, 0.0, 0.05, 0.45), (0.35, 0.12, 0.04, 0.10, 0.40), 0.147),
    ],
    ids=["balanced", "mostly neutral", "extreme"],
)


def opinions(shares: tuple[float, ...], n_items: int = 6_000) -> tuple[Ints, Floats]:
    """Draw true classes, and contents that fall off around them with some noise."""
    rng = np.random.default_rng(11)
    ranks = np.arange(len(shares)) + 1
    gold = rng.choice(ranks, n_items, p=shares)
    far = np.abs(ranks - gold[:, None])
    content = np.exp(-2 * far + rng.normal(0, 0.6, far.shape))
    return gold, content / content.sum(axis=1, keepdims=True)


def flips_and_accuracy(p: Floats, orders: Orders, gold: Ints) -> tuple[float, float]:
    """Compare the answers to the first view and the last: of five rotations, or of two orders."""
    ranks = choose(p, orders).ranks
    return float(np.mean(ranks[:, 0] != ranks[:, -1])), float(np.mean(ranks[:, 0] == gold))


@SKEWS
def test_the_papers_prior_is_what_the_items_say(
    shares: tuple[float, ...], estimate: tuple[float, ...], flips: float | None
) -> None:
    gold, content = opinions(shares)
    orders = mirrored(5)
    p = shown(content, orders, TRUE_PRIOR)
    prior = pride_paper_prior(p, orders)
    assert prior.weights == pytest.approx(estimate, abs=0.012)
    raw_flips, raw_accuracy = flips_and_accuracy(p, orders, gold)
    assert raw_flips == pytest.approx(0.03, abs=0.01)
    if flips is not None:
        worse, accuracy = flips_and_accuracy(divide(p, prior), orders, gold)
        assert worse == pytest.approx(flips, abs=0.02)
        assert 0.17 < raw_accuracy - accuracy < 0.25


@SKEWS
def test_the_odd_and_the_cyclic_prior_do_not_hear_what_the_items_say(
    shares: tuple[float, ...], estimate: tuple[float, ...], flips: float | None
) -> None:
    gold, content = opinions(shares)
    for orders, estimated in ((mirrored(5), pride_odd_prior), (rotations(5), pride_cyclic_prior)):
        p = shown(content, orders, TRUE_PRIOR)
        raw = flips_and_accuracy(p, orders, gold)[1]
        flipped, accuracy = flips_and_accuracy(divide(p, estimated(p, orders)), orders, gold)
        assert flipped == 0
        assert accuracy > raw - 0.005
    assert estimated(p, orders).weights == pytest.approx(TRUE_PRIOR)


# --- domain-context texts ---------------------------------------------------------------------

CORPUS = ("The soup was cold", "A Warm welcome", "never again")


def test_pseudo_texts_have_the_words_and_the_length_of_the_corpus() -> None:
    texts = pseudo_texts(CORPUS, 30, seed=5)
    words = {word for text in CORPUS for word in text.lower().split()}
    assert len(texts) == 30
    assert len(set(texts)) > 25
    for text in texts:
        *drawn, stop = text.split(" ")
        assert (len(drawn), stop) == (3, ".")
        assert set(drawn) <= words
    assert {word for text in texts for word in text.split()[:-1]} == words


def test_pseudo_texts_depend_on_the_seed_and_the_words_alone() -> None:
    assert pseudo_texts(CORPUS, 5, 1) == pseudo_texts(CORPUS[::-1], 5, 1)
    assert pseudo_texts(CORPUS, 5, 1) == pseudo_texts(CORPUS, 20, 1)[:5]
    assert pseudo_texts(CORPUS, 5, 1) != pseudo_texts(CORPUS, 5, 2)


def test_the_null_text_of_the_paper_is_one_of_three() -> None:
    assert NULL_TEXTS == ("N/A", "", "[MASK]")
    assert PAPER_NULL_TEXTS == ("N/A",)


# --- problems ---------------------------------------------------------------------------------

EVEN = np.full((2, 2, 3), 1 / 3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: by_class([[0.5, 0.4]], [1, 2]), r"not distributions, such as \[0.5, 0.4\]"),
        (lambda: by_class([[0.5, np.nan]], [1, 2]), "to NaN"),
        (lambda: by_class([[1.0]], [1]), "at least two slots"),
        (lambda: by_class([[0.5, 0.5]], [1, 1]), "each rank 1 to 2 once"),
        (lambda: by_class([[0.5, 0.5]], [0, 1]), "each rank 1 to 2 once"),
        (lambda: by_class(EVEN, [[1, 2, 3]] * 4), "one per view"),
        (lambda: ranks_at([3], [1, 2]), "slots contain 3"),
        (lambda: ranks_at([1], 1), "an order has 0 slots"),
        (lambda: by_class([[0.5, 0.5], [1.0]], [1, 2]), "equally many for every item"),
        (lambda: average_ranks([[1, 2], [1]]), "the same number for every item"),
        (lambda: average_ranks([1, 2]), "items x views"),
        (lambda: average_ranks([[1.5, 2]]), "whole numbers"),
        (lambda: average_ranks([[1, 2]], least=3), "least must be 1 to 2"),
        (lambda: average_probabilities([[0.5, 0.5]], [1, 2]), "items x views x slots"),
        (lambda: pride_odd_prior(EVEN, [[1, 2, 3], [2, 3, 1]]), "as often as at its mirror"),
        (lambda: pride_paper_prior(EVEN, [[1, 2, 3], [1, 2, 3]]), "as often as at its mirror"),
        (lambda: pride_cyclic_prior(EVEN, mirrored(3)), "every class at every slot"),
        (lambda: pride_odd_prior(EVEN * np.nan, mirrored(3)), "none of 2 items"),
        (lambda: contextual_prior(EVEN), "of one order"),
        (lambda: divide(EVEN, Prior((0.5, 0.5), "batch", 1)), "2 slots does not fit 3"),
        (lambda: Prior((1.0, 0.0), "batch", 1), "positive and sums to 1"),
        (lambda: pseudo_texts(["", " "]), "no words"),
    ],
)
def test_a_problem_names_the_thing_and_the_way_out(wrong: Callable[[], object], words: str) -> None:
    with pytest.raises(Problem, match=words):
        wrong()
