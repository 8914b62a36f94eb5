"""The paper's claims: what each says, where, which numbers decide it, and whether it holds here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import polars as pl
from scipy import stats

from flipmeter.paper.evidence import Phase, PhaseRuns, row_of
from flipmeter.paper.published import PIPELINES
from flipmeter.registry import Registry
from flipmeter.stats.differences import (
    NEGATED,
    Asserted,
    Relation,
    all_asserted,
    asserted,
    correlated,
    every_flips,
    some_asserted,
)
from flipmeter.stats.verdict import Word, headlines

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
FLIPS = ("P1", "P2a", "P2b", "P3a", "P3b")
PROBES = {
    "label order": ("P1",),
    "demonstration order": ("P2a", "P2b"),
    "placement": ("P3a", "P3b"),
}
FEWEST_MODELS = 5
"""Below, no rank correlation can be shown."""
RULES = [level for (family, _), level in PIPELINES.items() if family == "Aggregation method"]
TRANSFERRED = ("accuracy", "P1", "P2a", "P2b")


@dataclass(frozen=True)
class Part:
    """One number of a claim: a metric at a level, and how it differs from the base."""

    level: str
    metric: str
    relation: Relation

    @property
    def text(self) -> str:
        return f"{self.level}: {TITLES.get(self.metric, self.metric)} {SIGNS[self.relation]}"


def parts(
    relation: Relation, metrics: Iterable[str], levels: str | Iterable[str]
) -> tuple[Part, ...]:
    """The parts that assert one relation of some metrics at a level, or at each of several."""
    named = [levels] if isinstance(levels, str) else levels
    return tuple(Part(level, metric, relation) for level, metric in product(named, metrics))


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

    @classmethod
    def by(
        cls, rule: Callable[[Iterable[Asserted]], Asserted], found: Iterable[DecidedPart]
    ) -> Decided:
        """The claim whose parts must all hold, or one of them, as the rule says."""
        kept = tuple(found)
        return cls(rule(part.word for part in kept), kept)

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


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper in our words, its place, the phase that measures it, and its test.

    One without a rule of its own holds if every one of its parts does.
    """

    says: str
    where: str
    phase: Phase
    parts: tuple[Part, ...] = ()
    rule: Callable[[PhaseRuns, str], Decided] | None = None


paper_claims: Registry[PaperClaim] = Registry("claim of the paper")


def decide_claim(name: str, evidence: PhaseRuns, rater: str) -> Decided:
    """Decide a claim for a rater; without the run of its phase it is not measurable."""
    claim = paper_claims[name]
    if claim.phase not in evidence.runs:
        return Decided(UNMEASURED, why=evidence.missing(claim.phase))
    if claim.rule is not None:
        return claim.rule(evidence, rater)
    return Decided.by(all_asserted, decided_parts(evidence, rater, claim.phase, claim.parts))


def decided_parts(
    evidence: PhaseRuns, rater: str, phase: Phase, wanted: Sequence[Part]
) -> Iterator[DecidedPart]:
    """Hold every part to its residual."""
    table = evidence.residuals(phase).filter(rater=rater)
    for part in wanted:
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


# --- rules of their own -----------------------------------------------------------------------


def _conjoin_parts(
    evidence: PhaseRuns, rater: str, phase: Phase, text: str, wanted: Sequence[Part]
) -> DecidedPart:
    """Several parts as one, which holds if all of them do."""
    found = Decided.by(all_asserted, decided_parts(evidence, rater, phase, wanted))
    return DecidedPart(text, found.word, ", ".join(part.number for part in found.parts))


def _factor_levels(table: pl.DataFrame) -> list[tuple[str, str]]:
    return table.select("factor", "level").unique(maintain_order=True).rows()


def _only_fewer_classes(evidence: PhaseRuns, rater: str) -> Decided:
    """Refuted by another level that improves both; shown if every other level is shown not to."""
    table = evidence.residuals("phase1").filter(rater=rater, dataset="")
    known = table.filter(pl.col("metric").is_in(["accuracy", *FLIPS])).drop_nulls("low")
    told = {"holds": "improves accuracy and every flip rate", "fails": "does not improve both"}
    found = []
    for factor, level in _factor_levels(table.filter(pl.col("factor") != "cardinality")):
        word = all_asserted(
            asserted(row["low"], row["high"], "up" if row["metric"] == "accuracy" else "down")
            for row in known.filter(factor=factor, level=level).to_dicts()
        )
        number = told.get(word, "not settled")
        found.append(DecidedPart(f"{factor}={level}", NEGATED[word], number))
    return Decided.by(all_asserted, found)


