"""Findings -> which place is preferred, and how the ranking of systems changes with the order."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from flipmeter.metrics import title_of
from flipmeter.report.findings import Findings
from flipmeter.report.page.draw import Axis, axis_for, scale, span
from flipmeter.report.page.markup import MOST_ROWS, Cell, Grid, Record, RowGroup, number, rate

NO_PREFERENCE = 0.5
ORDERS = "as given, swapped, both orders"


def pairs_grid(found: Findings) -> Grid | None:
    """The preferences of judges, drawn against one half, with accuracy and ties by order."""
    rows = _at_base(found, "pairs").filter(pl.col("p").is_null())
    if rows.is_empty():
        return None
    axis = axis_for([0.0, 1.0], low=0.0)
    half = (NO_PREFERENCE,) * 3
    groups = [
        RowGroup(
            [
                [
                    Cell(title_of(row["metric"]), row["metric"]),
                    Cell(span(axis, _ends(row), _half(row, half), "inconclusive"))
                    if row["value"] is not None
                    else Cell(),
                    rate(row),
                    Cell(str(row["n"]), row["n"], "num"),
                ]
                for row in part.to_dicts()
            ],
            _where(part.row(0, named=True)),
        )
        for part in rows.partition_by("rater", "dataset", "seed", maintain_order=True)[:MOST_ROWS]
    ]
    notes = [
        "The line at 50 % marks a judge without a preference for a place. 95 % intervals over "
        "clusters; accuracy counts unreadable answers as wrong."
    ]
    heads = ["", scale(axis), "share [95 %]", "clusters"]
    return Grid("Does the judge prefer a place?", heads, groups, notes, "forest")


def options_grid(found: Findings) -> Grid | None:
    """Choices by place of the option, and accuracy by place of the right one."""
    slots = _at_base(found, "slots")
    if slots.is_empty():
        return None
    moved = slots.filter(metric="cramers_v").select("rater", "dataset", "seed", "view").unique()
    rows = slots.filter(pl.col("metric").str.contains(r"^(slot|recall):"))
    rows = rows.join(moved, on=moved.columns, how="semi", maintain_order="left")
    if rows.is_empty():
        return None
    axis = axis_for([0.0, 1.0], low=0.0)
    groups = [
        RowGroup(
            [
                [
                    Cell(title_of(row["metric"]), row["metric"]),
                    Cell(span(axis, _ends(row), None, "inconclusive"))
                    if row["value"] is not None
                    else Cell(),
                    rate(row),
                    Cell(str(row["n"]), row["n"], "num"),
                ]
                for row in part.to_dicts()
            ],
            f"{_where(part.row(0, named=True))} · {part['view'][0]}",
        )
        for part in rows.partition_by("rater", "dataset", "seed", "view", maintain_order=True)
    ]
    notes = [
        "Share of answers by the place of the chosen option, over all orders, and the accuracy by "
        "the place of the right one. 95 % intervals over clusters; unreadable answers count as "
        "wrong."
    ]
    heads = ["", scale(axis), "share [95 %]", "clusters"]
    title = "Which places of the options are chosen"
    return Grid(title, heads, groups[:MOST_ROWS], notes, "forest")


def systems_grid(found: Findings) -> Grid | None:
    """Win rates of systems in each order, drawn, with their strengths and ranks."""
    rows = _at_base(found, "systems")
    rates = rows.filter(pl.col("metric").str.starts_with("win_rate:"))
    if rates.is_empty():
        return None
    axis = axis_for([0.0, 1.0], low=0.0)
    groups = []
    for part in rows.partition_by("rater", "dataset", "seed", maintain_order=True)[:MOST_ROWS]:
        shown = [_system_row(part, row, axis) for row in _by_system(part)]
        groups.append(RowGroup(shown, _where(part.row(0, named=True)) + _effect(part)))
    notes = [
        f"Orders: {ORDERS}. A tie is half a win. Strengths are those of Bradley and Terry with "
        "Davidson's ties, in log-odds with mean 0, and for both orders with an order effect; 95 % "
        "intervals over clusters.",
        *dict.fromkeys(note for note in rows["note"].to_list() if note),
    ]
    heads = ["system", "order", scale(axis), "win rate [95 %]", "strength", "rank [95 %]"]
    title = "Does the ranking of systems change with the order?"
    return Grid(title, heads, groups, notes, "forest")


def _at_base(found: Findings, name: str) -> pl.DataFrame:
    table = found.aspects.get(name)
    if table is None:
        return pl.DataFrame(schema={"p": pl.Float64, "metric": pl.String, "note": pl.String})
    return table.filter(level="")


def _by_system(part: pl.DataFrame) -> Sequence[Record]:
    rates = part.filter(pl.col("metric").str.starts_with("win_rate:"))
    return rates.sort("metric", maintain_order=True).to_dicts()


def _system_row(part: pl.DataFrame, row: Record, axis: Axis) -> Sequence[Cell]:
    name = str(row["metric"]).partition(":")[2]
    own = {
        r["metric"].partition(":")[0]: r
        for r in part.filter(view=row["view"]).to_dicts()
        if r["metric"].partition(":")[2] == name
    }
    drawn = span(axis, _ends(row), None, "inconclusive")
    rank = own["rank"]
    ends = "" if rank["low"] is None else f" [{rank['low']:.0f}, {rank['high']:.0f}]"
    place = "" if rank["value"] is None else f"{rank['value']:g}{ends}"
    return [
        Cell(name, name),
        Cell(str(row["view"]), str(row["view"])),
        Cell(drawn),
        rate(row),
        number(own["strength"]["value"], "+z.2f"),
        Cell(place, rank["value"], "num"),
    ]


def _effect(part: pl.DataFrame) -> str:
    rows = part.filter(metric="order_effect").to_dicts()
    if not rows or rows[0]["value"] is None:
        return ""
    row = rows[0]
    ends = "" if row["low"] is None else f" [{row['low']:+z.2f}, {row['high']:+z.2f}]"
    return f" · order effect {row['value']:+z.2f}{ends}"


def _ends(row: Record) -> tuple[float, float, float]:
    value = float(row["value"])
    low, high = (value if row[end] is None else float(row[end]) for end in ("low", "high"))
    return value, low, high


def _half(row: Record, half: tuple[float, float, float]) -> tuple[float, float, float] | None:
    return half if row["metric"] == "first_share" else None


def _where(row: Record) -> str:
    return f"{row['rater']} · {row['dataset']} · seed {row['seed']}"
