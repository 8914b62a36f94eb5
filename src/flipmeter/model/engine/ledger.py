"""What a run has asked so far: the numbers behind the progress bar."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from flipmeter.model.engine.budget import Spent
from flipmeter.types import Reply


@dataclass
class Ledger:
    """Counts of one run, over all its rounds."""

    wanted: int = 0
    stored: int = 0
    damaged: int = 0
    asked: int = 0
    failed: int = 0
    retried: int = 0
    completion_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    started: float = field(default_factory=time.monotonic)
    spent: Spent = field(default_factory=Spent)

    def note(self, reply: Reply) -> None:
        self.asked += 1
        self.failed += bool(reply.error)
        self.prompt_tokens += reply.usage.prompt or 0
        self.cached_tokens += reply.usage.cached or 0
        self.completion_tokens += reply.usage.completion or 0