def _accuracy_apart_from_stability(evidence: PhaseRuns, rater: str) -> Decided:
    """Shown by any level that is more accurate and flips more, or the reverse."""
    table = evidence.residuals("phase1").filter(rater=rater, dataset="")
    moves: tuple[tuple[Relation, str], ...] = (("up", "rise"), ("down", "fall"))
    found = []
    for (factor, value), metric, (relation, verb) in product(_factor_levels(table), FLIPS, moves):
        level = f"{factor}={value}"
        both = parts(relation, ("accuracy", metric), level)
        text = f"{level}: accuracy and {metric} {verb}"
        found.append(_conjoin_parts(evidence, rater, "phase1", text, both))
    return Decided.by(some_asserted, found)


def _no_rule_helps(evidence: PhaseRuns, rater: str) -> Decided:
    """Refuted by a rule that costs no accuracy and raises no flips."""
    found = []
    for level in RULES:
        wanted = (Part(level, "accuracy", "not down"), Part(level, "P1", "not up"))
        helps = _conjoin_parts(evidence, rater, "phase2a", level, wanted)
        found.append(replace(helps, word=NEGATED[helps.word]))
    return Decided.by(all_asserted, found)


def _headline_words(verdicts: pl.DataFrame, contrasts: tuple[str, ...]) -> dict[str, Word]:
    """A word for every rater over some contrasts, adjusted for the raters it is counted among."""
    rows = verdicts.filter(pl.col("contrast").is_in(contrasts))
    return {row["rater"]: row["word_among"] for row in headlines(rows).to_dicts()}


def _every_probe(evidence: PhaseRuns, rater: str) -> Decided:
    verdicts = evidence.runs["phase0a"].verdicts.filter(rater=rater)
    found = []
    for probe, contrasts in PROBES.items():
        rows = verdicts.filter(pl.col("contrast").is_in(contrasts), level="")
        measured = rows.filter(status="measured").drop_nulls("value").to_dicts()
        numbers = ", ".join(f"{row['contrast']} {100 * row['value']:.1f} %" for row in measured)
        word = every_flips(_headline_words(rows, contrasts).values()) if measured else UNMEASURED
        why = "not asked" if rows.is_empty() else "no pair of replies could be read"
        found.append(DecidedPart(probe, word, numbers or why))
    return Decided.by(all_asserted, found)


def _beyond_noise(evidence: PhaseRuns, rater: str) -> Decided:
    run = evidence.runs["phase0b"]
    words = _headline_words(run.verdicts, ("P1",))
    rows = run.verdicts.filter(contrast="P1", level="", rater=rater, status="measured").to_dicts()
    reason = "; ".join(row["reason"] for row in rows) or "P1 was not measured at this temperature"
    return Decided(every_flips([words[rater]] if rater in words else []), why=reason)


def _hidden_tokens(evidence: PhaseRuns, rater: str) -> Decided:
    rows = evidence.runs["phase0b"].estimates.filter(level="")
    tables = rows.filter(metric="hidden_tokens"), rows.filter(metric="noise", policy="complete")
    hidden, noise = (dict(table.select("rater", "value").iter_rows()) for table in tables)
    both = [name for name in hidden if None not in (hidden[name], noise.get(name))]
    if len(both) < FEWEST_MODELS:
        why = f"needs {FEWEST_MODELS} models with token counts and noise; here {len(both)}"
        return Decided(UNMEASURED, why=why)
    found = stats.kendalltau([hidden[name] for name in both], [noise[name] for name in both])
    tau, p = float(found.statistic), float(found.pvalue)
    why = f"Kendall's tau {tau:.2f}, p = {p:.3f}, {len(both)} models"
    return Decided(correlated(tau, p), why=why)


