"""A server that only fails: one request at a time sees whether it is back, then the run ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flipmeter.errors import Outage, Retry

ROW = 20
"""Failures in a row after which one request is sent at a time."""
PROBES = 3
"""Number of attempts for a server that has not answered yet; others get all attempts."""
SHOWN = 3
MOST_KINDS = 50


@dataclass
class Breaker:
    """Failures of one server since it last answered; one that answers now and then goes on."""

    has_answered: bool = False
    n_row: int = 0
    n_probes: int = 0
    outage: Outage | None = None
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def is_open(self) -> bool:
        return self.n_row >= ROW

    def answered(self) -> None:
        self.has_answered = True
        if self.n_row:
            self.n_row = self.n_probes = 0
            self.outage = None
            self.seen.clear()

    def failed(self, failure: Retry, *, is_probe: bool, attempts: int) -> None:
        """Count a failure; one too many is an outage.

        A server that asks for a pause is there, and gets as many tries as one that has answered.
        A request that was open along with many others does not count as a probe when it fails.
        """
        self.n_probes += is_probe
        self.n_row += 1
        if len(self.seen) < MOST_KINDS or str(failure) in self.seen:
            self.seen[str(failure)] += 1
        is_known = self.has_answered or failure.after is not None
        if self.n_probes >= (attempts if is_known else PROBES):
            told = [f"{n} x {what}" for what, n in self.seen.most_common(SHOWN)]
            told += ["and others"] if len(self.seen) > SHOWN else []
            way_out = (
                "run again when the endpoint answers: all replies are stored and not requested "
                "again"
                if self.has_answered
                else "is the server running? stored replies are kept"
            )
            self.outage = Outage(
                f"{self.n_row} attempts in a row failed and none was answered: {'; '.join(told)}; "
                f"{way_out}"
            )
