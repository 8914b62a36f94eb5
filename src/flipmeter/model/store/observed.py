"""Store -> what a model's stored replies show: how long its tokens are, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from flipmeter.model.store.store import Store

MOST_REPLIES = 1000
MOST_ROWS = 200_000
"""Number of rows searched in a large store; keys are hashes, so any prefix is a sample."""

_REPLIES = """
SELECT (SELECT length(text) FROM texts WHERE id = prefix) + length(rest), prompt_tokens, seconds
FROM (SELECT model, prefix, rest, prompt_tokens, seconds FROM replies ORDER BY key LIMIT ?)
WHERE model = ? LIMIT ?
"""
# Not a join: SQLite would then copy the inner rows before it looks at the first.


@dataclass(frozen=True)
class Observed:
    """Statistics of stored replies; `n_counted` of them have prompt tokens."""

    n_replies: int = 0
    n_counted: int = 0
    characters: int = 0
    prompt_tokens: int = 0
    median_seconds: float | None = None

    @property
    def characters_per_token(self) -> float | None:
        return self.characters / self.prompt_tokens if self.prompt_tokens else None


def observe(store: Store, identities: Iterable[str]) -> Observed:
    """Look at some replies of what answers under these identities, a thousand of each at most."""
    rows = [
        row
        for identity in identities
        for (model,) in store.read("SELECT id FROM texts WHERE text = ?", [identity])
        for row in store.read(_REPLIES, [MOST_ROWS, model, MOST_REPLIES])
    ]
    # Replies that were exported without their prompts have tokens and no characters.
    counted = [(characters, tokens) for characters, tokens, _ in rows if tokens and characters]
    return Observed(
        len(rows),
        len(counted),
        sum(characters for characters, _ in counted),
        sum(tokens for _, tokens in counted),
        median(seconds for _, _, seconds in rows) if rows else None,
    )
