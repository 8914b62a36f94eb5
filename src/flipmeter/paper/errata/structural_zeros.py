"""Differences from something that was never measured."""

from __future__ import annotations

from flipmeter.paper.bench import Bench, flip_rate, residual_of
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import published

RULES = ("majority_vote", "mean_score", "weighted_sum", "copeland", "bradley_terry")


@erratum(
    "structural-p3",
    title="A flip rate that cannot vary is subtracted as if it were 0",
    where="Phase 2 pipeline table, aggregation method: P3a -67.43 and P3b -56.10 in all five rows",
    rule="A pairwise prompt shows one demonstration: there is no block of them to move, and all "
    "three placements are the same calls. The table prints 0 minus the pointwise baseline, "
    "the same number for every aggregator, as if comparing had removed the sensitivity.",
    remedy="Not applicable: a contrast whose prompts are equal has no flip rate.",
)
def structural_p3(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position, asked in pairs."""
    run = bench.run(
        models=["sim/noisy?noise=1"],
        mode="paper",
        test_size=30,
        probes=["placement"],
        base={"shots": 2},
        vary={"pipeline": [f"pairwise+{rule}" for rule in RULES]},
    )
    rows = []
    for contrast in ("P3a", "P3b"):
        base = -100 * (flip_rate(run, contrast) or 0.0)
        found = {residual_of(run, f"pairwise+{rule}", contrast) for rule in RULES}
        right = "not applicable" if found == {None} else str(found)
        rows.append(ErratumRow(f"{contrast} of all five rules", _printed(contrast), base, right))
    return rows


def _printed(contrast: str) -> str:
    table = published("phase2_pipeline").filter(metric=contrast, family="Aggregation method")
    return ", ".join(f"{mean} ± {sd}" for mean, sd in table.select("mean", "sd").unique().rows())
