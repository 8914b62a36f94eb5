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
TOKENS = {"output_tokens": "output_tokens", "hidden_tokens": "hidden_tokens", "noise": "noise_pfr"}
"""The metrics of the table of tokens, and the paper's columns."""


def phase0_sheet(evidence: PhaseRuns) -> Sheet:
    """Both panels: the paper's models, and every rater of the runs."""
    rows = []
    for model, paper in _models(evidence, "phase0", ("phase0a", "phase0b")):
        found = {
            name: row
            for name, phase in RATES.items()
            if (row := _estimate(evidence, phase, model, METRICS.get(name, name))) is not None
        }
        tested = _estimate(evidence, "phase0b", model, "mcnemar_p", view="P1")
        if paper is None and not found and tested is None:
            continue
        rates = [_rate(paper, found.get(name), name) for name in RATES]
        texts = (*_test(paper, tested), *_counts(list(found.values())))
        cells = (*rates, *(SheetCell(text=text) for text in texts))
        rows.append(SheetRow((model,), cells))
    return Sheet("phase0", "Phase 0: flip rates by model", ("model",), HEADS, rows, (NOTE,))


def tokens_sheet(evidence: PhaseRuns) -> Sheet:
    """Output and hidden tokens with the noise of each model."""
    rows = []
    for model, paper in _models(evidence, "hidden_tokens", ("phase0b",)):
        cells = []
        for name, column in TOKENS.items():
            is_rate = name == "noise"
            policy = "complete" if is_rate else None
            here = _estimate(evidence, "phase0b", model, name, policy)
            cell = None
            if paper is not None:
                cell = PublishedCell(float(paper[column]), None, paper[column])
            form = ".3f" if is_rate else ".1f"
            cells.append(SheetCell(cell, here, here if is_rate else None, form=form))
        rows.append(SheetRow((model,), tuple(cells)))
    note = "hidden tokens: output tokens minus one in the paper, here as reported where they are"
    heads = ("output tokens", "hidden tokens", "noise")
    return Sheet("tokens", "Hidden tokens and noise", ("model",), heads, rows, (note,))


def _models(
    evidence: PhaseRuns, table: str, phases: tuple[Phase, ...]
) -> Iterator[tuple[str, Record | None]]:
    """The models of a printed table with their rows, and then those of some runs."""
    printed = {row["model"]: row for row in published(table).to_dicts()}
    runs = (evidence.runs[phase] for phase in phases if phase in evidence.runs)
    here = (name for run in runs for name in run.decisions["rater"].unique(maintain_order=True))
    for model in dict.fromkeys([*printed, *here]):
        yield model, printed.get(model)


def _estimate(
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


def _rate(paper: Record | None, here: Record | None, name: str) -> SheetCell:
    cell = None
    if paper is not None:
        text = f"{paper[name]} [{paper[f'{name}_lo']}, {paper[f'{name}_hi']}]"
        cell = PublishedCell(float(paper[name]), None, text)
    return SheetCell(cell, here, here, form=".3f")


def _test(paper: Record | None, tested: Record | None) -> tuple[str, str]:
    told = [f"paper {paper['p']}"] if paper else []
    told += [f"here {p_value(tested['p'])}"] if tested and tested["p"] is not None else []
    return ", ".join(told), f"paper {'yes' if paper['sig'] == '1' else 'no'}" if paper else ""


def _counts(rates: list[Record]) -> tuple[str, str]:
    if not rates:
        return "", ""
    return f"{min(row['n'] for row in rates):,}", f"{max(row['failed'] for row in rates):,}"
