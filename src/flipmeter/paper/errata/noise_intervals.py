"""Intervals that cannot hold zero, so that noise passes for bias."""

from __future__ import annotations

import polars as pl

from flipmeter.measure import headlines, wilson
from flipmeter.paper.bench import Bench
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import published

NOISES = tuple(0.4 + 0.1 * step for step in range(10))
PROBES = ("P1", "P2", "P3")
N_PAPER = 200


@erratum(
    "zero-intervals",
    title="An interval that excludes zero is taken as evidence of bias",
    where="Phase 0 table, panel (a): all 30 intervals exclude zero",
    rule="A flip rate is called significant where its Wilson interval excludes 0. It excludes 0 "
    "as "
    "soon as one item flips, so the rule cannot fail for a rater with any noise.",
    remedy="Repeat every view and ask whether views differ more than repeats do (the verdict's "
    "randomisation test), and test the size against a margin.",
)
def zero_intervals(bench: Bench) -> Rows:
    """Ten raters that draw at random around the right class and prefer no position."""
    run = bench.run(
        models=[{"name": f"noise {n:.1f}", "model": f"sim/noisy?noise={n:.1f}"} for n in NOISES],
        test_size=30,
        repeats=2,
        base={"shots": 1},
    )
    rates = run.estimates.filter(pl.col("metric").is_in(PROBES), policy="complete")
    n_excluding = sum(low > 0 for low in _wilson_lows(rates))
    words = headlines(run.verdicts)["word_among"].to_list()
    printed = published("phase0")
    n_printed = sum(float(row[f"{probe}_lo"]) > 0 for row in printed.to_dicts() for probe in PROBES)
    return [
        ErratumRow(
            "combinations of rater and probe called biased",
            f"{n_printed} of {3 * len(printed)}",
            f"{n_excluding} of {len(rates)}",
            f"{words.count('flips')} of {len(words)} raters flip (Holm)",
        ),
        ErratumRow(
            f"lower end of the interval for 1 flip of {N_PAPER}",
            "",
            f"{wilson(1, N_PAPER)[0]:.4f}",
            "1 flip shows nothing",
        ),
    ]


def _wilson_lows(rates: pl.DataFrame) -> list[float]:
    counts = rates.select("k", "n").iter_rows()
    return [wilson(int(k), int(n))[0] for k, n in counts]
