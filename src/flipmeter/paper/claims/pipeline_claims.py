"""Claims of Phase 2a: what corrections, comparisons and aggregators do."""

from __future__ import annotations

from flipmeter.measure.inference.asserted import NEGATED, all_asserted
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
from flipmeter.paper.rows import PIPELINES

WHERE = "Phase 2 pipeline table"
RULES = [level for (family, _), level in PIPELINES.items() if family == "Aggregation method"]

claim_of_parts(
    "calibration-does-not-help",
    "phase2a",
    "PriDe and contextual calibration do not lower label-order flips (+0.7 and +3.3 points).",
    f"Introduction; {WHERE}, debiasing strategy",
    Part("pipeline=pointwise+pride", "P1", "not down"),
    Part("pipeline=pointwise+contextual", "P1", "not down"),
)
claim_of_parts(
    "averaging-keeps-accuracy",
    "phase2a",
    "Averaging over label orders or demonstration orders leaves accuracy as it is (-1.1 and -0.4 "
    "points).",
    f"{WHERE}, debiasing strategy",
    Part("pipeline=pointwise+label_average", "accuracy", "same"),
    Part("pipeline=pointwise+demo_average", "accuracy", "same"),
)
claim_of_parts(
    "pairwise-hurts-both",
    "phase2a",
    "Pairwise comparisons lower accuracy by 8.9 points and raise label-order flips by 27.8.",
    f"Introduction; {WHERE}, inference paradigm",
    Part("pipeline=pairwise", "accuracy", "down"),
    Part("pipeline=pairwise", "P1", "up"),
)
claim_of_parts(
    "listwise-hurts",
    "phase2a",
    "Asking for a place in a list lowers accuracy by 27.6 points and rank agreement by 72.6.",
    f"Introduction; {WHERE}, inference paradigm",
    Part("pipeline=listwise", "accuracy", "down"),
    Part("pipeline=listwise", "spearman", "down"),
)
claim_of_parts(
    "listwise-compare-balances",
    "phase2a",
    "Listwise-compare lowers label-order flips by 18.1 points and keeps accuracy.",
    f"Abstract; introduction; {WHERE}, inference paradigm",
    Part("pipeline=listwise_compare", "P1", "down"),
    Part("pipeline=listwise_compare", "accuracy", "not down"),
)


def _no_rule_helps(evidence: PhaseRuns, rater: str) -> Decided:
    """Refuted by a rule that costs no accuracy and raises no flips."""
    parts = []
    for level in RULES:
        wanted = (Part(level, "accuracy", "not down"), Part(level, "P1", "not up"))
        found = list(decided_parts(evidence, rater, "phase2a", wanted))
        helps = all_asserted(part.word for part in found)
        word = NEGATED[helps]
        parts.append(DecidedPart(level, word, ", ".join(part.number for part in found)))
    return Decided(all_asserted(part.word for part in parts), tuple(parts))


paper_claims.add(
    "no-aggregator-helps",
    PaperClaim(
        "No aggregation rule makes pairwise comparisons both accurate and stable.",
        f"{WHERE}, aggregation method",
        "phase2a",
        _no_rule_helps,
    ),
)
