"""Concurrency limit of an endpoint: it grows while requests succeed and halves on refusals."""

from __future__ import annotations

from dataclasses import dataclass

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
