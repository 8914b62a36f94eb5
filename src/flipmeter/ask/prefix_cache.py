"""Model name -> Caching: what a vendor's prefix cache keeps, and what of it is warm by now."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from flipmeter.ask.dialect import REFUSALS
from flipmeter.ask.response import Trouble
from flipmeter.types import Caching, Head, Request

CacheTable = Sequence[tuple[str, Caching | None]]
"""Patterns of model names, the first that matches counts."""

_CLAUDE = Caching(1024, "cache_control", read=0.1, write=1.25)
ANTHROPIC_CACHES: CacheTable = (
    (r"claude-(opus-4-[56]|haiku-4-5)", replace(_CLAUDE, least=4096)),
    (r"claude-(opus-4-7|sonnet-4-6|3-haiku|3-5-haiku)", replace(_CLAUDE, least=2048)),
    (r"claude-(opus|fable|mythos)-5", replace(_CLAUDE, least=512)),
    (r"", _CLAUDE),
)
"""Writing costs a quarter more than a prompt token, reading a tenth of it."""

_BY_KEY = Caching(1024, "key", step=128)
OPENAI_CACHES: CacheTable = (
    (r"gpt-3|gpt-4($|-)", None),
    (r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)", Caching(1024, "breakpoint", 0.1, 1.25, seconds=1800.0)),
    (r"gpt-5", replace(_BY_KEY, read=0.1)),
    (r"gpt-4\.1|o3|o4", replace(_BY_KEY, read=0.25)),
    (r"gpt-4o|chatgpt|o1", replace(_BY_KEY, read=0.5)),
    (r"", _BY_KEY),
)
"""Since gpt-5.6 a prompt is written whole, at a quarter more, unless marks say where."""

GEMINI_CACHES: CacheTable = (
    (r"gemini-(1|2\.0)|gemma|learnlm", None),
    (r"gemini-2\.5", Caching(2048, read=0.1)),
    (r"", Caching(4096, read=0.1)),
)
"""It finds prefixes by itself, and does not promise to."""

MOST_HEADS = 65_536
MARKS = ("cache_control", "prompt_cache")
"""The names of the marks in a refusal."""


def caching_in(table: CacheTable, model: str) -> Caching | None:
    """The prefix cache of a model by its name, None if unknown."""
    name = model.rpartition("/")[2].casefold()
    return next((one for pattern, one in table if re.match(pattern, name)), None)


class PrefixCache:
    """The content of a vendor's cache, as far as one client can know."""

    def __init__(self, caching: Caching, clock: Callable[[], float] = time.monotonic) -> None:
        self.caching = caching
        self._clock = clock
        self._n_expected: Counter[Head] = Counter()
        self._used: dict[Head, float] = {}
        self._is_refused = False

    def expect(self, requests: Iterable[Request]) -> None:
        """Hear what will be asked: a head that one request has is not worth a mark."""
        if len(self._n_expected) > MOST_HEADS:
            self._n_expected.clear()
        self._n_expected.update(request.script.head for request in requests)

    @property
    def told(self) -> Caching | None:
        """The caching that bodies are written for; None once an endpoint refused a mark."""
        return None if self._is_refused else self.caching

    def is_shared(self, head: Head) -> bool:
        """Whether a head is long enough to be kept, and more than one request has it."""
        return self._n_expected[head] >= self.caching.worth and self.caching.keeps(head)

    def is_cold(self, head: Head) -> bool:
        """Whether requests behind a head must wait for the first: none of it is kept yet."""
        if not self.is_shared(head):
            return False
        used = self._used.get(head)
        return used is None or self._clock() - used > self.caching.seconds

    def answered(self, head: Head) -> None:
        """Hear that a request was answered: its head is kept from now on."""
        if len(self._used) > MOST_HEADS:
            self._used.clear()
        self._used[head] = self._clock()

    def is_refused_by(self, trouble: Trouble) -> bool:
        """Whether an endpoint will not take a mark; nothing is marked any more if so."""
        said = f"{trouble.param} {trouble.message}"
        is_refusal = trouble.status in REFUSALS and any(name in said for name in MARKS)
        self._is_refused = self._is_refused or is_refusal
        return is_refusal
