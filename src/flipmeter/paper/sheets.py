"""Tables of the paper in their own form: what it prints, what was measured, the difference."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
from rich.console import RenderableType
from rich.text import Text

from flipmeter.errors import Problem
from flipmeter.files import make_folder, write_output
from flipmeter.paper.evidence import Phase, PhaseRuns, Record, row_of
from flipmeter.paper.published import (
    LEVELS,
    METRICS,
    PIPELINES,
    REFERENCE,
    PublishedCell,
    published,
    published_cell,
)
from flipmeter.printed import WIDTH, Shown, plain_console
from flipmeter.show.format import p_value
from flipmeter.show.table import (
    LATEX_HEAD,
    Cell,
    Column,
    Group,
    Table,
    escape_markdown,
    latex,
    markdown,
    safe_csv,
)
from flipmeter.stats.held_out import WARNING, select_greedy
from flipmeter.types import Mode, Style

NOTHING = "–"


@dataclass(frozen=True)
class SheetCell:
    """One number: as printed, as measured by the paper's rule, and by ours with its interval.

    `here` is a row of residuals or of absolute numbers in paper mode, `right` the same in
    recommended mode. A cell with a `text` is that text.
    """

    paper: PublishedCell | None = None
    here: Record | None = None
    right: Record | None = None
    form: str = "+.2f"
    text: str = ""

    @property
    def measured(self) -> float | None:
        return None if self.here is None else self.here["value"]

    @property
    def sd(self) -> float | None:
        """The spread over datasets; one dataset has none."""
        if self.here is None or self.here.get("n_datasets", 2) < 2:
            return None
        return self.here.get("dataset_sd")

    @property
    def difference(self) -> float | None:
        if self.paper is None or self.measured is None:
            return None
        return self.measured - self.paper.value

    def lines(self) -> list[str]:
        """The cell for people, line by line: paper, here, difference, right rule with interval."""
        if self.text:
            return [self.text]
        unsigned = self.form.replace("+", "")
        shown = {"paper": self.paper.text if self.paper else ""}
        if self.measured is not None:
            spread = "" if self.sd is None else f" ± {self.sd:{unsigned}}"
            shown["here"] = f"{self.measured + 0.0:{self.form}}{spread}"
        if self.difference is not None:
            shown["diff."] = f"{self.difference:+{unsigned}}"
        if self.right is not None and None not in (self.right["value"], self.right["low"]):
            ends = (self.right[end] + 0.0 for end in ("value", "low", "high"))
            value, low, high = (f"{end:{self.form}}" for end in ends)
            shown["95 %"] = f"{value} [{low}, {high}]"
        return [f"{name} {text}" for name, text in shown.items() if text]

    def record(self) -> dict[str, object]:
        """The numbers for a machine."""
        right = self.right or {}
        about = self.here or {}
        return {
            "paper": self.paper.value if self.paper else None,
            "paper_sd": self.paper.sd if self.paper else None,
            "here": self.measured,
            "here_sd": self.sd,
            "difference": self.difference,
            "value": right.get("value"),
            "low": right.get("low"),
            "high": right.get("high"),
            "n": about.get("n"),
            "failed": about.get("failed"),
            "note": self.text or str(about.get("note") or ""),
        }


@dataclass(frozen=True)
class SheetRow:
    """The names that a row begins with, and its cells."""

    names: tuple[str, ...]
    cells: tuple[SheetCell, ...]


@dataclass(frozen=True)
class Sheet:
    """A table: its heads, its rows, and what must be known of them."""

    name: str
    title: str
    keys: tuple[str, ...]
    heads: tuple[str, ...]
    rows: Sequence[SheetRow]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def file_name(self) -> str:
        """The name of its files, whatever the names of models hold."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.casefold()).strip("-")

    def frame(self) -> pl.DataFrame:
        """All numbers, one row for each."""
        return pl.DataFrame(list(self._records()), infer_schema_length=None)

    def _records(self) -> Iterator[dict[str, object]]:
        for row in self.rows:
            for head, cell in zip(self.heads, row.cells, strict=True):
                names = dict(zip(self.keys, row.names, strict=True))
                yield {**names, "number": head, **cell.record()}


