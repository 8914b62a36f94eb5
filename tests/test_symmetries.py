"""Sets of orders: what is in them, what they do to a view, and what they join."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from flipmeter.pipelines.symmetries import Turns, symmetries
from flipmeter.types import View


@pytest.mark.parametrize("n", [3, 4, 5, 6])
@pytest.mark.parametrize("name", [*symmetries])
def test_every_order_of_a_set_is_a_permutation_and_there_once(name: str, n: int) -> None:
    turns = symmetries[name](n)
    assert all(sorted(turn) == list(range(n)) for turn in turns)
    assert len(set(turns)) == len(turns)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_the_sets_have_the_sizes_that_a_plan_counts(n: int) -> None:
    assert {name: len(symmetries[name](n)) for name in symmetries} == {
        "reversal": 2,
        "rotations": n,
        "dihedral": 2 * n,
        "williams": n if n % 2 == 0 else 2 * n,
    }


@pytest.mark.parametrize("name", [*symmetries])
def test_few_positions_have_few_orders(name: str) -> None:
    assert len(symmetries[name](1)) == 1
    assert set(symmetries[name](2)) == {(0, 1), (1, 0)}


@pytest.mark.parametrize("n", [4, 5, 6])
def test_in_a_williams_set_everything_follows_everything_else_equally_often(n: int) -> None:
    turns = symmetries["williams"](n)
    followed = Counter(pair for turn in turns for pair in pairwise(turn))
    assert len(followed) == n * (n - 1)
    assert len(set(followed.values())) == 1


@pytest.mark.parametrize("name", ["rotations", "dihedral", "williams"])
def test_everything_stands_everywhere_equally_often(name: str) -> None:
    turns = symmetries[name](5)
    for place in range(5):
        assert len(set(Counter(turn[place] for turn in turns).values())) == 1


def test_turns_act_on_what_the_view_shows() -> None:
    view = View("odd", (2, 3, 1), demo_turn=(1, 0, 2))
    turned = Turns(labels="reversal", demos="rotations")(view, n_demos=3)
    assert {one.label_order for one in turned} == {(2, 3, 1), (1, 3, 2)}
    assert {one.demo_turn for one in turned} == {(1, 0, 2), (0, 2, 1), (2, 1, 0)}
    assert len(turned) == 6
    assert len({one.name for one in turned}) == 6


def test_a_turn_that_moves_nothing_is_no_turn() -> None:
    view = View("base", (1, 2))
    assert Turns(places="reversal")(view, n_places=2)[0] == view
    there = Turns(places="reversal")(view, n_places=2)[1]
    assert Turns(places="reversal")(there, n_places=2)[1].place_turn == ()


def test_what_is_not_named_stays_as_it_is() -> None:
    view = View("base", (1, 2, 3), placement="after")
    assert Turns(demos="reversal")(view) == (view,)
    assert {one.placement for one in Turns(labels="dihedral")(view)} == {"after"}