def _transfers_unevenly(evidence: PhaseRuns, rater: str) -> Decided:
    """Under some config this rater is above the reference in one number and below in another.

    The reference itself is compared with all other raters.
    """
    first = evidence.raters[0]
    table = evidence.transfer(first).filter(dataset="")
    table = table if rater == first else table.filter(rater=rater)
    if table.is_empty():
        return Decided(UNMEASURED, why="transfer needs a second model")
    found = []
    known = table.filter(pl.col("metric").is_in(TRANSFERRED)).drop_nulls("low")
    for config, other in table.select("level", "rater").unique(maintain_order=True).iter_rows():
        rows = known.filter(level=config, rater=other).to_dicts()
        either = [
            some_asserted(asserted(row["low"], row["high"], relation) for row in rows)
            for relation in ("up", "down")
        ]
        numbers = ", ".join(f"{row['metric']} {row['value']:+.1f}" for row in rows)
        found.append(DecidedPart(f"{other} under {config}", all_asserted(either), numbers))
    return Decided.by(some_asserted, found)


# --- the claims, by phase ---------------------------------------------------------------------

_WORDS, _LETTERS, _NEUTRAL = (
    f"label_format={name}" for name in ("natural_language", "letter", "neutral_id")
)
_FORMATTING = ("separator=space", "separator=tab", "connector=space", "mood=interrogative")
_FEWER = ("cardinality=3", "cardinality=2")
_PHASE1 = "Factor ablations, Phase 1 table"
_PHASE2A = "Phase 2 pipeline table"
_PHASE2B = "Phase 2b"

