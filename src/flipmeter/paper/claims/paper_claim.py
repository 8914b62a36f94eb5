"""A claim of the paper: what it says, where, what measures it, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flipmeter.measure.inference.asserted import Asserted, Relation, all_asserted, asserted
from flipmeter.paper.evidence import Phase, PhaseRuns, row_of
from flipmeter.registry import Registry

SIGNS: dict[Relation, str] = {
    "up": "rises",
    "down": "falls",
    "same": "stays the same",
    "not up": "does not rise",
    "not down": "does not fall",
}
MOST_TOLD = 3
UNMEASURED: Asserted = "not measurable"
IN_PART = "measured in part"
TITLES = {"accuracy": "accuracy", "macro_f1": "macro-F1", "spearman": "Spearman's ρ"}


@dataclass(frozen=True)
class Part:
    """One number of a claim: a metric at a level, and how it differs from the base."""

    level: str
    metric: str
    relation: Relation

    @property
    def text(self) -> str:
        return f"{self.level}: {TITLES.get(self.metric, self.metric)} {SIGNS[self.relation]}"


@dataclass(frozen=True)
class DecidedPart:
    """A part with its word and the number behind it."""

    text: str
    word: Asserted
    number: str


@dataclass(frozen=True)
class Decided:
    """Whether a claim holds for a rater, and the parts that say so."""

    word: Asserted
    parts: tuple[DecidedPart, ...] = ()
    why: str = ""

    @property
    def measured(self) -> tuple[DecidedPart, ...]:
        """The parts that have a number, whatever it says."""
        return tuple(part for part in self.parts if part.word != UNMEASURED)

    @property
    def told(self) -> str:
        """The word as shown: tells apart what was measured in part from what was not at all."""
        return IN_PART if self.word == UNMEASURED and self.measured else self.word

    @property
    def reason(self) -> str:
        """The parts that decide, the first of them if they are many.

        Of a claim that could be measured in part, the parts that were.
        """
        if self.told == IN_PART:
            listed = [f"{part.text}: {part.number} ({part.word})" for part in self.measured]
            n_left = len(self.parts) - len(listed)
            return "; ".join([*listed, f"not measured: {n_left} of {len(self.parts)} parts"])
        told = [part for part in self.parts if part.word == self.word]
        listed = [f"{part.text}: {part.number}" for part in told[:MOST_TOLD]]
        more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
        return "; ".join(text for text in (self.why, *listed, *more) if text)


Decide = Callable[[PhaseRuns, str], Decided]


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper in our words, its place, the phase that measures it, and its test."""

    says: str
    where: str
    phase: Phase
    decide: Decide
    parts: tuple[Part, ...] = ()


paper_claims: Registry[PaperClaim] = Registry("claim of the paper")


def decide_claim(name: str, evidence: PhaseRuns, rater: str) -> Decided:
    """Decide a claim for a rater; without the run of its phase it is not measurable."""
    claim = paper_claims[name]
    if claim.phase not in evidence.runs:
        return Decided(UNMEASURED, why=evidence.missing(claim.phase))
    return claim.decide(evidence, rater)


def decided_parts(
    evidence: PhaseRuns, rater: str, phase: Phase, parts: Sequence[Part]
) -> Iterator[DecidedPart]:
    """Hold every part to its residual."""
    table = evidence.residuals(phase).filter(rater=rater)
    for part in parts:
        factor, _, level = part.level.partition("=")
        row = row_of(table, factor=factor, level=level, metric=part.metric)
        if row is None or row["value"] is None:
            why = "not asked" if row is None else row["note"] or "undefined"
            yield DecidedPart(part.text, UNMEASURED, why)
        elif row["low"] is None:
            yield DecidedPart(part.text, UNMEASURED, row["note"] or "no interval")
        else:
            word = asserted(row["low"], row["high"], part.relation)
            number = f"{row['value']:+.1f} [{row['low']:.1f}, {row['high']:.1f}] (n = {row['n']})"
            yield DecidedPart(part.text, word, number)


def claim_of_parts(name: str, phase: Phase, says: str, where: str, *parts: Part) -> None:
    """Register a claim that holds if every one of its parts does."""

    def decide(evidence: PhaseRuns, rater: str) -> Decided:
        found = tuple(decided_parts(evidence, rater, phase, parts))
        return Decided(all_asserted(part.word for part in found), found)

    paper_claims.add(name, PaperClaim(says, where, phase, decide, parts))
