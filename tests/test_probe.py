"""Item -> View. Laws over all registered probes and orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.prompt.probes import demo_orders, expand, order_demos, probes, reversed_order
from flipmeter.types import Item


def demos_of(ranks: list[int]) -> tuple[Item, ...]:
    return tuple(
        Item(f"d{k}", {"text": f"t{k}"}, rank, role="demo") for k, rank in enumerate(ranks)
    )


@pytest.mark.parametrize("name", list(probes))
@pytest.mark.parametrize("n_classes", [2, 3, 5, 11])
def test_the_views_of_a_probe_are_permutations_and_the_base_is_first(
    name: str, n_classes: int
) -> None:
    views = probes[name].views(n_classes)
    assert views[0].name == "base"
    assert views[0].is_natural
    assert all(sorted(view.label_order) == [*range(1, n_classes + 1)] for view in views)


@pytest.mark.parametrize("name", list(probes))
def test_every_contrast_compares_views_that_its_probe_shows(name: str) -> None:
    shown = {view.name for view in probes[name].views(3)}
    assert all(set(contrast.views) <= shown for contrast in probes[name].contrasts)


@pytest.mark.parametrize("order", list(demo_orders))
@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 5))
def test_an_order_keeps_the_demonstrations(order: str, ranks: list[int], seed: int) -> None:
    demos = demos_of(ranks)
    assert sorted(d.id for d in order_demos(demos, order, seed)) == sorted(d.id for d in demos)


def test_ascending_and_descending_keep_the_samplers_order_inside_a_class() -> None:
    demos = demos_of([2, 1, 2, 1])
    assert [d.id for d in order_demos(demos, "ascending", 0)] == ["d1", "d3", "d0", "d2"]
    assert [d.id for d in order_demos(demos, "descending", 0)] == ["d0", "d2", "d1", "d3"]


@pytest.mark.parametrize("seed", range(20))
def test_random_differs_from_every_other_order_where_it_can(seed: int) -> None:
    demos = demos_of([2, 3, 1])
    orders = {name: order_demos(demos, name, seed) for name in demo_orders}
    assert orders["random"] not in [orders["base"], orders["ascending"], orders["descending"]]


def test_random_must_collide_where_there_are_only_two_orders() -> None:
    demos = demos_of([2, 1])
    orders = [order_demos(demos, name, 0) for name in ("base", "ascending", "descending")]
    assert order_demos(demos, "random", 0) in orders


def test_reversing_labels_twice_is_the_identity() -> None:
    order = reversed_order(5)
    assert tuple(order[rank - 1] for rank in order) == (1, 2, 3, 4, 5)


def test_without_demonstrations_only_label_order_is_left() -> None:
    names = [view.name for view in expand(["label_order", "demo_order", "placement"], 5, shots=0)]
    assert names == ["base", "reversed"]


def test_repeats_follow_the_view_they_repeat() -> None:
    views = expand(["label_order"], 3, repeats=2, repeated=["base"])
    assert [(view.name, view.repeat) for view in views] == [
        ("base", 0),
        ("base", 1),
        ("reversed", 0),
    ]