_CLAIMS = {
    "every-probe-flips": PaperClaim(
        "Under greedy decoding every model is sensitive to label order, demonstration order and "
        "placement.",
        "Abstract; introduction; Phase 0a",
        "phase0a",
        rule=_every_probe,
    ),
    "flips-beyond-noise": PaperClaim(
        "At temperature 0.7 label-order flips exceed those of repeating the prompt (six of ten "
        "models).",
        "Introduction; Phase 0b",
        "phase0b",
        rule=_beyond_noise,
    ),
    "hidden-tokens-and-noise": PaperClaim(
        "Models that write more hidden tokens have the higher noise.",
        "Phase 0b; appendix on hidden tokens",
        "phase0b",
        rule=_hidden_tokens,
    ),
    "words-raise-p1": PaperClaim(
        "Word labels change accuracy little and raise label-order flips by 59.5 points.",
        f"Introduction; {_PHASE1}, label format",
        "phase1",
        parts("up", ["P1"], _WORDS),
    ),
    "neutral-ids-help": PaperClaim(
        "Neutral identifiers raise accuracy by 6.5 points and lower flips by demonstration order "
        "and placement by 7.3 to 13.0.",
        f"{_PHASE1}, label format",
        "phase1",
        parts("up", ["accuracy"], _NEUTRAL) + parts("down", FLIPS[1:], _NEUTRAL),
    ),
    "letters-like-numbers": PaperClaim(
        "Letters stay close to numbers, in accuracy and in flips.",
        f"{_PHASE1}, label format",
        "phase1",
        parts("same", ["accuracy", "P1"], _LETTERS),
    ),
    "fewer-classes-improve-both": PaperClaim(
        "Three or two classes instead of five raise accuracy by 25.0 and 43.9 points and lower "
        "every flip rate by 16.3 to 48.9.",
        f"Abstract; {_PHASE1}, scale cardinality",
        "phase1",
        parts("up", ["accuracy"], _FEWER) + parts("down", FLIPS, _FEWER),
    ),
    "few-shots-trade": PaperClaim(
        "Without or with one demonstration per class, accuracy and label-order flips rise; with "
        "one, flips by order and placement fall by 6.2 to 20.2 points.",
        f"{_PHASE1}, demo count",
        "phase1",
        parts("up", ["accuracy", "P1"], ["shots=0", "shots=1"])
        + parts("down", FLIPS[1:], "shots=1"),
    ),
    "minimal-header-hurts": PaperClaim(
        "Without a description of the labels, label-order flips rise by 48.8 points and rank "
        "agreement falls.",
        f"Introduction; {_PHASE1}, prompt clarity",
        "phase1",
        parts("up", ["P1"], "clarity=minimal") + parts("down", ["spearman"], "clarity=minimal"),
    ),
    "ordinal-header-adds-little": PaperClaim(
        "Saying that the labels are ordered changes accuracy (+2.8) and label-order flips (+5.0) "
        "little.",
        f"{_PHASE1}, prompt clarity",
        "phase1",
        parts("same", ["accuracy"], "clarity=ordinal_explicit"),
    ),
    "formatting-moves-p2b": PaperClaim(
        "Another separator, a space as connector or a question as instruction raises P2b by 11.2 "
        "to 20.5 points and lowers accuracy.",
        f"{_PHASE1}, separator, connector and mood",
        "phase1",
        parts("up", ["P2b"], _FORMATTING) + parts("down", ["accuracy"], _FORMATTING),
    ),
    "only-fewer-classes": PaperClaim(
        "Fewer classes are the only change that improves accuracy and every flip rate.",
        f"Abstract; introduction; {_PHASE1}",
        "phase1",
        rule=_only_fewer_classes,
    ),
    "accuracy-is-not-stability": PaperClaim(
        "Accuracy and stability are often misaligned: a change can raise or lower both accuracy "
        "and a flip rate.",
        f"Abstract; {_PHASE1}",
        "phase1",
        rule=_accuracy_apart_from_stability,
    ),
    "calibration-does-not-help": PaperClaim(
        "PriDe and contextual calibration do not lower label-order flips (+0.7 and +3.3 points).",
        f"Introduction; {_PHASE2A}, debiasing strategy",
        "phase2a",
        parts("not down", ["P1"], ["pipeline=pointwise+pride", "pipeline=pointwise+contextual"]),
    ),
    "averaging-keeps-accuracy": PaperClaim(
        "Averaging over label orders or demonstration orders leaves accuracy as it is (-1.1 and "
        "-0.4 points).",
        f"{_PHASE2A}, debiasing strategy",
        "phase2a",
        parts(
            "same",
            ["accuracy"],
            ["pipeline=pointwise+label_average", "pipeline=pointwise+demo_average"],
        ),
    ),
    "pairwise-hurts-both": PaperClaim(
        "Pairwise comparisons lower accuracy by 8.9 points and raise label-order flips by 27.8.",
        f"Introduction; {_PHASE2A}, inference paradigm",
        "phase2a",
        parts("down", ["accuracy"], "pipeline=pairwise") + parts("up", ["P1"], "pipeline=pairwise"),
    ),
    "listwise-hurts": PaperClaim(
        "Asking for a place in a list lowers accuracy by 27.6 points and rank agreement by 72.6.",
        f"Introduction; {_PHASE2A}, inference paradigm",
        "phase2a",
        parts("down", ["accuracy", "spearman"], "pipeline=listwise"),
    ),
    "listwise-compare-balances": PaperClaim(
        "Listwise-compare lowers label-order flips by 18.1 points and keeps accuracy.",
        f"Abstract; introduction; {_PHASE2A}, inference paradigm",
        "phase2a",
        parts("down", ["P1"], "pipeline=listwise_compare")
        + parts("not down", ["accuracy"], "pipeline=listwise_compare"),
    ),
    "no-aggregator-helps": PaperClaim(
        "No aggregation rule makes pairwise comparisons both accurate and stable.",
        f"{_PHASE2A}, aggregation method",
        "phase2a",
        rule=_no_rule_helps,
    ),
    "configs-trade-probes": PaperClaim(
        "A configuration chosen for one probe gets worse on another: P2a raises label-order flips.",
        f"{_PHASE2B}; introduction",
        "phase2b",
        parts("down", ["P2a"], "config=P2a") + parts("up", ["P1"], "config=P2a"),
    ),
    "transfer-is-uneven": PaperClaim(
        "Configurations chosen on one model transfer unevenly: others differ from it in both "
        "directions, by metric and by configuration.",
        f"Abstract; {_PHASE2B}, transfer table",
        "phase2b",
        rule=_transfers_unevenly,
    ),
}
for _name, _claim in _CLAIMS.items():
    paper_claims.add(_name, _claim)
