"""Claims of Phase 0: flips, and whether they exceed noise."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from scipy import stats

from flipmeter.measure import headlines
from flipmeter.measure.inference.asserted import all_asserted, correlated, every_flips
from flipmeter.measure.inference.words import Word
from flipmeter.paper.claims.paper_claim import (
    UNMEASURED,
    Decided,
    DecidedPart,
    PaperClaim,
    paper_claims,
)
from flipmeter.paper.evidence import PhaseRuns

PROBES = {
    "label order": ("P1",),
    "demonstration order": ("P2a", "P2b"),
    "placement": ("P3a", "P3b"),
}
FEWEST_MODELS = 5
"""Below, no rank correlation can be shown."""


def _headline(verdicts: pl.DataFrame, contrasts: tuple[str, ...]) -> list[tuple[str, Word]]:
    """A word for every rater over some contrasts, adjusted for the raters it is counted among."""
    rows = verdicts.filter(pl.col("contrast").is_in(contrasts))
    return [(row["rater"], row["word_among"]) for row in headlines(rows).to_dicts()]


def _words(evidence: PhaseRuns, rater: str) -> Iterator[DecidedPart]:
    verdicts = evidence.runs["phase0a"].verdicts.filter(rater=rater)
    for probe, contrasts in PROBES.items():
        rows = verdicts.filter(pl.col("contrast").is_in(contrasts), level="")
        found = [word for _, word in _headline(rows, contrasts)]
        measured = rows.filter(status="measured").drop_nulls("value").to_dicts()
        if not measured:
            why = "not asked" if rows.is_empty() else "no pair of replies could be read"
            yield DecidedPart(probe, UNMEASURED, why)
            continue
        numbers = ", ".join(f"{row['contrast']} {100 * row['value']:.1f} %" for row in measured)
        yield DecidedPart(probe, every_flips(found), numbers)


def _all_probes(evidence: PhaseRuns, rater: str) -> Decided:
    parts = tuple(_words(evidence, rater))
    return Decided(all_asserted(part.word for part in parts), parts)


def _beyond_noise(evidence: PhaseRuns, rater: str) -> Decided:
    run = evidence.runs["phase0b"]
    found = dict(_headline(run.verdicts, ("P1",)))
    words = [found[rater]] if rater in found else []
    rows = run.verdicts.filter(contrast="P1", level="", rater=rater, status="measured").to_dicts()
    reason = "; ".join(row["reason"] for row in rows)
    return Decided(every_flips(words), why=reason or "P1 was not measured at this temperature")


def _hidden_tokens(evidence: PhaseRuns, rater: str) -> Decided:
    rows = evidence.runs["phase0b"].estimates.filter(level="")
    tables = rows.filter(metric="hidden_tokens"), rows.filter(metric="noise", policy="complete")
    hidden, noise = (dict(table.select("rater", "value").iter_rows()) for table in tables)
    both = [name for name in hidden if None not in (hidden[name], noise.get(name))]
    if len(both) < FEWEST_MODELS:
        why = f"needs {FEWEST_MODELS} models with token counts and noise; here {len(both)}"
        return Decided("not measurable", why=why)
    found = stats.kendalltau([hidden[name] for name in both], [noise[name] for name in both])
    tau, p = float(found.statistic), float(found.pvalue)
    return Decided(
        correlated(tau, p), why=f"Kendall's tau {tau:.2f}, p = {p:.3f}, {len(both)} models"
    )


paper_claims.add(
    "every-probe-flips",
    PaperClaim(
        "Under greedy decoding every model is sensitive to label order, demonstration order and "
        "placement.",
        "Abstract; introduction; Phase 0a",
        "phase0a",
        _all_probes,
    ),
)
paper_claims.add(
    "flips-beyond-noise",
    PaperClaim(
        "At temperature 0.7 label-order flips exceed those of repeating the prompt (six of ten "
        "models).",
        "Introduction; Phase 0b",
        "phase0b",
        _beyond_noise,
    ),
)
paper_claims.add(
    "hidden-tokens-and-noise",
    PaperClaim(
        "Models that write more hidden tokens have the higher noise.",
        "Phase 0b; appendix on hidden tokens",
        "phase0b",
        _hidden_tokens,
    ),
)
