"""Claims of Phase 1: what label formats, classes, demonstrations and wording do."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flipmeter.measure.inference.asserted import (
    NEGATED,
    Asserted,
    all_asserted,
    asserted,
    some_asserted,
)
from flipmeter.paper.claims.paper_claim import (
    Decided,
    DecidedPart,
    PaperClaim,
    Part,
    claim_of_parts,
    decided_parts,
    paper_claims,
)
from flipmeter.paper.evidence import PhaseRuns

FLIPS = ("P1", "P2a", "P2b", "P3a", "P3b")
WORDS, LETTERS, NEUTRAL = (
    f"label_format={name}" for name in ("natural_language", "letter", "neutral_id")
)
FORMATTING = ("separator=space", "separator=tab", "connector=space", "mood=interrogative")
FEWER = ("cardinality=3", "cardinality=2")
WHERE = "Factor ablations, Phase 1 table"

claim_of_parts(
    "words-raise-p1",
    "phase1",
    "Word labels change accuracy little and raise label-order flips by 59.5 points.",
    f"Introduction; {WHERE}, label format",
    Part(WORDS, "P1", "up"),
)
claim_of_parts(
    "neutral-ids-help",
    "phase1",
    "Neutral identifiers raise accuracy by 6.5 points and lower flips by demonstration order and "
    "placement by 7.3 to 13.0.",
    f"{WHERE}, label format",
    Part(NEUTRAL, "accuracy", "up"),
    *(Part(NEUTRAL, metric, "down") for metric in FLIPS[1:]),
)
claim_of_parts(
    "letters-like-numbers",
    "phase1",
    "Letters stay close to numbers, in accuracy and in flips.",
    f"{WHERE}, label format",
    Part(LETTERS, "accuracy", "same"),
    Part(LETTERS, "P1", "same"),
)
claim_of_parts(
    "fewer-classes-improve-both",
    "phase1",
    "Three or two classes instead of five raise accuracy by 25.0 and 43.9 points and lower every "
    "flip rate by 16.3 to 48.9.",
    f"Abstract; {WHERE}, scale cardinality",
    *(Part(level, "accuracy", "up") for level in FEWER),
    *(Part(level, metric, "down") for level in FEWER for metric in FLIPS),
)
claim_of_parts(
    "few-shots-trade",
    "phase1",
    "Without or with one demonstration per class, accuracy and label-order flips rise; with one, "
    "flips by order and placement fall by 6.2 to 20.2 points.",
    f"{WHERE}, demo count",
    *(Part(f"shots={n}", metric, "up") for n in (0, 1) for metric in ("accuracy", "P1")),
    *(Part("shots=1", metric, "down") for metric in FLIPS[1:]),
)
claim_of_parts(
    "minimal-header-hurts",
    "phase1",
    "Without a description of the labels, label-order flips rise by 48.8 points and rank "
    "agreement falls.",
    f"Introduction; {WHERE}, prompt clarity",
    Part("clarity=minimal", "P1", "up"),
    Part("clarity=minimal", "spearman", "down"),
)
claim_of_parts(
    "ordinal-header-adds-little",
    "phase1",
    "Saying that the labels are ordered changes accuracy (+2.8) and label-order flips (+5.0) "
    "little.",
    f"{WHERE}, prompt clarity",
    Part("clarity=ordinal_explicit", "accuracy", "same"),
)
claim_of_parts(
    "formatting-moves-p2b",
    "phase1",
    "Another separator, a space as connector or a question as instruction raises P2b by 11.2 to "
    "20.5 points and lowers accuracy.",
    f"{WHERE}, separator, connector and mood",
    *(Part(level, "P2b", "up") for level in FORMATTING),
    *(Part(level, "accuracy", "down") for level in FORMATTING),
)


def _only_fewer_classes(evidence: PhaseRuns, rater: str) -> Decided:
    """Refuted by another level that improves both; shown if every other level is shown not to."""
    table = evidence.residuals("phase1").filter(rater=rater, dataset="")
    levels = table.select("factor", "level").unique(maintain_order=True).iter_rows()
    parts = []
    for factor, level in levels:
        if factor != "cardinality":
            word = _improves_both(table.filter(factor=factor, level=level))
            parts.append(DecidedPart(f"{factor}={level}", NEGATED[word], _improves(word)))
    return Decided(all_asserted(part.word for part in parts), tuple(parts))


def _improves_both(rows: pl.DataFrame) -> Asserted:
    """Whether accuracy rises and every flip rate that was measured falls."""
    known = rows.filter(pl.col("metric").is_in(["accuracy", *FLIPS])).drop_nulls("low")
    return all_asserted(
        asserted(row["low"], row["high"], "up" if row["metric"] == "accuracy" else "down")
        for row in known.to_dicts()
    )


def _improves(word: Asserted) -> str:
    told = {"holds": "improves accuracy and every flip rate", "fails": "does not improve both"}
    return told.get(word, "not settled")


def _accuracy_and_stability_part(evidence: PhaseRuns, rater: str) -> Decided:
    """Shown by any level that is more accurate and flips more, or the reverse."""
    levels = evidence.residuals("phase1").filter(rater=rater, dataset="")
    names = levels.select("factor", "level").unique(maintain_order=True).iter_rows()
    parts: list[DecidedPart] = []
    for factor, level in names:
        parts += _decoupled(evidence, rater, f"{factor}={level}")
    return Decided(some_asserted(part.word for part in parts), tuple(parts))


def _decoupled(evidence: PhaseRuns, rater: str, level: str) -> Sequence[DecidedPart]:
    found = []
    for metric in FLIPS:
        both = (Part(level, "accuracy", "up"), Part(level, metric, "up"))
        worse = (Part(level, "accuracy", "down"), Part(level, metric, "down"))
        for pair in (both, worse):
            decided = list(decided_parts(evidence, rater, "phase1", pair))
            word = all_asserted(part.word for part in decided)
            text = f"{level}: accuracy and {metric} {'rise' if pair is both else 'fall'}"
            found.append(DecidedPart(text, word, ", ".join(part.number for part in decided)))
    return found


paper_claims.add(
    "only-fewer-classes",
    PaperClaim(
        "Fewer classes are the only change that improves accuracy and every flip rate.",
        f"Abstract; introduction; {WHERE}",
        "phase1",
        _only_fewer_classes,
    ),
)
paper_claims.add(
    "accuracy-is-not-stability",
    PaperClaim(
        "Accuracy and stability are often misaligned: a change can raise or lower both accuracy "
        "and a flip rate.",
        f"Abstract; {WHERE}",
        "phase1",
        _accuracy_and_stability_part,
    ),
)
