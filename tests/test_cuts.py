"""Yes-no answers about cuts and classes: how they are put together, and how a class is decided."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.decide import Asked, open_pipeline
from flipmeter.decide.monotone import class_shares, falling, middle_classes
from flipmeter.decide.pipelines.cuts import leaning
from flipmeter.types import Answer, Ask, Decision, Item, Problem, Scale, View

BASE = View("base", (1, 2, 3))
ITEM = Item("i", {"text": "A text."}, 2)
PANEL = Asked((ITEM,), BASE, scale=Scale(("low", "middle", "high")))
SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(SHARES, st.data())
def test_cuts_made_monotone_never_rise_and_keep_their_weighted_mean(
    above: list[float], data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(1, 4), min_size=len(above), max_size=len(above)))
    found = falling(above, weights)
    assert all(a >= b - 1e-12 for a, b in pairwise(found))
    mean = sum(w * x for w, x in zip(weights, above, strict=True))
    assert sum(w * x for w, x in zip(weights, found, strict=True)) == pytest.approx(mean)


@given(SHARES)
def test_cuts_that_fall_already_stay_as_they_are(above: list[float]) -> None:
    ordered = sorted(above, reverse=True)
    assert falling(ordered, [1] * len(ordered)) == ordered


def test_neighbours_in_the_wrong_order_share_their_mean_by_weight() -> None:
    assert falling([0.2, 0.8, 0.1], [1, 1, 1]) == pytest.approx([0.5, 0.5, 0.1])
    assert falling([0.2, 0.8, 0.1], [3, 1, 1]) == pytest.approx([0.35, 0.35, 0.1])


@given(SHARES)
def test_classes_share_the_whole_probability(above: list[float]) -> None:
    shares = class_shares(sorted(above, reverse=True))
    assert len(shares) == len(above) + 1
    assert min(shares) >= 0
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("above", "middle", "classes"),
    [
        ([0.9, 0.2], "median", [2]),
        ([0.9, 0.5], "median", [2]),  # 2 and 3 are medians, and 2.4 is nearer to 2
        ([0.5, 0.5], "median", [2]),
        ([0.5], "median", [1, 2]),
        ([0.5, 0.1], "median", [2]),  # 1 and 2 are, and 1.6 is nearer to 2
        ([0.6, 0.6, 0.45, 0.45], "median", [3]),
        ([0.9, 0.9, 0.4, 0.4], "expected", [4]),
        ([0.9, 0.9, 0.4, 0.4], "median", [3]),
        ([0.5], "expected", [1, 2]),
    ],
)
def test_the_middle_class(above: list[float], middle: str, classes: list[int]) -> None:
    assert middle_classes(above, middle) == classes  # type: ignore[arg-type]


@given(SHARES, st.sampled_from(["median", "expected"]))
def test_a_scale_from_its_other_end_has_the_mirrored_middle(above: list[float], how: str) -> None:
    ordered = sorted(above, reverse=True)
    mirrored = [1 - p for p in ordered[::-1]]
    top = len(above) + 2
    found = middle_classes(mirrored, how)  # type: ignore[arg-type]
    assert sorted(top - rank for rank in found) == middle_classes(ordered, how)  # type: ignore[arg-type]


# --- one question -----------------------------------------------------------------------------


def answer(p_yes: float, way: str) -> Answer:
    """A reply to a question put a way, such as "up yes_first"."""
    polarity, order = way.split()
    first_is_so = (polarity == "up") == (order == "yes_first")
    p_first = p_yes if order == "yes_first" else 1 - p_yes
    slot = 1 if p_first > 0.5 else 2
    ranks = (2, 1) if first_is_so else (1, 2)
    return Answer(slot, ranks[slot - 1], None, (p_first, 1 - p_first), 1.0, ranks)


WAYS = ["up yes_first", "up no_first", "down yes_first", "down no_first"]


def test_the_score_is_half_the_difference_of_the_log_odds_of_yes() -> None:
    found = leaning(
        [answer(p, way) for p, way in zip((0.8, 0.8, 0.4, 0.4), WAYS, strict=True)], BASE
    )
    # (log 4 - log(2/3)) / 2 = log sqrt 6
    assert found.p == pytest.approx(6**0.5 / (1 + 6**0.5))
    assert found.n_read == 4


@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95), st.floats(-3, 3))
def test_a_liking_for_yes_that_is_equal_both_ways_cancels(up: float, down: float, c: float) -> None:
    def tilted(p: float) -> float:
        odds = p / (1 - p) * math.exp(c)
        return odds / (1 + odds)

    plain = leaning(
        [answer(p, way) for p, way in zip((up, up, down, down), WAYS, strict=True)], BASE
    )
    moved = [answer(tilted(p), way) for p, way in zip((up, up, down, down), WAYS, strict=True)]
    assert leaning(moved, BASE).p == pytest.approx(plain.p)


def test_without_probabilities_answers_are_votes() -> None:
    votes = [
        replace(answer(p, way), probabilities=None)
        for p, way in zip((0.9, 0.9, 0.9, 0.1), WAYS, strict=True)
    ]
    assert leaning(votes, BASE).p == pytest.approx(0.75)


def test_a_polarity_without_an_answer_leaves_none() -> None:
    lost = [answer(0.9, way) for way in WAYS[:2]] + [Answer(fault="refused")] * 2
    assert leaning(lost, BASE).p is None
    half = [answer(0.9, way) for way in WAYS[:3]] + [Answer(fault="refused")]
    assert leaning(half, BASE).p is not None
    assert leaning(half, BASE).n_read == 3


# --- a pipeline -------------------------------------------------------------------------------


def settled(name: str, said: dict[int, float], panel: Asked = PANEL) -> Decision:
    """Decide where every way of asking says the same: it is so with probability `said[rank]`."""
    pipeline = open_pipeline(name)
    heard = {}
    for ask in pipeline.asks(panel, {}):
        _, rank, polarity, order = ask.part.split()
        p_yes = said[int(rank)] if polarity == "up" else 1 - said[int(rank)]
        heard[ask] = answer(p_yes, f"{polarity} {order}")
    return pipeline.settle(panel, heard)[0]


def test_a_cut_that_contradicts_its_neighbour_is_made_monotone() -> None:
    found = settled("cumulative", {2: 0.3, 3: 0.9})
    assert found.probabilities == pytest.approx((0.4, 0.0, 0.6))
    assert found.rank == 3


def test_the_expected_rank_may_be_another_class_than_the_median() -> None:
    panel = replace(PANEL, view=View("base", (1, 2, 3, 4, 5)), scale=None)
    said = {2: 0.9, 3: 0.9, 4: 0.45, 5: 0.45}
    assert settled("cumulative", said, panel).rank == 3
    assert settled("cumulative(expected)", said, panel).rank == 4


def test_classes_one_by_one_are_normalised_over_all_of_them() -> None:
    found = settled("labelwise", {1: 0.2, 2: 0.6, 3: 0.4})
    assert found.probabilities == pytest.approx((1 / 6, 1 / 2, 1 / 3))
    assert found.rank == 2


def test_ties_are_broken_by_name_where_nothing_else_tells_classes_apart() -> None:
    panel = replace(PANEL, view=View("base", (1, 2)), scale=Scale(("zebra", "ant")))
    found = settled("cumulative", {2: 0.5}, panel)
    assert (found.rank, found.tie_decided) == (2, True)
    nominal = replace(PANEL, scale=Scale(("zebra", "ant", "moth"), nominal=True))
    assert settled("labelwise", {1: 0.5, 2: 0.1, 3: 0.5}, nominal).rank == 3


@pytest.mark.parametrize(
    ("view", "n_calls"),
    [
        (BASE, 8),
        (replace(BASE, polarity="up"), 4),
        (replace(BASE, answer_order="no_first"), 4),
        (replace(BASE, polarity="down", answer_order="yes_first"), 2),
    ],
)
def test_a_view_says_which_ways_are_asked(view: View, n_calls: int) -> None:
    assert len(open_pipeline("cumulative").asks(replace(PANEL, view=view), {})) == n_calls


def test_labels_take_a_call_for_each_class_and_way() -> None:
    assert len(open_pipeline("labelwise").asks(PANEL, {})) == 12


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cumulative(mean)", "'cumulative' takes expected; demos"),
        ("cumulative(expected expected)", "takes expected; demos"),
        ("orbit(labels:sideways)", "labels:reversal or labels:rotations"),
        ("windows(2)", "'windows' takes 1"),
        ("pointwise(3)", "'pointwise' takes no options"),
        ("orbit()", "takes labels:reversal"),
    ],
)
def test_options_that_there_are_not_are_refused_with_those_that_there_are(
    name: str, message: str
) -> None:
    with pytest.raises(Problem, match="takes") as problem:
        open_pipeline(name)
    assert message in str(problem.value)


def test_an_ask_names_the_cut_and_the_way() -> None:
    first = open_pipeline("cumulative").asks(PANEL, {})[0]
    assert first == Ask(ITEM, BASE, "cut 2 up yes_first")
