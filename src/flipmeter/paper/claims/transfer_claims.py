"""Claims of Phase 2b: configurations chosen on one model, used on another."""

from __future__ import annotations

from flipmeter.measure.inference.asserted import all_asserted, asserted, some_asserted
from flipmeter.paper.claims.paper_claim import (
    Decided,
    DecidedPart,
    PaperClaim,
    Part,
    claim_of_parts,
    paper_claims,
)
from flipmeter.paper.evidence import PhaseRuns

WHERE = "Phase 2b"
WATCHED = ("accuracy", "P1", "P2a", "P2b")

claim_of_parts(
    "configs-trade-probes",
    "phase2b",
    "A configuration chosen for one probe gets worse on another: P2a raises label-order flips.",
    f"{WHERE}; introduction",
    Part("config=P2a", "P2a", "down"),
    Part("config=P2a", "P1", "up"),
)


def _transfers_unevenly(evidence: PhaseRuns, rater: str) -> Decided:
    """Under some config this rater is above the reference in one number and below in another.

    The reference itself is compared with all other raters.
    """
    first = evidence.raters[0]
    table = evidence.transfer(first).filter(dataset="")
    table = table if rater == first else table.filter(rater=rater)
    if table.is_empty():
        return Decided("not measurable", why="transfer needs a second model")
    parts = []
    for (config, other), rows in table.group_by("level", "rater", maintain_order=True):
        known = [
            row for row in rows.to_dicts() if row["metric"] in WATCHED and row["low"] is not None
        ]
        ups, downs = (
            some_asserted(asserted(row["low"], row["high"], relation) for row in known)
            for relation in ("up", "down")
        )
        numbers = ", ".join(f"{row['metric']} {row['value']:+.1f}" for row in known)
        parts.append(DecidedPart(f"{other} under {config}", all_asserted([ups, downs]), numbers))
    return Decided(some_asserted(part.word for part in parts), tuple(parts))


paper_claims.add(
    "transfer-is-uneven",
    PaperClaim(
        "Configurations chosen on one model transfer unevenly: others differ from it in both "
        "directions, by metric and by configuration.",
        f"Abstract; {WHERE}, transfer table",
        "phase2b",
        _transfers_unevenly,
    ),
)
