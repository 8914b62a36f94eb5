"""Limits of a run: how much it may spend, and how much an endpoint is asked at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from flipmeter.checks import above
from flipmeter.errors import OutOfBudget, Problem
from flipmeter.loops import Bell
from flipmeter.types import Head, Request, Usage

FIRST_PERMITS = 4
Window = int


@dataclass
class Limiter:
    """Count what is under way at one backend, and learn how much it takes; there is no clock in it.

    After as many answers as there are permits, if all were in use, there are twice as many, or an
    eighth more once there was a refusal. A refusal halves them and begins a new window: what was
    sent in an earlier one says nothing about what the endpoint takes since, for better or worse.
    A limiter that is not adaptive stays at its limit.
    """

    limit: int
    is_adaptive: bool = True
    permits: int = 0
    in_use: int = 0
    window: Window = 0
    n_answered: int = 0
    was_full: bool = False
    was_crowded: bool = False

    def __post_init__(self) -> None:
        self.limit = max(1, self.limit)
        self.permits = min(FIRST_PERMITS, self.limit) if self.is_adaptive else self.limit

    @property
    def is_full(self) -> bool:
        return self.in_use >= self.permits

    def start(self) -> Window:
        """Count a request that is sent now; the window goes back in when it ends."""
        self.in_use += 1
        self.was_full = self.was_full or self.is_full
        return self.window

    def answered(self, window: Window) -> None:
        """Note an answer, and grow after a window of them in which every permit was in use."""
        self.in_use -= 1
        # Not "is full now": answers come in bursts, and the second finds a permit free.
        if not self.was_full or window != self.window:
            return
        self.n_answered += 1
        if self.n_answered >= self.permits:
            step = max(1, self.permits // 8) if self.was_crowded else self.permits
            self._change(min(self.limit, self.permits + step))

    def crowded(self, window: Window) -> None:
        """Note that the endpoint gets too much."""
        self.in_use -= 1
        if window == self.window:
            self.was_crowded = True
            self.window += 1
            self._change(max(1, self.permits // 2))

    def stumbled(self) -> None:
        """Note a failure unrelated to load: restart the count before growing."""
        self.in_use -= 1
        self.n_answered = 0

    def left(self) -> None:
        """Note a request that was given up, by its caller or after retries."""
        self.in_use -= 1

    def _change(self, permits: int) -> None:
        if self.is_adaptive:
            self.permits = permits
        self.n_answered, self.was_full = 0, False


BYTES_PER_TOKEN = 3
"""Fewer than any language of a prompt has on average, so that estimates err upwards."""
TOKENS_PER_MESSAGE = 8
"""Overhead of a chat template per message, in tokens."""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens.

    `cached` is for prompt tokens that a prefix cache holds, `written` for those that it takes in.
    """

    prompt: float
    completion: float
    cached: float | None = None
    written: float | None = None

    def of(self, prompt: int, completion: int) -> float:
        return (prompt * self.prompt + completion * self.completion) / 1e6


@dataclass(frozen=True)
class Budget:
    """The most that a run may spend; None means unlimited. Replies from the store cost nothing.

    Every attempt is a call. Dollars need a `price`: the dearest of the run's models.
    """

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "usd"):
            if (limit := getattr(self, name)) is not None:
                above(limit, 0, f"the budget's {name}")
        if self.usd is not None and self.price is None:
            raise Problem(f"a budget of ${self.usd:g} needs `price`: dollars per million tokens")

    @property
    def counts_tokens(self) -> bool:
        return self.tokens is not None or self.usd is not None


@dataclass
class Spent:
    """The requests sent and their cost, or its upper bound if the endpoint does not report it."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def add(self, other: Spent, sign: int = 1) -> None:
        self.calls += sign * other.calls
        self.prompt_tokens += sign * other.prompt_tokens
        self.completion_tokens += sign * other.completion_tokens

    def within(self, budget: Budget, more: Spent) -> bool:
        """Whether a budget also covers something more."""
        price = budget.price or Price(0.0, 0.0)
        prompt = self.prompt_tokens + more.prompt_tokens
        completion = self.completion_tokens + more.completion_tokens
        totals = (
            (budget.calls, self.calls + more.calls),
            (budget.tokens, prompt + completion),
            (budget.usd, price.of(prompt, completion)),
        )
        return all(limit is None or total <= limit for limit, total in totals)


ONE_CALL = Spent(1)


@dataclass
class Purse:
    """A budget with what is spent of it; what is under way counts with its worst case.

    All pools of a run share one; its bell rings when a call has ended.
    """

    budget: Budget
    spent: Spent
    held: Spent = field(default_factory=Spent)
    bell: Bell = field(default_factory=Bell)

    def reserve(self, request: Request) -> Spent | None:
        """Put the worst case of a call aside; None if it is not covered."""
        worst = worst_case(request) if self.budget.counts_tokens else ONE_CALL
        self.held.add(worst)
        if self.spent.within(self.budget, self.held):
            return worst
        self.held.add(worst, -1)
        return None

    def settle(self, worst: Spent, took: Spent) -> None:
        """Book what a call took instead of its worst case."""
        self.held.add(worst, -1)
        self.spent.add(took)
        self.bell.ring()

    def out(self) -> OutOfBudget:
        """The problem that says what was spent and how to go on."""
        if not self.spent.calls:
            return OutOfBudget("the budget does not cover a single request; raise it")
        spent, budget = self.spent, self.budget
        counts = ((spent.calls, "calls", budget.calls), (spent.tokens, "tokens", budget.tokens))
        parts = [
            f"{n} {what}" + ("" if limit is None else f" of {limit}") for n, what, limit in counts
        ]
        if budget.usd is not None and budget.price is not None:
            dollars = budget.price.of(spent.prompt_tokens, spent.completion_tokens)
            parts.append(f"${dollars:.4f} of ${budget.usd:g}")
        return OutOfBudget(
            f"the budget is used up: {', '.join(parts)}, and the next request could exceed it. "
            f"All replies are stored: run again to continue; the budget then starts over"
        )


def worst_case(request: Request) -> Spent:
    """The most that a request is expected to take."""
    head, rest = request.script.head, request.script.rest
    n_bytes = _n_bytes(head) + len(rest.encode("utf-8", "replace"))
    prompt = -(-n_bytes // BYTES_PER_TOKEN) + TOKENS_PER_MESSAGE * (len(head.before) + 1)
    return Spent(1, prompt, request.max_tokens)


@lru_cache(maxsize=1024)
def _n_bytes(head: Head) -> int:
    texts = (*(message.content for message in head.before), head.start)
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def taken(usage: Usage, worst: Spent) -> Spent:
    """The cost of a reply, the worst case if the endpoint does not report it."""
    prompt = worst.prompt_tokens if usage.prompt is None else usage.prompt
    completion = worst.completion_tokens if usage.completion is None else usage.completion
    return Spent(1, prompt, completion)