RATES: Mapping[str, Phase] = {
    **dict.fromkeys(("P1", "P2", "P3"), "phase0a"),
    **dict.fromkeys(("noise", "total"), "phase0b"),
}
"""The rates of the two panels, and the phase that measures each."""
PHASE0_METRICS = {"total": "P1"}
PHASE0_HEADS = ("P1", "P2", "P3", "noise", "total", "McNemar p", "Sig.", "n", "faults")
NOTE = (
    "flip rates of complete items with Wilson 95 % intervals; P1, P2 and P3 greedy; noise, total "
    "and the test at temperature 0.7; n is the smallest of a row's rates, faults the largest"
)
TOKENS = {"output_tokens": "output_tokens", "hidden_tokens": "hidden_tokens", "noise": "noise_pfr"}
"""The metrics of the table of tokens, and the paper's columns."""


def phase0_sheet(evidence: PhaseRuns) -> Sheet:
    """Both panels: the paper's models, and every rater of the runs."""
    rows = []
    for model, paper in _printed_and_run_models(evidence, "phase0", ("phase0a", "phase0b")):
        found = {
            name: row
            for name, phase in RATES.items()
            if (row := _base_estimate(evidence, phase, model, PHASE0_METRICS.get(name, name)))
            is not None
        }
        tested = _base_estimate(evidence, "phase0b", model, "mcnemar_p", view="P1")
        if paper is None and not found and tested is None:
            continue
        rates = [_rate_sheet_cell(paper, found.get(name), name) for name in RATES]
        texts = (*_test_cells(paper, tested), *_count_cells(list(found.values())))
        cells = (*rates, *(SheetCell(text=text) for text in texts))
        rows.append(SheetRow((model,), cells))
    return Sheet("phase0", "Phase 0: flip rates by model", ("model",), PHASE0_HEADS, rows, (NOTE,))


def tokens_sheet(evidence: PhaseRuns) -> Sheet:
    """Output and hidden tokens with the noise of each model."""
    rows = []
    for model, paper in _printed_and_run_models(evidence, "hidden_tokens", ("phase0b",)):
        cells = []
        for name, column in TOKENS.items():
            is_rate = name == "noise"
            policy = "complete" if is_rate else None
            here = _base_estimate(evidence, "phase0b", model, name, policy)
            cell = None
            if paper is not None:
                cell = PublishedCell(float(paper[column]), None, paper[column])
            form = ".3f" if is_rate else ".1f"
            cells.append(SheetCell(cell, here, here if is_rate else None, form=form))
        rows.append(SheetRow((model,), tuple(cells)))
    note = "hidden tokens: output tokens minus one in the paper, here as reported where they are"
    heads = ("output tokens", "hidden tokens", "noise")
    return Sheet("tokens", "Hidden tokens and noise", ("model",), heads, rows, (note,))


def _printed_and_run_models(
    evidence: PhaseRuns, table: str, phases: tuple[Phase, ...]
) -> Iterator[tuple[str, Record | None]]:
    """The models of a printed table with their rows, and then those of some runs."""
    printed = {row["model"]: row for row in published(table).to_dicts()}
    runs = (evidence.runs[phase] for phase in phases if phase in evidence.runs)
    here = (name for run in runs for name in run.decisions["rater"].unique(maintain_order=True))
    for model in dict.fromkeys([*printed, *here]):
        yield model, printed.get(model)


def _base_estimate(
    evidence: PhaseRuns,
    phase: Phase,
    model: str,
    metric: str,
    policy: str | None = "complete",
    **which: str,
) -> Record | None:
    """The estimate of a model at the base, None where there is none or it has no value."""
    if phase not in evidence.runs:
        return None
    rows = evidence.runs[phase].estimates.filter(
        pl.col("value").is_not_null(),
        pl.col("policy").eq_missing(policy),
        rater=model,
        level="",
        metric=metric,
        **which,
    )
    return None if rows.is_empty() else rows.row(0, named=True)


def _rate_sheet_cell(paper: Record | None, here: Record | None, name: str) -> SheetCell:
    cell = None
    if paper is not None:
        text = f"{paper[name]} [{paper[f'{name}_lo']}, {paper[f'{name}_hi']}]"
        cell = PublishedCell(float(paper[name]), None, text)
    return SheetCell(cell, here, here, form=".3f")


