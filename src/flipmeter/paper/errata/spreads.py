"""The meaning of the ± in the tables."""

from __future__ import annotations

import polars as pl

from flipmeter.paper.bench import Bench
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import printed, published_cell

N_CELL = 600
"""Items of a dataset over three seeds: accuracy moves in steps of 100 / 600 points."""


@erratum(
    "sd-over-what",
    title="The SD is over datasets, not over seeds",
    where="Statistical tests section; Phase 1 and Phase 2 tables",
    rule="The text speaks of mean and SD over three demonstration seeds. The printed SDs are the "
    "population SD over datasets of means over seeds: how different the datasets are, which "
    "more items or seeds do not reduce, and not the uncertainty of the mean.",
    remedy="A paired interval over items for the mean; the SDs over seeds and over datasets apart, "
    "with their names.",
)
def sd_over_what(bench: Bench) -> Rows:
    """A rater that answers alike for every seed, on two datasets that differ in their classes."""
    keys = {
        "models": ["sim/honest"],
        "datasets": ["reviews", bench.texts((25, 60, 60, 60, 25))],
        "seeds": [0, 1, 42],
        "test_size": 60,
        "balance": "proportional",
        "probes": ["label_order"],
        "base": {"shots": 1},
        "vary": {"cardinality": [3]},
    }
    paper, right = (
        bench.run(mode=mode, cardinality_sample="remap", **keys)
        .residuals()
        .filter(pl.col("dataset") == "", factor="cardinality", level="3", metric="accuracy")
        .row(0, named=True)
        for mode in ("paper", "recommended")
    )
    as_printed = printed("phase1_residuals", "accuracy", level="3-way")
    return [
        ErratumRow(
            "accuracy, 3 classes minus 5",
            as_printed,
            f"{paper['value']:+.2f} ± {paper['dataset_sd']:.2f}",
            f"{right['value']:+.2f} [{right['low']:.2f}, {right['high']:.2f}]",
        ),
        ErratumRow(
            "SD over the three seeds of the same number",
            "",
            f"{paper['seed_sd']:.2f}",
            f"{right['seed_sd']:.2f}",
        ),
        ErratumRow(
            "two datasets that give the printed mean and SD, steps of 1/6 points",
            as_printed,
            f"{_n_pairs(0)} as population SD",
            f"{_n_pairs(1)} as sample SD",
        ),
    ]


def _n_pairs(ddof: int) -> int:
    """Number of pairs of two datasets' residuals that print as the paper's +25.00 ± 6.17."""
    cell = published_cell("phase1_residuals", "accuracy", level="3-way")
    if cell is None or cell.sd is None:
        return 0
    total = round(2 * cell.value * N_CELL / 100)
    pairs = ((first, total - first) for first in range(total // 2 + 1))
    factor = 0.5 if ddof == 0 else 0.5**0.5
    sds = (factor * abs(a - b) * 100 / N_CELL for a, b in pairs)
    return sum(f"{sd:.2f}" == f"{cell.sd:.2f}" for sd in sds)
