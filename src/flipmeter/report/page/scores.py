"""Findings -> grids of scores: accuracy view by view, and against stability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from flipmeter.report.estimate_tables import KEYS, SCORES, accuracy_title, intervals_of, varying
from flipmeter.report.findings import Findings
from flipmeter.report.page.draw import Point, front, is_best, scatter
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
from flipmeter.report.page.markup import word as word_cell

MOST_PANELS = 8
MEAN = pl.col("value").mean().round(9)
"""Equal means of other seeds may differ in the last bit, and would beat each other."""


@dataclass(frozen=True)
class Scatter:
    """A scatter plot, and its points as a table."""

    title: str
    picture: Markup
    grid: Grid


def performance_grid(found: Findings, views: Sequence[str]) -> Grid:
    """Accuracy and the ordinal scores of every view, at the base."""
    estimates = found.estimates.filter(level="")
    keys = varying(estimates)
    there = {*estimates["metric"]}
    shown = ["accuracy", *(name for name in SCORES if name in there)]
    rows = []
    for group in estimates.partition_by(list(KEYS), maintain_order=True):
        wanted = ["accuracy", *SCORES, "parse_failure"]
        scores = group.filter(pl.col("metric").is_in(wanted), policy="complete")
        for view in views:
            by_metric = {row["metric"]: row for row in scores.filter(view=view).to_dicts()}
            if by_metric:
                rows.append(_performance_row(view, keys, by_metric, shown))
    if len(rows) > MOST_ROWS:
        rows.sort(key=_accuracy)
    listed, more = capped(rows, "flipmeter measure RUN")
    how = f"On answers that were read; {intervals_of(found.mode)}; mode {found.mode}."
    named = [accuracy_title(estimates), *(SCORES[name] for name in shown[1:])]
    titles = ["view", *heads(keys), *named, "no class"]
    return Grid("How good the answers are, view by view", titles, [RowGroup(listed)], [how, *more])


def _accuracy(row: Sequence[Cell]) -> float:
    """What rows are cut by: the least accurate stay."""
    known = [float(cell.sort) for cell in row if cell.kind == "num" and cell.sort is not None]
    return known[0] if known else 1.0


def _performance_row(
    view: str, keys: Sequence[str], rows: Mapping[str, Record], shown: Sequence[str]
) -> list[Cell]:
    first = next(iter(rows.values()))
    fails = rows.get("parse_failure")
    return [
        Cell(view, view),
        *(Cell(str(first[key]), first[key]) for key in keys),
        rate(rows["accuracy"]) if "accuracy" in rows else Cell("no gold", None, "why"),
        *(number(rows[name]["value"] if name in rows else None) for name in shown[1:]),
        Cell(f"{fails['k']} of {fails['n']}", fails["k"], "num") if fails else Cell(),
    ]


def panels(found: Findings) -> tuple[list[Scatter], list[str]]:
    """Accuracy against flips, a panel for each dataset with something to compare."""
    contrast = next((c for c in found.contrasts if _has(found, c.name)), None)
    if contrast is None:
        return [], ["No contrast was measured, so there is nothing to hold accuracy against."]
    by_dataset = _points(found, contrast.name)
    if not by_dataset:
        return [], ["No item has a gold class, so there is no accuracy."]
    drawn = {dataset: points for dataset, points in by_dataset.items() if len(points) > 1}
    if not drawn:
        return [], ["One rater at one level: there is nothing to compare it with."]
    several = "" if contrast.is_pair else " (pairs of orders that differ)"
    notes = [
        f"Flips are those of the verdict on {contrast.name}, {contrast.about}{several}: readable "
        "pairs, an item with its seeds once. Accuracy is that of the base view, mean over seeds; "
        f"what cannot be read is wrong; mode {found.mode}. Up and to the left is better; the "
        "Pareto front is full and joined by steps."
    ]
    if len(drawn) > MOST_PANELS:
        notes.append(f"{len(drawn) - MOST_PANELS} more datasets are left out.")
    shown = list(drawn.items())[:MOST_PANELS]
    return [_panel(dataset, points, contrast.name) for dataset, points in shown], notes


def _has(found: Findings, contrast: str) -> bool:
    return found.verdicts.filter(contrast=contrast)["value"].count() > 0


def _points(found: Findings, contrast: str) -> dict[str, list[Point]]:
    whose = ["rater", "dataset", "level"]
    flips = found.verdicts.filter(contrast=contrast).select(
        *whose, "word", flips=pl.col("value").round(9)
    )
    strict = found.estimates.filter(metric="accuracy", view="base", policy="strict")
    right = strict.group_by(whose).agg(MEAN.alias("accuracy"))
    both = flips.join(right, on=whose, maintain_order="left")
    several = found.tally["rater"].n_unique() > 1
    found_points: dict[str, list[Point]] = {}
    for rater, dataset, level, word, flipping, accuracy in both.drop_nulls().iter_rows():
        told = [rater] if several else []
        title = " · ".join([*told, *([level] if level else [])]) or "base"
        found_points.setdefault(dataset, []).append(
            Point(title, flipping, accuracy, not level, word)
        )
    return found_points


def _panel(dataset: str, points: Sequence[Point], contrast: str) -> Scatter:
    best = front(points)
    named = ", ".join(point.title for point in best[:5])
    title = (
        f"{dataset}: accuracy against flips of {len(points)} configurations. Pareto front: {named}"
    )
    rows = [
        [
            Cell(point.title, point.title),
            Cell(f"{100 * point.flips:.1f} %", point.flips, "num"),
            Cell(f"{100 * point.accuracy:.1f} %", point.accuracy, "num"),
            word_cell(point.word),
            Cell("yes" if is_best(point, best) else ""),
        ]
        for point in points
    ]
    titles = ["configuration", f"flips ({contrast})", "accuracy", "verdict", "Pareto front"]
    grid = Grid(f"{dataset} as a table", titles, [RowGroup(rows)], is_detail=True)
    return Scatter(dataset, scatter(points, title), grid)
