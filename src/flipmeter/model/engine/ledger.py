"""The requests of a run so far: the numbers behind the progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from flipmeter.model.engine.budget import Spent
from flipmeter.types import Reply


@dataclass
class Ledger:
    """Counts of one run, over all its rounds; `on_wait` gets the process that it waits for.

    `unheard` counts what was sent and brought no answer that can be read: it may be billed, and is
    sent again.
    """

    wanted: int = 0
    stored: int = 0
    damaged: int = 0
    asked: int = 0
    failed: int = 0
    retried: int = 0
    unheard: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    spent: Spent = field(default_factory=Spent)
    on_wait: Callable[[str], object] | None = None

    @property
    def counts(self) -> dict[str, Any]:
        """The counts for the record of a run."""
        told = {**vars(self), "spent": asdict(self.spent)}
        return {name: told[name] for name in told if name not in ("started", "on_wait")}

    def note(self, reply: Reply) -> None:
        self.asked += 1
        self.failed += bool(reply.error)
        self.prompt_tokens += reply.usage.prompt or 0
        self.cached_tokens += reply.usage.cached or 0
        self.completion_tokens += reply.usage.completion or 0
