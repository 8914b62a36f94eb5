"""The paper's tables of metrics, with ours beside them: factors, pipelines, models, transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from flipmeter.measure import select_greedy
from flipmeter.measure.effects.greedy import WARNING
from flipmeter.paper.evidence import PhaseRuns, row_of
from flipmeter.paper.published import METRICS, published, published_cell
from flipmeter.paper.rows import LEVELS, PIPELINES, REFERENCE
from flipmeter.paper.sheets.sheet import Sheet, SheetCell, SheetRow
from flipmeter.types import Mode, Problem, Style

HEADS = ("Acc.", "F1", "ρ", "MAE", "P1", "P2a", "P2b", "P3a", "P3b")
RIGHT = {"mae": ""}
"""The metric names of recommended mode; its MAE, divided by M - 1, is a different number."""
RULE = (
    "paper: as printed, mean ± SD over datasets; here: the same rule on this run; diff.: here "
    "minus paper; 95 %: on items in common, words read by name, with an interval over items"
)
JOINT = ("model", "config")


@dataclass(frozen=True)
class Metrics:
    """A printed table with a row for each metric, and the same numbers of the runs, by mode."""

    printed: str
    here: Callable[[Mode], pl.DataFrame]
    form: str = "+.2f"

    def row(self, names: tuple[str, str], **which: str) -> SheetRow:
        """The cells under these names in the paper, and the same numbers of the runs."""
        keys = published(self.printed).columns[:2]
        cells = (
            SheetCell(
                published_cell(self.printed, metric, **dict(zip(keys, names, strict=True))),
                row_of(self.here("paper"), metric=metric, **which),
                row_of(self.here("recommended"), metric=RIGHT.get(metric, metric), **which),
                form=self.form,
            )
            for metric in METRICS.values()
        )
        return SheetRow(names, tuple(cells))

    def levels(
        self, rater: str, known: Mapping[tuple[str, str], str], models: Iterable[str] = ()
    ) -> Iterator[SheetRow]:
        """Levels that the paper has, models, and levels that it has no row for."""
        for names, level in known.items():
            factor, _, value = level.partition("=")
            yield self.row(names, rater=rater, factor=factor, level=value)
        for model in models:
            yield self.row(("Model", model), factor="model", level=model, against=rater)
        own = self.here("paper").filter(pl.col("factor") != "model", rater=rater)
        for factor, level in _pairs(own, "factor", "level"):
            if f"{factor}={level}" not in known.values():
                names = f"not in the paper: {factor}", level
                yield self.row(names, rater=rater, factor=factor, level=level)

    def joint(self) -> list[SheetRow]:
        """Every model under every config: those of the paper, and then the others of the runs."""
        own = _pairs(self.here("paper"), "rater", "level")
        pairs = [*_pairs(published(self.printed), *JOINT), *own]
        return [self.row(pair, rater=pair[0], level=pair[1]) for pair in dict.fromkeys(pairs)]


def _pairs(table: pl.DataFrame, first: str, second: str) -> list[tuple[str, str]]:
    return table.select(first, second).unique(maintain_order=True).rows()


def factors_sheet(evidence: PhaseRuns, rater: str) -> Sheet:
    """Phase 1: what every level changes for a rater, and what other models differ by."""
    metrics = Metrics("phase1_residuals", lambda mode: evidence.residuals("phase1", mode))
    printed = published("phase1_residuals").filter(factor="Model")["level"]
    ours = metrics.here("paper").filter(factor="model", against=rater)["level"]
    rows = list(metrics.levels(rater, LEVELS, dict.fromkeys([*printed, *ours])))
    title = f"Phase 1: change from the base, in points ({rater})"
    return Sheet(f"phase1 {rater}", title, ("factor", "level"), HEADS, rows, (RULE,))


def pipelines_sheet(evidence: PhaseRuns, rater: str) -> Sheet:
    """Phase 2a: paradigms, aggregators and debiasers, and the forms that the paper has not."""
    metrics = Metrics("phase2_pipeline", lambda mode: evidence.residuals("phase2a", mode))
    rows = list(metrics.levels(rater, PIPELINES))
    title = f"Phase 2a: change from the pointwise baseline, in points ({rater})"
    return Sheet(f"phase2 pipelines {rater}", title, ("family", "method"), HEADS, rows, (RULE,))


def joint_sheet(evidence: PhaseRuns) -> Sheet:
    """Phase 2b: absolute numbers of every model under every config."""
    own = pl.col("factor").is_in(["", "config"])
    here = Metrics(
        "phase2_joint_absolute",
        lambda mode: evidence.absolutes("phase2b", mode).filter(own),
        form=".3f",
    )
    note = f"shares, and MAE in ranks; {RULE}"
    title = "Phase 2b: absolute numbers under each configuration"
    return Sheet("phase2 joint", title, JOINT, HEADS, here.joint(), (note,))


def transfer_sheet(evidence: PhaseRuns) -> Sheet:
    """Phase 2b: every model minus the reference under the same configuration."""
    first = evidence.raters[0] if evidence.raters else ""
    here = Metrics("phase2_transfer_residuals", lambda mode: evidence.transfer(first, mode))
    notes = (f"the paper subtracts {REFERENCE}, this run {first or 'nothing'}; {RULE}",)
    title = "Phase 2b: models minus the reference, in points"
    return Sheet("phase2 transfer", title, JOINT, HEADS, here.joint(), notes)


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
        texts = (
            f"paper {printed[config][column]}"
            + (f", here {chosen.get(factor, 'base')}" if chosen else "")
            for factor, column in FACTORS.items()
        )
        cells = tuple(SheetCell(text=text) for text in texts)
        rows.append(SheetRow((config, printed[config]["prioritization"]), cells))
    title = f"Configurations chosen level by level ({rater})"
    keys = ("config", "chosen for")
    return Sheet(f"configs {rater}", title, keys, tuple(FACTORS), rows, (WARNING,))
