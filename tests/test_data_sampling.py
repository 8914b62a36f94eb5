"""The test set is fixed and mixed, demonstrations follow their seed, and nothing leaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.chance import shuffled
from flipmeter.data.sampling import Sample, sample
from flipmeter.errors import Problem
from flipmeter.types import Dataset, Item, Scale, Task

NAMES = ("low", "medium", "high")
seeds = st.integers(0, 2**64)
sizes = st.lists(st.integers(20, 60), min_size=3, max_size=3)


def items(counts: Sequence[int], prefix: str) -> tuple[Item, ...]:
    return tuple(
        Item(f"{prefix}{rank}-{n}", {"text": f"{prefix} text {rank} {n}"}, rank)
        for rank, count in enumerate(counts, start=1)
        for n in range(count)
    )


def dataset(test: Sequence[int], pool: Sequence[int] = ()) -> Dataset:
    return Dataset("tiny", Task(Scale(NAMES)), items(pool, "p"), items(test, "t"))


def ids(drawn: Sequence[Item]) -> list[str]:
    return [item.id for item in drawn]


def per_class(drawn: Sequence[Item]) -> list[int]:
    counts = Counter(item.gold for item in drawn)
    return [counts[rank] for rank in (1, 2, 3)]


def test_the_sample_of_a_tiny_dataset_is_the_same_everywhere() -> None:
    drawn = sample(dataset([4, 3, 5], [3, 3, 3]), test_size=7, shots=1, seed=42)
    assert ids(drawn.test) == ["t3-4", "t2-2", "t1-0", "t3-2", "t1-1", "t2-1", "t3-1"]
    assert ids(drawn.demos) == ["p3-1", "p1-0", "p2-1"]


@given(counts=sizes, pool=st.booleans(), a=seeds, b=seeds, shots=st.integers(0, 5))
def test_the_test_set_depends_on_neither_seed_nor_shots(
    counts: list[int], pool: bool, a: int, b: int, shots: int
) -> None:
    whole = dataset(counts, [9, 9, 9] if pool else ())
    first, second = (
        sample(whole, test_size=30, seed=a),
        sample(whole, test_size=30, seed=b, shots=shots),
    )
    assert first.test == second.test


@given(counts=sizes, seed=seeds, order=st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_their_ids_matter(
    counts: list[int], seed: int, order: st.DrawFn
) -> None:
    whole = dataset(counts)
    rows = [Item(f"x{n}", item.fields, item.gold) for n, item in enumerate(whole.test)]
    order.shuffle(rows)  # type: ignore[attr-defined]
    other = Dataset("tiny", whole.task, (), tuple(rows))
    first, second = (sample(each, test_size=20, seed=seed) for each in (whole, other))
    assert [item.text for item in first.test] == [item.text for item in second.test]
    assert [item.text for item in first.demos] == [item.text for item in second.demos]


@given(counts=sizes, size=st.integers(1, 36))
def test_equal_balance_differs_by_at_most_one_in_every_prefix(counts: list[int], size: int) -> None:
    drawn = sample(dataset(counts), test_size=size, seed=0).test
    assert len(drawn) == size
    for end in range(size + 1):
        shares = per_class(drawn[:end])
        assert max(shares) - min(shares) <= 2
    assert max(per_class(drawn)) - min(per_class(drawn)) <= 1


@given(counts=st.lists(st.integers(5, 90), min_size=3, max_size=3), size=st.integers(1, 15))
def test_proportional_balance_keeps_each_share_to_within_one(counts: list[int], size: int) -> None:
    drawn = sample(dataset(counts, [5] * 3), test_size=size, seed=0, balance="proportional").test
    shares = [size * count / sum(counts) for count in counts]
    assert all(abs(n - share) < 1 for n, share in zip(per_class(drawn), shares, strict=True))
    assert len(drawn) == size


@given(counts=sizes, seed=seeds, shots=st.integers(0, 8))
def test_each_class_is_shown_equally_often_and_never_tested(
    counts: list[int], seed: int, shots: int
) -> None:
    drawn = sample(dataset(counts), test_size=30, shots=shots, seed=seed)
    assert per_class(drawn.demos) == [shots] * 3
    assert not set(ids(drawn.demos)) & set(ids(drawn.test))
    assert {item.role for item in drawn.demos} <= {"demo"}


@given(seed=seeds)
def test_fewer_shots_and_fewer_items_are_part_of_more(seed: int) -> None:
    whole = dataset([30, 40, 50], [20, 20, 20])
    small = sample(whole, test_size=30, shots=2, seed=seed)
    large = sample(whole, test_size=60, shots=5, seed=seed)
    assert large.test[:30] == small.test
    assert small.demos == tuple(demo for demo in large.demos if demo in small.demos)


def test_another_seed_shows_other_demonstrations_in_mixed_order() -> None:
    whole = dataset([30, 30, 30], [30, 30, 30])
    drawn = [sample(whole, test_size=30, seed=seed).demos for seed in (0, 1, 42)]
    assert len({frozenset(ids(demos)) for demos in drawn}) == 3
    golds = [[item.gold or 0 for item in demos] for demos in drawn]
    assert all(order != sorted(order) and order != sorted(order)[::-1] for order in golds)


def test_another_test_seed_tests_other_items() -> None:
    whole = dataset([90, 90, 90], [5, 5, 5])
    first, second = (sample(whole, test_size=60, seed=0, test_seed=seed) for seed in (0, 1))
    assert set(ids(first.test)) != set(ids(second.test))
    assert first.demos == second.demos


def test_left_over_places_go_to_the_larger_class() -> None:
    drawn = sample(dataset([5, 6, 5], [1, 1, 1]), test_size=16, shots=1, seed=0)
    assert per_class(drawn.test) == [5, 6, 5]


def with_rows(*rows: tuple[str, int], pool: Sequence[tuple[str, int]] = ()) -> Dataset:
    test, shown = (
        tuple(Item(f"{name}{n}", {"text": text}, rank) for n, (text, rank) in enumerate(part))
        for name, part in (("x", rows), ("y", pool))
    )
    whole = dataset([9, 9, 9], [9, 9, 9])
    return Dataset("tiny", whole.task, whole.pool + shown, whole.test + test)


def everything(whole: Dataset) -> Sample:
    return sample(whole, test_size=27, shots=9, seed=0)


def test_rows_that_must_not_be_sampled_are_counted() -> None:
    drawn = everything(
        with_rows(
            ("twice", 1),
            ("Twice ", 1),
            ("torn", 1),
            ("torn", 2),
            ("\u200b ", 3),
            pool=[("t TEXT  1 0", 1), ("torn", 1), ("", 2), ("x", 1), ("x", 2), ("x", 2)],
        )
    )
    assert drawn.left_out == {"contradictory": 5, "duplicate": 1, "empty": 2, "leak": 2}
    assert "pool: 2 rows whose text is also in the test set are not sampled" in drawn.notes


def test_a_text_in_pool_and_test_is_never_shown() -> None:
    leaky = [(f"t text {rank} {n}", rank) for rank in (1, 2, 3) for n in range(9)]
    drawn = everything(with_rows(pool=leaky))
    assert all(item.text.startswith("p ") for item in drawn.demos)
    assert drawn.left_out == {"leak": 27}


def test_unlabelled_rows_are_left_out() -> None:
    whole = dataset([9, 9, 9])
    mixed = Dataset("tiny", whole.task, (), (*whole.test, Item("?", {"text": "who knows"})))
    assert sample(mixed, test_size=9, shots=1, seed=0).left_out == {"unlabelled": 1}


def test_a_class_with_too_few_test_items_is_named_with_the_largest_size_that_works() -> None:
    whole = dataset([4, 20, 5], [9, 9, 9])
    with pytest.raises(Problem, match="class 'low' has 4 items to test and its equal share of "):
        sample(whole, test_size=20, seed=0)
    with pytest.raises(Problem, match="the largest equal test_size is 14, or set balance"):
        sample(whole, test_size=15, seed=0)
    assert per_class(sample(whole, test_size=14, seed=0).test) == [4, 5, 5]


def test_items_set_aside_are_part_of_the_message() -> None:
    with pytest.raises(Problem, match=r"has 6 items to test \(5 more are set aside for demonstra"):
        sample(dataset([11, 50, 50]), test_size=60, seed=0)
    with pytest.raises(Problem, match=r"has 66 items to test and 45 set aside .* use 66 or fewer"):
        sample(dataset([11, 50, 50]), test_size=70, seed=0, balance="proportional")


@pytest.mark.parametrize("pool", [(), (9, 3, 9)])
def test_a_class_with_too_few_demonstrations_is_named(pool: tuple[int, ...]) -> None:
    whole = dataset([9, 3, 9], pool)
    with pytest.raises(Problem, match="class 'medium' has 3 items to show and shots 5 needs 5"):
        sample(whole, test_size=3, seed=0)


def test_no_shots_need_no_pool() -> None:
    drawn = sample(dataset([1, 1, 1]), test_size=3, shots=0, seed=0)
    assert (len(drawn.test), drawn.demos) == (3, ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_size": 0}, "test_size is 0"),
        ({"shots": -1}, "shots is -1"),
        ({"balance": "equall"}, "no balance named 'equall'; did you mean 'equal'"),
    ],
)
def test_a_bad_option_is_an_error(options: dict[str, object], message: str) -> None:
    with pytest.raises(Problem, match=message):
        sample(dataset([9, 9, 9]), seed=0, **options)  # type: ignore[arg-type]


def test_things_that_are_drawn_alike_are_sorted_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipmeter.chance.draw", lambda *key: len(key[-1]) / 9)
    assert shuffled(["bb", "b", "aa", "a"], name=str) == ("a", "b", "aa", "bb")
