"""Parts of a study that were removed: what replaces them, and how a stored study is read.

A new study may not name them. The study in a run folder may: its decisions are measured as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_WORDS = "use pointwise with `label_format: natural_language`"
_NO_QUESTION = "nothing replaces it, for no pipeline asks yes-no questions"
PARTS: Mapping[str, Mapping[str, str]] = {
    "pipeline": {
        "cumulative": _WORDS,
        "labelwise": _WORDS,
        "windows": "use pointwise_vote, or pointwise",
        "pairwise+calibraeval": "use pairwise",
        "pairwise+weighted_sum_self": "use pairwise+weighted_sum",
        "listwise+insertion": "use listwise",
        "pointwise+permutations": "use orbit(labels:rotations)",
        "pointwise+permutations_probabilities": "use orbit(labels:rotations)",
    },
    "probe": {
        "polarity": _NO_QUESTION,
        "answer_order": _NO_QUESTION,
        "grouping": "nothing replaces it; demo_order shuffles demonstrations",
    },
    "factor": {"wording": _NO_QUESTION},
    "key": {"cells": "`design: factorial` asks every cell"},
    "design": {"fractional": "use `design: factorial`"},
    "simulated rater": {"yes-sayer": _NO_QUESTION},
}
"""The replacements of removed parts, by kind and name."""
SCORED = ("windows", "pairwise+calibraeval", "pointwise+permutations_probabilities")
"""Removed pipelines that worked on the probabilities of labels."""
DEFAULTS = {"cells": None, "wording": "or_more"}
"""Removed keys where they said nothing: ignored in what is stored."""

_is_stored: ContextVar[bool] = ContextVar("is_stored", default=False)


@contextmanager
def reading_stored() -> Iterator[None]:
    """Accept removed parts meanwhile."""
    token = _is_stored.set(True)
    try:
        yield
    finally:
        _is_stored.reset(token)


def is_stored() -> bool:
    """Whether a stored study is being read."""
    return _is_stored.get()


def plain_name(pipeline: str) -> str:
    """A pipeline without its options and its mode."""
    return re.split(r"[(@]", pipeline)[0]


def is_removed(kind: str, name: str) -> bool:
    return plain_name(name) in PARTS[kind]


def refusal(kind: str, name: str) -> str:
    """The message about a removed part, "" for any other name."""
    instead = PARTS.get(kind, {}).get(name)
    return f"the {kind} '{name}' was removed; {instead}" if instead else ""


def without_defaults(content: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without the removed keys that said nothing."""
    return {k: v for k, v in content.items() if k not in DEFAULTS or v != DEFAULTS[k]}


def as_written(content: Mapping[str, Any]) -> dict[str, Any]:
    """A stored study as a new one: it names what was removed only where that says something."""
    base = content.get("base")
    return without_defaults(content) | (
        {"base": without_defaults(base)} if isinstance(base, Mapping) else {}
    )


def without_removed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A stored study without keys and factors that are gone; a fraction is read as the whole."""
    kept = {
        name: _without_factors(value) if name in ("base", "vary", "only_on") else value
        for name, value in content.items()
        if name not in PARTS["key"]
    }
    if isinstance(named := kept.get("configs"), Mapping):
        kept["configs"] = {name: _without_factors(changes) for name, changes in named.items()}
    if kept.get("design") == "fractional":
        kept["design"] = "factorial"
    if not kept.get("vary"):
        kept.pop("design", None)  # no factor is left to cross
    return kept


def _without_factors(levels: Any) -> Any:
    if not isinstance(levels, Mapping):
        return levels
    return {name: value for name, value in levels.items() if name not in PARTS["factor"]}
