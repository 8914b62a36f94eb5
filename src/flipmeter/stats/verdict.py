"""The one value that every surface prints, and headlines over several (Holm)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import polars as pl

from flipmeter.stats.bounds import is_shown, shown
from flipmeter.stats.formulas import holm
from flipmeter.types import ALPHA, JUDGED

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


Record = Mapping[str, Any]
WHOSE = ("rater", "dataset")
WORDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "word": pl.String,
    "word_among": pl.String,
    "alone": pl.List(pl.String),
}


def headlines(
    verdicts: pl.DataFrame, alpha: float = ALPHA, *, whose: Sequence[str] = WHOSE
) -> pl.DataFrame:
    """A word for every rater on every dataset at the base, or for whatever `whose` tells apart.

    `word` speaks of one of them: it flips if one of its contrasts does, by Holm over them, and is
    stable only if all are. `word_among` is for counts such as "3 of 10 raters are stable": Holm
    over the rows of all. `alone` are the contrasts that flip by themselves where `word_among` is
    another word: a count that leaves them out must say so. Levels count where `whose` names them.
    """
    rows = verdicts if "level" in whose else verdicts.filter(level="")
    groups = rows.partition_by(whose, maintain_order=True)
    each = [[row for row in group.to_dicts() if row["status"] in JUDGED] for group in groups]
    own = [
        _headline_word(rows, _holm_flip_p_values(rows), _least_sure(rows), alpha) for rows in each
    ]
    every = iter(_holm_flip_p_values([row for rows in each for row in rows]))
    flips = [[next(every) for _ in rows] for rows in each]
    stable = holm([_least_sure(rows) for rows in each]).tolist() if each else []
    among = [_headline_word(*one, alpha) for one in zip(each, flips, stable, strict=True)]
    records = []
    for group, rows_of, word, word_among in zip(groups, each, own, among, strict=True):
        flipping = [row["contrast"] for row in rows_of if row["word"] == "flips"]
        alone = [] if word_among == "flips" else list(dict.fromkeys(flipping))
        records.append((*group.select(whose).row(0), word, word_among, alone))
    schema = WORDS | dict.fromkeys(whose, pl.String)
    return pl.DataFrame(
        records, schema={name: schema[name] for name in (*whose, *WORDS)}, orient="row"
    )


def worst_first(verdicts: pl.DataFrame, alpha: float = ALPHA) -> pl.DataFrame:
    """The rows by severity: by word, then by how large the effect beyond noise is.

    Flips that are shown over all these rows (Holm) come before those that are not, and effects that
    are real before those that may be none.
    """
    order = {word: place for place, word in enumerate((*WORST_FIRST[:3], "stable"))}
    p = pl.Series("p", _holm_flip_p_values(verdicts.select("p_flips").to_dicts()), dtype=pl.Float64)
    is_unread = pl.col("word") == "unreadable"
    is_real = pl.col("findings").list.contains("size not settled")
    return verdicts.sort(
        pl.col("word").replace_strict(order, default=len(order)),
        pl.lit(shown(p, alpha)) | is_real,
        pl.when(is_unread).then("unreadable").otherwise("size"),
        pl.col("value"),
        descending=[False, True, True, True],
        nulls_last=True,
        maintain_order=True,
    )


def _holm_flip_p_values(rows: Sequence[Record]) -> list[float]:
    return [float(p) for p in holm([row["p_flips"] for row in rows])] if rows else []


def _least_sure(rows: Sequence[Record]) -> float:
    """p of all contrasts of a rater being stable: as sure as the least sure of them."""
    return max((float(row["p_stable"]) for row in rows), default=1.0)


def _headline_word(
    rows: Sequence[Record], flips: Sequence[float], stable: float, alpha: float
) -> Word:
    if not rows:
        return "not identified"
    if any(is_shown(p, alpha) for p in flips):
        return "flips"
    if any(row["word"] == "unreadable" for row in rows):
        return "unreadable"
    return "stable" if is_shown(stable, alpha) else "inconclusive"
