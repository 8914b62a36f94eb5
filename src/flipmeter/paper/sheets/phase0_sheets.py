"""The paper's first table and its table of hidden tokens, with ours beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from flipmeter.paper.evidence import Phase, PhaseRuns, Record
from flipmeter.paper.published import PublishedCell, published
from flipmeter.paper.sheets.sheet import Sheet, SheetCell, SheetRow
from flipmeter.report.format import p_value

RATES: Mapping[str, Phase] = {
    **dict.fromkeys(("P1", "P2", "P3"), "phase0a"),
    **dict.fromkeys(("noise", "total"), "phase0b"),
}
"""The rates of the two panels, and the phase that measures each."""
METRICS = {"total": "P1"}
HEADS = ("P1", "P2", "P3", "noise", "total", "McNemar p", "Sig.", "n", "faults")
NOTE = (
    "flip rates of complete items with Wilson 95 % intervals; P1, P2 and P3 greedy; noise, total "
    "and the test at temperature 0.7; n is the smallest of a row's rates, faults the largest"
)


def phase0_sheet(evidence: PhaseRuns) -> Sheet:
    """Both panels: the paper's models, and every rater of the runs."""
    rows = list(_rows(evidence))
    return Sheet("phase0", "Phase 0: flip rates by model", ("model",), HEADS, rows, (NOTE,))


def _rows(evidence: PhaseRuns) -> Iterator[SheetRow]:
    printed = {row["model"]: row for row in published("phase0").to_dicts()}
    here = [name for name in _phase0_raters(evidence) if name not in printed]
    for model in (*printed, *here):
        paper, found = printed.get(model), _estimates(evidence, model)
        if paper is None and not found:
            continue
        cells = [_rate(paper, found.get(name), name) for name in RATES]
        yield SheetRow((model,), (*cells, *_test(paper, found), *_counts(found)))


def _phase0_raters(evidence: PhaseRuns) -> list[str]:
    runs = (evidence.runs[phase] for phase in ("phase0a", "phase0b") if phase in evidence.runs)
    names = (run.decisions["rater"].unique(maintain_order=True).to_list() for run in runs)
    return list(dict.fromkeys(name for found in names for name in found))


def _estimates(evidence: PhaseRuns, model: str) -> dict[str, Record]:
    """The estimates of a model at the base by the name of their column, with the test as `p`."""
    found = {}
    for name, phase in RATES.items():
        row = _estimate(evidence, phase, model, METRICS.get(name, name))
        if row is not None and row["value"] is not None:
            found[name] = row
    tested = _estimate(evidence, "phase0b", model, "mcnemar_p", view="P1")
    return found if tested is None else {**found, "p": tested}


def _estimate(
    evidence: PhaseRuns, phase: Phase, model: str, metric: str, **which: str
) -> Record | None:
    run = evidence.runs.get(phase)
    if run is None:
        return None
    rows = run.estimates.filter(rater=model, level="", metric=metric, policy="complete", **which)
    return None if rows.is_empty() else rows.row(0, named=True)


def _rate(paper: Record | None, here: Record | None, name: str) -> SheetCell:
    cell = None
    if paper is not None:
        text = f"{paper[name]} [{paper[f'{name}_lo']}, {paper[f'{name}_hi']}]"
        cell = PublishedCell(float(paper[name]), None, text)
    return SheetCell(cell, here, here, form=".3f")


def _test(paper: Record | None, found: dict[str, Record]) -> tuple[SheetCell, SheetCell]:
    p = found.get("p")
    told = [f"paper {paper['p']}"] if paper else []
    told += [f"here {p_value(p['p'])}"] if p is not None and p["p"] is not None else []
    signs = [f"paper {'yes' if paper['sig'] == '1' else 'no'}"] if paper else []
    return SheetCell(text=", ".join(told)), SheetCell(text=", ".join(signs))


def _counts(found: dict[str, Record]) -> tuple[SheetCell, SheetCell]:
    rates = [row for name, row in found.items() if name in RATES]
    if not rates:
        return SheetCell(), SheetCell()
    n, faults = min(row["n"] for row in rates), max(row["failed"] for row in rates)
    return SheetCell(text=f"{n:,}"), SheetCell(text=f"{faults:,}")


def tokens_sheet(evidence: PhaseRuns) -> Sheet:
    """Output and hidden tokens with the noise of each model."""
    printed = {row["model"]: row for row in published("hidden_tokens").to_dicts()}
    run = evidence.runs.get("phase0b")
    raters = [] if run is None else run.decisions["rater"].unique(maintain_order=True).to_list()
    rows = [
        SheetRow((model,), tuple(_token_cells(evidence, printed.get(model), model)))
        for model in (*printed, *(name for name in raters if name not in printed))
    ]
    note = "hidden tokens: output tokens minus one in the paper, here as reported where they are"
    heads = ("output tokens", "hidden tokens", "noise")
    return Sheet("tokens", "Hidden tokens and noise", ("model",), heads, rows, (note,))


def _token_cells(evidence: PhaseRuns, paper: Record | None, model: str) -> Iterator[SheetCell]:
    run = evidence.runs.get("phase0b")
    for name, column, form in TOKENS:
        policy = "complete" if name == "noise" else None
        here = None
        if run is not None:
            rows = run.estimates.filter(
                pl.col("value").is_not_null(),
                pl.col("policy").eq_missing(policy),
                rater=model,
                level="",
                metric=name,
            )
            here = None if rows.is_empty() else rows.row(0, named=True)
        cell = None if paper is None else PublishedCell(float(paper[column]), None, paper[column])
        yield SheetCell(cell, here, here if name == "noise" else None, form=form)


TOKENS = (
    ("output_tokens", "output_tokens", ".1f"),
    ("hidden_tokens", "hidden_tokens", ".1f"),
    ("noise", "noise_pfr", ".3f"),
)
"""The metrics of the table, the paper's columns, and how they are printed."""
