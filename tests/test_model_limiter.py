"""How many requests go out at a time, and what a run may spend: state machines without a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipmeter.ask.limits import (
    FIRST_PERMITS,
    Budget,
    Limiter,
    Price,
    Purse,
    Spent,
    taken,
    worst_case,
)
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.types import Usage
from misbehaving import question

# The limiter


def fill(limiter: Limiter) -> list[int]:
    """Start as many requests as there are permits, and return their windows."""
    return [limiter.start() for _ in range(limiter.permits - limiter.in_use)]


def serve_a_window(limiter: Limiter) -> None:
    """Answer as many requests as there are permits, each replaced by the next one."""
    windows = fill(limiter)
    for window in windows:
        limiter.answered(window)
        limiter.start()
    for _ in range(limiter.in_use):
        limiter.left()


def test_permits_double_per_window_up_to_the_limit() -> None:
    limiter, seen = Limiter(30), list[int]()
    for _ in range(5):
        seen.append(limiter.permits)
        serve_a_window(limiter)
    assert seen == [FIRST_PERMITS, 8, 16, 30, 30]


def test_nothing_grows_while_permits_are_free() -> None:
    limiter = Limiter(64)
    for _ in range(100):
        limiter.answered(limiter.start())
    assert limiter.permits == FIRST_PERMITS


def test_answers_that_come_in_a_burst_count_as_a_window() -> None:
    limiter = Limiter(64)
    for window in fill(limiter):
        limiter.answered(window)
    assert limiter.permits == 2 * FIRST_PERMITS


def test_a_refusal_halves_the_permits_once_per_window() -> None:
    limiter = Limiter(64)
    serve_a_window(limiter)
    for window in fill(limiter):
        limiter.crowded(window)
    assert (limiter.permits, limiter.in_use) == (4, 0)


def test_a_refusal_after_the_cut_cuts_again_but_never_below_one() -> None:
    limiter = Limiter(64)
    for _ in range(5):
        limiter.crowded(limiter.start())
    assert limiter.permits == 1


def test_after_a_refusal_growth_is_an_eighth() -> None:
    limiter = Limiter(256)
    for _ in range(5):
        serve_a_window(limiter)
    limiter.crowded(limiter.start())
    serve_a_window(limiter)
    assert limiter.permits == 64 + 8


def test_an_answer_from_before_the_cut_does_not_count_for_growth() -> None:
    limiter = Limiter(64)
    first, *others = fill(limiter)
    limiter.crowded(first)
    for window in others:
        limiter.answered(window)
    assert (limiter.permits, limiter.n_answered) == (2, 0)


def test_a_stumble_puts_growth_off() -> None:
    limiter = Limiter(64)
    windows = fill(limiter)
    for window in windows[:-1]:
        limiter.answered(window)
        limiter.start()
    limiter.stumbled()
    limiter.start()
    limiter.answered(windows[-1])
    assert limiter.permits == FIRST_PERMITS


def test_a_fixed_limit_stays_whatever_happens() -> None:
    limiter = Limiter(8, is_adaptive=False)
    for window in fill(limiter):
        limiter.crowded(window)
    serve_a_window(limiter)
    assert limiter.permits == 8


@given(st.integers(0, 300), st.lists(st.sampled_from(["answered", "crowded", "stumbled", "left"])))
def test_permits_stay_between_one_and_the_limit(limit: int, events: list[str]) -> None:
    limiter = Limiter(limit)
    for event in events:
        windows = fill(limiter)
        windowed = event in ("answered", "crowded")
        getattr(limiter, event)(*windows[:1] if windowed and windows else [0] * windowed)
        assert 1 <= limiter.permits <= max(1, limit)
        assert limiter.in_use >= 0


# The budget

REQUEST = question("x" * 300, '{"max_tokens": 40}')


def test_the_worst_case_is_the_prompt_and_all_tokens_of_the_reply() -> None:
    assert worst_case(REQUEST) == Spent(1, 100 + 8, 40)


@pytest.mark.parametrize(
    ("budget", "n_covered"),
    [
        (Budget(), 20),
        (Budget(calls=3), 3),
        (Budget(tokens=5 * 148), 5),
        (Budget(tokens=5 * 148 - 1), 4),
        (Budget(usd=4 * 228e-6 + 1e-9, price=Price(1, 3)), 4),
    ],
)
def test_what_is_under_way_counts_with_its_worst_case(budget: Budget, n_covered: int) -> None:
    purse = Purse(budget, Spent())
    assert [purse.reserve(REQUEST) is not None for _ in range(20)].count(True) == n_covered


def test_what_a_reply_did_not_take_can_be_spent_again() -> None:
    purse = Purse(Budget(tokens=150), Spent())
    first = purse.reserve(REQUEST)
    assert first is not None
    assert purse.reserve(REQUEST) is None
    purse.settle(first, taken(Usage(prompt=1, completion=1), first))
    assert purse.reserve(REQUEST) is not None


@pytest.mark.parametrize(
    ("usage", "spent"),
    [(Usage(90, 0, 2), Spent(1, 90, 2)), (Usage(), Spent(1, 108, 40))],
)
def test_an_unknown_usage_counts_in_full(usage: Usage, spent: Spent) -> None:
    purse = Purse(Budget(tokens=1000), Spent())
    worst = purse.reserve(REQUEST)
    assert worst is not None
    purse.settle(worst, taken(usage, worst))
    assert (purse.spent, purse.held) == (spent, Spent())


def test_the_end_of_a_budget_says_what_was_spent_and_how_to_go_on() -> None:
    budget = Budget(calls=3, usd=2, price=Price(1, 10))
    said = Purse(budget, Spent(3, 500_000, 10_000)).out()
    assert isinstance(said, OutOfBudget)
    assert "3 calls of 3, 510000 tokens, $0.6000 of $2, and the next request" in str(said)
    assert str(said).endswith("the budget then starts over")


def test_a_budget_below_one_request_is_said() -> None:
    assert "does not cover a single request" in str(Purse(Budget(tokens=1), Spent()).out())


@pytest.mark.parametrize("fields", [{"calls": 0}, {"tokens": -1}, {"usd": 1.0}])
def test_a_budget_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Problem, match="budget"):
        Budget(**fields)
