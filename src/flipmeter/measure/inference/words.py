"""The one value that every surface prints: a word, its reason and the evidence behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

Word = Literal["stable", "flips", "unreadable", "inconclusive", "not identified"]
WORST_FIRST: tuple[Word, ...] = ("flips", "unreadable", "inconclusive", "not identified")
BoundOn = Literal["rate", "excess", "shift", "drift"]
"""The deciding quantity: all flips, those beyond noise, or the shift of class shares; for decimal
scores the drift, by how much more pairs move one way than the other."""


@dataclass(frozen=True)
class Finding:
    """Something to know beside the word: a name to filter by and a sentence."""

    name: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on one contrast of one rater.

    `leans` says where answers go from the first view to the second, by rank, if that is shown.
    `value`, `low` and `high` are the flip rate over clusters and its interval. `bound_on` names the
    size that decides, `size` its estimate and `upper` its one-sided bound. `weighted` is the rate
    with every class at its frequency in production. `p_flips` and `p_stable` say how sure these
    words are, 1 for other words: what holds over many rows is adjusted by them. Numbers that were
    not measured are None.
    """

    word: Word
    reason: str
    findings: tuple[Finding, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    noise: float | None = None
    excess: float | None = None
    excess_upper: float | None = None
    shift_upper: float | None = None
    bound_on: BoundOn | None = None
    direction: float | None = None
    n_clusters: int = 0
    n_needed: int | None = None
    unreadable: float | None = None
    unreadable_low: float | None = None
    unreadable_high: float | None = None
    size: float | None = None
    upper: float | None = None
    lower: float | None = None
    rate_upper: float | None = None
    shift: float | None = None
    excess_low: float | None = None
    excess_high: float | None = None
    noise_low: float | None = None
    noise_high: float | None = None
    if_same: float | None = None
    if_different: float | None = None
    unreadable_by_view: tuple[float, ...] = ()
    p_excess: float | None = None
    p_direction: float | None = None
    moved_up: int | None = None
    moved_down: int | None = None
    is_reproducible: bool = False
    leans: Literal["", "up", "down"] = ""
    n_pairs: int = 0
    margin: float | None = None
    alpha: float | None = None
    p_flips: float = 1.0
    p_stable: float = 1.0
    weighted: float | None = None
    weighted_low: float | None = None
    weighted_high: float | None = None
    weighted_upper: float | None = None
    weighted_excess: float | None = None
    weighted_excess_upper: float | None = None

    def has(self, name: str) -> bool:
        """Whether a finding of this name stands beside the word."""
        return any(finding.name == name for finding in self.findings)

    @property
    def why(self) -> str:
        """The reason of the word and the findings beside it."""
        beside = (finding.text for finding in self.findings if finding.text not in self.reason)
        return "; ".join([self.reason, *beside])

    def with_findings(self, *more: Finding) -> Verdict:
        """The same verdict with findings that only its caller can know."""
        return replace(self, findings=(*self.findings, *more))

    def record(self) -> dict[str, Any]:
        """Every field by name, findings as their names: a row of a table."""
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        row["findings"] = [finding.name for finding in self.findings]
        row["unreadable_by_view"] = list(self.unreadable_by_view)
        return row


def not_identified(why: str) -> Verdict:
    """Verdict on a contrast whose views do not differ in what was asked."""
    return Verdict("not identified", why, (Finding("not identified", why),))


def overall(words: Iterable[Word]) -> Word:
    """The word for several contrasts: one that flips decides, and stable is what all must be."""
    found = set(words)
    for word in WORST_FIRST:
        if word in found:
            return word
    return "stable" if found else "inconclusive"


def little_label_mass(share: float) -> Finding:
    """Finding that labels hold little of a rater's probability."""
    return Finding("little label mass", f"labels have only {percent(share)} of the probability")


def not_reproducible(n_differ: int, n: int) -> Finding:
    """Finding that repeats differ although the engine is declared reproducible."""
    text = f"{n_differ:,} of {n:,} repeats differ although the engine is declared reproducible"
    return Finding("reproducibility failed", text)


def percent(x: float) -> str:
    """A share for a sentence: one decimal, no trailing zero."""
    return f"{100 * x:.1f}".removesuffix(".0") + " %"


def p_text(p: float) -> str:
    """A p-value for a sentence."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
