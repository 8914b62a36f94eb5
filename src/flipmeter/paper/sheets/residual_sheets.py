"""The paper's tables of differences, with ours beside them: factors, pipelines, transfer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from flipmeter.measure import select_greedy
from flipmeter.measure.effects.greedy import WARNING
from flipmeter.paper.evidence import Phase, PhaseRuns, row_of
from flipmeter.paper.published import METRICS, published, published_cell
from flipmeter.paper.rows import LEVELS, PIPELINES, REFERENCE
from flipmeter.paper.sheets.sheet import Sheet, SheetCell, SheetRow
from flipmeter.types import Problem, Style

HEADS = ("Acc.", "F1", "ρ", "MAE", "P1", "P2a", "P2b", "P3a", "P3b")
NUMBERS = tuple(METRICS.values())
RIGHT = {"mae": ""}
"""The metric names of recommended mode; its MAE, divided by M - 1, is a different number."""
RULE = (
    "paper: as printed, mean ± SD over datasets; here: the same rule on this run; diff.: here "
    "minus paper; 95 %: on items in common, words read by name, with an interval over items"
)


def factors_sheet(evidence: PhaseRuns, rater: str) -> Sheet:
    """Phase 1: what every level changes for a rater, and what other models differ by."""
    rows = [*_known_rows(evidence, rater, "phase1", "phase1_residuals", LEVELS)]
    rows += _model_rows(evidence, rater)
    rows += _own_rows(evidence, rater, "phase1", set(LEVELS.values()))
    title = f"Phase 1: change from the base, in points ({rater})"
    return Sheet(f"phase1 {rater}", title, ("factor", "level"), HEADS, rows, (RULE,))


def pipelines_sheet(evidence: PhaseRuns, rater: str) -> Sheet:
    """Phase 2a: paradigms, aggregators and debiasers, and the forms that the paper has not."""
    rows = [*_known_rows(evidence, rater, "phase2a", "phase2_pipeline", PIPELINES)]
    rows += _own_rows(evidence, rater, "phase2a", set(PIPELINES.values()))
    title = f"Phase 2a: change from the pointwise baseline, in points ({rater})"
    return Sheet(f"phase2 pipelines {rater}", title, ("family", "method"), HEADS, rows, (RULE,))


def _known_rows(
    evidence: PhaseRuns,
    rater: str,
    phase: Phase,
    table: str,
    names: Mapping[tuple[str, str], str],
) -> Iterator[SheetRow]:
    first, second = published(table).columns[:2]
    for (family, method), level in names.items():
        factor, _, value = level.partition("=")
        cells = tuple(
            SheetCell(
                published_cell(table, metric, **{first: family, second: method}),
                *_both(evidence, phase, metric, rater=rater, factor=factor, level=value),
            )
            for metric in NUMBERS
        )
        yield SheetRow((family, method), cells)


def _both(
    evidence: PhaseRuns, phase: Phase, metric: str, **which: str
) -> tuple[Mapping[str, object] | None, Mapping[str, object] | None]:
    """The number by the paper's rule and by ours."""
    here = row_of(evidence.residuals(phase, "paper"), metric=metric, **which)
    return here, row_of(evidence.residuals(phase), metric=RIGHT.get(metric, metric), **which)


def _model_rows(evidence: PhaseRuns, rater: str) -> Iterator[SheetRow]:
    """The paper's models, and the raters compared with this one."""
    printed = (
        published("phase1_residuals").filter(factor="Model")["level"].unique(maintain_order=True)
    )
    table = evidence.residuals("phase1", "paper").filter(factor="model", against=rater)
    ours = [name for name in table["level"].unique(maintain_order=True) if name not in set(printed)]
    for model in (*printed, *ours):
        cells = tuple(
            SheetCell(
                published_cell("phase1_residuals", metric, factor="Model", level=model),
                *_both(evidence, "phase1", metric, factor="model", level=model, against=rater),
            )
            for metric in NUMBERS
        )
        yield SheetRow(("Model", model), cells)


def _own_rows(evidence: PhaseRuns, rater: str, phase: Phase, known: set[str]) -> Iterator[SheetRow]:
    """Levels that the paper has no row for."""
    table = evidence.residuals(phase, "paper").filter(pl.col("factor") != "model", rater=rater)
    pairs = table.select("factor", "level").unique(maintain_order=True).iter_rows()
    for factor, level in pairs:
        if f"{factor}={level}" not in known:
            cells = tuple(
                SheetCell(
                    None,
                    *_both(evidence, phase, metric, rater=rater, factor=factor, level=level),
                )
                for metric in NUMBERS
            )
            yield SheetRow((f"not in the paper: {factor}", level), cells)


