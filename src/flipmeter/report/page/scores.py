"""Findings -> a grid of scores: accuracy view by view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from flipmeter.report.estimate_tables import (
    KEYS,
    accuracy_title,
    intervals_of,
    score_titles,
    varying,
)
from flipmeter.report.findings import Findings
from flipmeter.report.page.markup import (
    MOST_ROWS,
    Cell,
    Grid,
    Record,
    RowGroup,
    capped,
    heads,
    number,
    rate,
)


def performance_grid(found: Findings, views: Sequence[str]) -> Grid:
    """Accuracy and the ordinal scores of every view, at the base."""
    estimates = found.estimates.filter(level="")
    keys = varying(estimates)
    beside = score_titles(estimates)
    rows = []
    for group in estimates.partition_by(list(KEYS), maintain_order=True):
        wanted = ["accuracy", *beside, "parse_failure"]
        scores = group.filter(pl.col("metric").is_in(wanted), policy="complete")
        for view in views:
            by_metric = {row["metric"]: row for row in scores.filter(view=view).to_dicts()}
            if by_metric:
                rows.append(_performance_row(view, keys, by_metric, [*beside]))
    if len(rows) > MOST_ROWS:
        rows.sort(key=_accuracy)
    listed, more = capped(rows, "flipmeter measure RUN")
    how = f"On readable answers; {intervals_of(found.mode)}; mode {found.mode}."
    named = [accuracy_title(estimates), *beside.values()]
    titles = ["view", *heads(keys), *named, "no class"]
    return Grid("Scores by view", titles, [RowGroup(listed)], [how, *more])


def _accuracy(row: Sequence[Cell]) -> float:
    """The sort key for cutting rows: the least accurate stay."""
    known = [float(cell.sort) for cell in row if cell.kind == "num" and cell.sort is not None]
    return known[0] if known else 1.0


def _performance_row(
    view: str, keys: Sequence[str], rows: Mapping[str, Record], beside: Sequence[str]
) -> list[Cell]:
    first = next(iter(rows.values()))
    fails = rows.get("parse_failure")
    return [
        Cell(view, view),
        *(Cell(str(first[key]), first[key]) for key in keys),
        rate(rows["accuracy"]) if "accuracy" in rows else Cell("no gold", None, "why"),
        *(number(rows[name]["value"] if name in rows else None) for name in beside),
        Cell(f"{fails['k']} of {fails['n']}", fails["k"], "num") if fails else Cell(),
    ]
