"""The paper's best interventions by its own tables."""

from __future__ import annotations

import polars as pl

from flipmeter.paper.bench import Bench, residual_of
from flipmeter.paper.errata.erratum import ErratumRow, Rows, erratum
from flipmeter.paper.published import METRICS, printed, published, published_cell
from flipmeter.paper.rows import REFERENCE

FLIPS = tuple(name for name in METRICS.values() if name.startswith("P"))
JOINT = {"label_format": "letter", "separator": "tab"}


@erratum(
    "only-intervention",
    title="Fewer classes are not the only change that improves both",
    where="Abstract, introduction and Phase 1: only lower cardinality improves both",
    rule="Accuracy must rise and all five flip rates must fall. Other rows of the same table do "
    "so too; and fewer classes flip less for a trivial reason, since answers that differ "
    "are merged.",
    remedy="List every row that does. Compare fewer classes with merging the answers alone, "
    "which needs no call.",
)
def only_intervention(bench: Bench) -> Rows:
    """A rater with noise and no preference for a position, on five classes and on three."""
    run = bench.run(
        models=["sim/noisy?noise=1"],
        mode="paper",
        test_size=80,
        probes=["label_order"],
        base={"shots": 1},
        vary={"cardinality": [3, 2]},
    )
    rows = []
    for size in (3, 2):
        as_printed = printed("phase1_residuals", "P1", level=f"{size}-way")
        fewer, merged = (
            residual_of(run, level, "P1") or 0.0 for level in (f"{size}", f"{size} by merging")
        )
        what = f"P1, {size} classes minus 5 (right: by merging the answers alone)"
        rows.append(ErratumRow(what, as_printed, fewer, merged))
    both = improves_both()
    named = [level for level in both if level.endswith("-way")]
    found = ErratumRow(
        "levels with higher accuracy and five lower flip rates",
        ", ".join(named),
        "",
        ", ".join(both),
    )
    return [found, *rows]


def improves_both() -> list[str]:
    """Levels of the Phase 1 table with a higher accuracy and lower flip rates throughout."""
    table = published("phase1_residuals").drop_nulls("mean")
    signed = table.with_columns(pl.col("mean").cast(pl.Float64))
    better = pl.when(pl.col("metric") == "accuracy").then(pl.col("mean")).otherwise(-pl.col("mean"))
    judged = signed.filter(pl.col("metric").is_in(["accuracy", *FLIPS]))
    groups = judged.group_by("factor", "level", maintain_order=True).agg(
        (better > 0).all().alias("is_better"), pl.len()
    )
    complete = groups.filter(pl.col("is_better"), pl.col("len") == 1 + len(FLIPS))
    return complete["level"].to_list()


@erratum(
    "accuracy-optimal",
    title="The accuracy-optimal configuration is not the most accurate",
    where="Phase 2b: configuration A",
    rule="For each factor the level that is best alone is chosen, and the levels are put "
    "together. "
    "Factors interact, and their combination can be worse than its parts.",
    remedy="Measure the configuration itself, beside the others, on items that the choice did not "
    "see.",
)
def accuracy_optimal(bench: Bench) -> Rows:
    """A rater that was planted to misread under letters or tabs, but not under both."""
    run = bench.run(
        models=["sim/joint"],
        mode="paper",
        test_size=60,
        probes=["label_order"],
        base={"shots": 1},
        vary={factor: [level] for factor, level in JOINT.items()},
        configs={"both": JOINT},
    )
    alone = [residual_of(run, level, "accuracy") or 0.0 for level in JOINT.values()]
    together = residual_of(run, "both", "accuracy") or 0.0
    cells = {
        config: published_cell("phase2_joint_absolute", "accuracy", model=REFERENCE, config=config)
        for config in ("baseline", "A", "P1", "P2a", "P2b")
    }
    values = ", ".join(f"{name} {cell.value:.3f}" for name, cell in cells.items() if cell)
    best = max((cell.value, name) for name, cell in cells.items() if cell)[1]
    return [
        ErratumRow("most accurate configuration", values, "A, by its levels alone", best),
        ErratumRow(
            "accuracy: sum of two levels alone, and both together", "", sum(alone), together
        ),
    ]
