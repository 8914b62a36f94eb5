"""Intervals of differences -> whether an assertion about them holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from flipmeter.measure.inference.significance import is_shown
from flipmeter.measure.inference.words import Word

Asserted = Literal["holds", "fails", "not settled", "not measurable"]
Relation = Literal["up", "down", "same", "not up", "not down"]

NEGATED: dict[Asserted, Asserted] = {
    "holds": "fails",
    "fails": "holds",
    "not settled": "not settled",
    "not measurable": "not measurable",
}
RELEVANT = 5.0
"""Points below which a change is no change worth a claim."""


def asserted(
    low: float | None, high: float | None, relation: Relation, *, margin: float = RELEVANT
) -> Asserted:
    """Whether a difference with this interval is as asserted.

    `up` holds where the interval is above 0 and fails where it is below the margin, `not up` is its
    negation; `down` and `not down` are their mirror images. `same` holds inside the margins and
    fails beyond one of them.
    """
    if low is None or high is None:
        return "not measurable"
    if relation == "same":
        is_within, is_beyond = -margin < low and high < margin, low > margin or high < -margin
        return "holds" if is_within else "fails" if is_beyond else "not settled"
    if relation.startswith("not "):
        return NEGATED[asserted(low, high, "up" if relation == "not up" else "down", margin=margin)]
    if relation == "down":
        low, high = -high, -low
    return "holds" if low > 0 else "fails" if high < margin else "not settled"


def all_asserted(words: Iterable[Asserted]) -> Asserted:
    """The word for assertions that must all hold: one that fails decides."""
    found = list(words)
    for word in ("fails", "not measurable", "not settled"):
        if word in found:
            return word
    return "holds" if found else "not measurable"


def some_asserted(words: Iterable[Asserted]) -> Asserted:
    """The word for assertions of which one must hold: one that holds decides."""
    found = list(words)
    for word in ("holds", "not settled", "not measurable"):
        if word in found:
            return word
    return "fails" if found else "not measurable"


def every_flips(words: Collection[Word]) -> Asserted:
    """Whether all raters flip: one that is stable refutes it."""
    if not words or "not identified" in words:
        return "not measurable"
    if "stable" in words:
        return "fails"
    return "holds" if set(words) == {"flips"} else "not settled"


def correlated(tau: float, p: float) -> Asserted:
    """Whether a rank correlation is shown to be above 0."""
    if not is_shown(p):
        return "not settled"
    return "holds" if tau > 0 else "fails"
