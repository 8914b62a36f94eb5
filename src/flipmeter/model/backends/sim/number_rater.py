"""A simulated rater that gives decimal scores: the latent score of a text, and what is planted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from statistics import NormalDist, fmean

from flipmeter.base.numbers import NUMBER, read_number
from flipmeter.model.backends.sim.sim import REFUSAL, uniform
from flipmeter.model.backends.sim.tilts import SPREAD, SimSpec
from flipmeter.types import Item, Problem, Reply, Request, Span, Usage, canonical_json

SD = 0.05
"""A `noise` of 1, and a rank of spread, as a share of the range."""
PULL = 0.1
"""Pull of a score to that of the last demonstration with a `recency` of 1."""
_LABEL = re.compile(rf"\W*(?:label|score|rating)\W*?({NUMBER})(?!\w)", re.IGNORECASE)


def latent_scores(items: Iterable[Item], span: Span) -> dict[str, float]:
    """The latent score of each text: its gold score and a little, which depends on the text."""
    golds: dict[str, list[float]] = {}
    for item in items:
        if item.gold:
            golds.setdefault(item.text, []).append(span.score(item.gold))
    wide = SPREAD * SD * (span.high - span.low)
    return {
        text: fmean(found) + wide * NormalDist().inv_cdf(uniform("latent", 0, text))
        for text, found in golds.items()
    }


class NumberRater:
    """A backend that answers with the score of the text whose label is left open."""

    concurrency = 64
    parameters = frozenset({"max_tokens", "seed"})

    def __init__(self, spec: SimSpec, table: Mapping[str, float], span: Span) -> None:
        self.spec, self.table, self.span = spec, dict(table), span
        self.is_reproducible = spec.noise == 0
        rows = sorted((text, score.hex()) for text, score in self.table.items())
        known = canonical_json([[span.low, span.high], rows])
        digest = hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()
        self.identity = f"{spec}@{digest[:16]}"

    async def ask(self, request: Request) -> Reply:
        """Answer a request; a prompt without a known text is an error."""
        text, seed = request.script.text, json.loads(request.params).get("seed")
        try:
            said = self.reply(text, request.repeat, seed)
        except Problem as problem:
            return Reply(error=str(problem), model=self.identity)
        usage = Usage(len(text.split()), 0, len(said.split()), 0)
        return Reply(said, "stop", usage=usage, model=self.identity)

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""

    def reply(self, text: str, repeat: int = 0, seed: int | None = None) -> str:
        """The score that answers a prompt, in words."""
        query, last = self._understand(text)
        if self.spec.refuse and uniform("refuse", query) < self.spec.refuse:
            return REFUSAL
        score, length = self.table[query], self.span.high - self.span.low
        if last is not None:
            score += min(self.spec.recency * PULL, 1.0) * (last - score)
        z = NormalDist().inv_cdf(uniform("noise", repeat, seed, text))
        score += self.spec.noise * SD * length * z
        return f"{min(max(score, self.span.low), self.span.high):.4g}"

    def _understand(self, text: str) -> tuple[str, float | None]:
        """The text without a score, and the score of the last demonstration that is shown."""
        query, last = "", None
        for match in self._texts.finditer(text):
            label = _LABEL.match(text, match.end())
            if label is not None:
                last = read_number(label[1])
            elif not query:
                query = match[0]
        if not query:
            raise Problem(f"no text of the rater's table in the prompt '{text[:60]}'")
        return query, last

    @cached_property
    def _texts(self) -> re.Pattern[str]:
        """Every text of the table, longer ones first: one may begin another."""
        ordered = sorted(self.table, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, ordered)))