def joint_sheet(evidence: PhaseRuns) -> Sheet:
    """Phase 2b: absolute numbers of every model under every config."""
    table = published("phase2_joint_absolute")
    rows = [
        SheetRow((model, config), _absolute_cells(evidence, model, config, is_printed=True))
        for model, config in table.select("model", "config").unique(maintain_order=True).iter_rows()
    ]
    ours = evidence.absolutes("phase2b", "paper").filter(pl.col("factor").is_in(["", "config"]))
    for rater, level in ours.select("rater", "level").unique(maintain_order=True).iter_rows():
        if (rater, level) not in {row.names for row in rows}:
            rows.append(SheetRow((rater, level), _absolute_cells(evidence, rater, level)))
    note = f"shares, and MAE in ranks; {RULE}"
    title = "Phase 2b: absolute numbers under each configuration"
    return Sheet("phase2 joint", title, ("model", "config"), HEADS, rows, (note,))


def _absolute_cells(
    evidence: PhaseRuns, model: str, config: str, *, is_printed: bool = False
) -> tuple[SheetCell, ...]:
    cells = []
    for metric in NUMBERS:
        which = {"metric": metric, "rater": model, "level": config}
        here = row_of(evidence.absolutes("phase2b", "paper"), **which)
        which["metric"] = RIGHT.get(metric, metric)
        right = row_of(evidence.absolutes("phase2b"), **which)
        printed = (
            published_cell("phase2_joint_absolute", metric, model=model, config=config)
            if is_printed
            else None
        )
        cells.append(SheetCell(printed, here, right, form=".3f"))
    return tuple(cells)


def transfer_sheet(evidence: PhaseRuns) -> Sheet:
    """Phase 2b: every model minus the reference under the same configuration."""
    rows = []
    for model, config in (
        published("phase2_transfer_residuals")
        .select("model", "config")
        .unique(maintain_order=True)
        .iter_rows()
    ):
        rows.append(SheetRow((model, config), _transfer_cells(evidence, model, config)))
    first = evidence.raters[0] if evidence.raters else ""
    ours = evidence.transfer(first, "paper")
    for rater, level in ours.select("rater", "level").unique(maintain_order=True).iter_rows():
        if (rater, level) not in {row.names for row in rows}:
            rows.append(SheetRow((rater, level), _transfer_cells(evidence, rater, level)))
    notes = (f"the paper subtracts {REFERENCE}, this run {first or 'nothing'}; {RULE}",)
    title = "Phase 2b: models minus the reference, in points"
    return Sheet("phase2 transfer", title, ("model", "config"), HEADS, rows, notes)


def _transfer_cells(evidence: PhaseRuns, model: str, config: str) -> tuple[SheetCell, ...]:
    first = evidence.raters[0] if evidence.raters else ""
    cells = []
    for metric in NUMBERS:
        which = {"rater": model, "level": config}
        here = row_of(evidence.transfer(first, "paper"), metric=metric, **which)
        right = row_of(evidence.transfer(first), metric=RIGHT.get(metric, metric), **which)
        printed = published_cell("phase2_transfer_residuals", metric, model=model, config=config)
        cells.append(SheetCell(printed, here, right))
    return tuple(cells)


CHOSEN = {"A": "accuracy", **{name: name for name in ("P1", "P2a", "P2b", "P3a", "P3b")}}
FACTORS = {
    "label_format": "label_format(F1)",
    "shots": "demo_count(F6)",
    "clarity": "prompt_clarity(F13)",
    "separator": "separator",
    "connector": "connector",
    "mood": "mood",
}


def configs_sheet(evidence: PhaseRuns, rater: str) -> Sheet:
    """The configurations that the greedy rule picks for this rater, beside the paper's."""
    printed = {row["id"]: row for row in published("priority_config").to_dicts()}
    table = evidence.residuals("phase1", "paper").filter(rater=rater)
    rows = []
    for config, metric in CHOSEN.items():
        try:
            chosen = dict(select_greedy(table, baseline=Style(), metric=metric).levels)
        except Problem:
            chosen = {}
        cells = tuple(
            SheetCell(text=_pick(str(printed[config][column]), chosen.get(factor), bool(chosen)))
            for factor, column in FACTORS.items()
        )
        rows.append(SheetRow((config, printed[config]["prioritization"]), cells))
    title = f"Configurations chosen level by level ({rater})"
    return Sheet(
        f"configs {rater}", title, ("config", "chosen for"), tuple(FACTORS), rows, (WARNING,)
    )


def _pick(printed: str, here: object, is_known: bool) -> str:
    own = "base" if here is None else str(here)
    return f"paper {printed}" + (f", here {own}" if is_known else "")
