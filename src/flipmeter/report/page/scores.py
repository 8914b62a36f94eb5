"""Findings -> a table of scores: accuracy view by view."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from flipmeter.report.estimate_tables import (
    KEYS,
    accuracy_title,
    intervals_of,
    score_titles,
    varying,
)
from flipmeter.report.findings import Findings
from flipmeter.report.format import Record
from flipmeter.report.page.markup import MOST_ROWS, keyed, number, page_table, rate, texts
from flipmeter.report.table import Cell, Column, Table


def performance_grid(found: Findings, views: Sequence[str]) -> Table:
    """Accuracy and the ordinal scores of every view, at the base."""
    estimates = found.estimates.filter(level="")
    titles = score_titles(estimates)
    wanted = pl.col("metric").is_in(["accuracy", *titles, "parse_failure"])
    scores = estimates.filter(wanted, policy="complete")
    rows = []
    for group in scores.partition_by(list(KEYS), maintain_order=True):
        keys = {key: group[key][0] for key in KEYS}
        for view in views:
            by_metric = {row["metric"]: row for row in group.filter(view=view).to_dicts()}
            rows += [{**keys, "view": view, "scores": by_metric}] if by_metric else []
    if len(rows) > MOST_ROWS:  # the least accurate stay
        rows.sort(key=lambda row: float(row["scores"].get("accuracy", {}).get("value") or 1.0))
    columns = [
        texts("view"),
        *keyed(varying(estimates)),
        Column(accuracy_title(estimates), _accuracy),
        *(Column(title, partial(_score, name)) for name, title in titles.items()),
        Column("no class", _failures),
    ]
    how = f"On readable answers; {intervals_of(found.mode)}; mode {found.mode}."
    return page_table("Scores by view", columns, rows, [how], "flipmeter measure RUN")


def _accuracy(row: Record) -> Cell:
    own = row["scores"].get("accuracy")
    return Cell("no gold", None, "why") if own is None else rate(own)


def _score(name: str, row: Record) -> Cell:
    return number(row["scores"].get(name, {}).get("value"))


def _failures(row: Record) -> Cell:
    fails = row["scores"].get("parse_failure")
    return Cell(f"{fails['k']} of {fails['n']}", fails["k"], "num") if fails else Cell()