def _test_cells(paper: Record | None, tested: Record | None) -> tuple[str, str]:
    told = [f"paper {paper['p']}"] if paper else []
    told += [f"here {p_value(tested['p'])}"] if tested and tested["p"] is not None else []
    return ", ".join(told), f"paper {'yes' if paper['sig'] == '1' else 'no'}" if paper else ""


def _count_cells(rates: list[Record]) -> tuple[str, str]:
    if not rates:
        return "", ""
    return f"{min(row['n'] for row in rates):,}", f"{max(row['failed'] for row in rates):,}"


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
        for factor, level in _distinct_pairs(own, "factor", "level"):
            if f"{factor}={level}" not in known.values():
                names = f"not in the paper: {factor}", level
                yield self.row(names, rater=rater, factor=factor, level=level)

    def joint(self) -> list[SheetRow]:
        """Every model under every config: those of the paper, and then the others of the runs."""
        own = _distinct_pairs(self.here("paper"), "rater", "level")
        pairs = [*_distinct_pairs(published(self.printed), *JOINT), *own]
        return [self.row(pair, rater=pair[0], level=pair[1]) for pair in dict.fromkeys(pairs)]


def _distinct_pairs(table: pl.DataFrame, first: str, second: str) -> list[tuple[str, str]]:
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


def sheet_tables(sheet: Sheet) -> Iterator[RenderableType]:
    """The sheet for a terminal, with its notes."""
    table = sheet_table(sheet)
    yield replace(table, groups=[Group([row]) for row in table.rows])
    yield from (Text(note) for note in sheet.notes)


def sheet_table(sheet: Sheet) -> Table:
    """The sheet as a table; lines of a cell stand above each other."""
    columns: list[Column | str] = [*(Column(key, is_name=True) for key in sheet.keys), *sheet.heads]
    rows = [
        [
            *(Cell(name) for name in row.names),
            *(Cell("\n".join(cell.lines()) or NOTHING, cell.measured, "num") for cell in row.cells),
        ]
        for row in sheet.rows
    ]
    return Table(sheet.title, columns, [Group(rows)], sheet.notes)


def sheet_text(sheet: Sheet) -> str:
    """The sheet as plain text."""
    console = plain_console(width=WIDTH, no_color=True)
    with console.capture() as captured:
        for thing in sheet_tables(sheet):
            console.print(Shown(thing))
    return captured.get()


def sheet_markdown(sheet: Sheet) -> str:
    """The sheet in Markdown, lines of a cell above each other."""
    return f"### {escape_markdown(sheet.title)}\n\n{markdown(sheet_table(sheet), '<br>')}"


def sheet_latex(sheet: Sheet) -> str:
    """The sheet in LaTeX with booktabs, a block for each first name."""
    title = f"% {' '.join(sheet.title.split())}"
    return f"{LATEX_HEAD}{title}\n{latex(sheet_table(sheet))}\n"


WRITERS: dict[str, Callable[[Sheet], str]] = {
    ".txt": sheet_text,
    ".md": sheet_markdown,
    ".tex": sheet_latex,
    ".csv": lambda sheet: safe_csv(sheet.frame()),
}


def write_sheets(sheets: Sequence[Sheet], folder: Path) -> list[Path]:
    """Write every sheet in every form."""
    make_folder(folder)
    paths = []
    for sheet in sheets:
        for ending, write in WRITERS.items():
            path = folder / f"{sheet.file_name}{ending}"
            write_output(path, write(sheet))
            paths.append(path)
    return paths


__all__ = ["Sheet", "SheetCell", "SheetRow", "all_sheets"]


def all_sheets(evidence: PhaseRuns) -> Iterator[Sheet]:
    """The paper's tables in its order; those about factors once for each rater."""
    yield phase0_sheet(evidence)
    yield tokens_sheet(evidence)
    for rater in evidence.raters:
        yield factors_sheet(evidence, rater)
        yield configs_sheet(evidence, rater)
        yield pipelines_sheet(evidence, rater)
    yield joint_sheet(evidence)
    yield transfer_sheet(evidence)
