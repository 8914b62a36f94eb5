"""Findings -> which place is preferred, and how the ranking of systems changes with the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from flipmeter.metrics import title_of
from flipmeter.report.findings import Findings
from flipmeter.report.format import Record
from flipmeter.report.page.draw import Axis, drawn
from flipmeter.report.page.markup import MOST_ROWS, counts, groups_under, number, rate, texts
from flipmeter.report.table import Cell, Column, Table

HALF = (0.5, 0.5, 0.5)
"""Where a judge without a preference lies."""
WHOSE = ("rater", "dataset", "seed")
SHARES = Axis(0.0, 1.0)


def pairs_grid(found: Findings) -> Table | None:
    """The preferences of judges, drawn against one half, with accuracy and ties by order."""
    return _shares(
        "Does the judge prefer a place?",
        _at_base(found, "pairs").filter(pl.col("p").is_null()),
        WHOSE,
        "The line at 50 % marks a judge without a preference for a place. 95 % intervals over "
        "clusters; accuracy counts unreadable answers as wrong.",
        lambda row: HALF if row["metric"] == "first_share" else None,
    )


def options_grid(found: Findings) -> Table | None:
    """Choices by place of the option, and accuracy by place of the right one."""
    slots, by = _at_base(found, "slots"), [*WHOSE, "view"]
    if slots.is_empty():
        return None
    moved = slots.filter(metric="cramers_v").select(by).unique()
    rows = slots.filter(pl.col("metric").str.contains(r"^(slot|recall):"))
    return _shares(
        "Which places of the options are chosen",
        rows.join(moved, on=by, how="semi", maintain_order="left"),
        by,
        "Share of answers by the place of the chosen option, over all orders, and the accuracy by "
        "the place of the right one. 95 % intervals over clusters; unreadable answers count as "
        "wrong.",
    )


def _shares(
    title: str,
    rows: pl.DataFrame,
    by: Sequence[str],
    note: str,
    mark: Callable[[Record], tuple[float, float, float] | None] = lambda row: None,
) -> Table | None:
    """Shares with their intervals, in a group for each value of `by`."""
    if rows.is_empty():
        return None
    columns = [
        Column("", lambda row: Cell(title_of(row["metric"]), row["metric"])),
        drawn(SHARES, mark=mark),
        Column("share [95 %]", rate),
        counts("n", "clusters"),
    ]
    parts = rows.partition_by(*by, maintain_order=True)[:MOST_ROWS]
    groups = ((_where(part, by), part.to_dicts()) for part in parts)
    return Table(title, columns, groups_under(columns, groups), [note], "forest")


def systems_grid(found: Findings) -> Table | None:
    """Win rates of systems in each order, drawn, with their strengths and ranks."""
    rows = _at_base(found, "systems")
    metric = pl.col("metric").str
    rates = rows.filter(metric.starts_with("win_rate:"))
    if rates.is_empty():
        return None
    columns = [
        texts("system"),
        texts("view", "order"),
        drawn(SHARES),
        Column("win rate [95 %]", rate),
        Column("strength", lambda row: number(row["own"]["strength"]["value"], "+z.2f")),
        Column("rank [95 %]", lambda row: _rank(row["own"]["rank"])),
    ]
    groups = []
    for part in rows.partition_by(*WHOSE, maintain_order=True)[:MOST_ROWS]:
        wins = part.filter(metric.starts_with("win_rate:")).sort("metric", maintain_order=True)
        groups.append(
            (_where(part, WHOSE) + _effect(part), [_of(part, row) for row in wins.to_dicts()])
        )
    notes = [
        "Orders: as given, swapped, both orders. A tie is half a win. Strengths are those of "
        "Bradley and Terry with Davidson's ties, in log-odds with mean 0, and for both orders with "
        "an order effect; 95 % intervals over clusters.",
        *dict.fromkeys(note for note in rows["note"].to_list() if note),
    ]
    title = "Does the ranking of systems change with the order?"
    return Table(title, columns, groups_under(columns, groups), notes, "forest")


def _at_base(found: Findings, name: str) -> pl.DataFrame:
    table = found.aspects.get(name)
    if table is None:
        return pl.DataFrame(schema={"p": pl.Float64, "metric": pl.String, "note": pl.String})
    return table.filter(level="")


def _of(part: pl.DataFrame, row: Record) -> Record:
    """A win rate with its system and all else that is known of the system in that order."""
    system = str(row["metric"]).partition(":")[2]
    beside = part.filter(pl.col("metric").str.ends_with(f":{system}"), view=row["view"]).to_dicts()
    own = {one["metric"].removesuffix(f":{system}"): one for one in beside}
    return {**row, "system": system, "own": own}


def _rank(row: Record) -> Cell:
    ends = "" if row["low"] is None else f" [{row['low']:.0f}, {row['high']:.0f}]"
    return Cell("" if row["value"] is None else f"{row['value']:g}{ends}", row["value"], "num")


def _effect(part: pl.DataFrame) -> str:
    rows = part.filter(metric="order_effect").to_dicts()
    if not rows or rows[0]["value"] is None:
        return ""
    row = rows[0]
    ends = "" if row["low"] is None else f" [{row['low']:+z.2f}, {row['high']:+z.2f}]"
    return f" · order effect {row['value']:+z.2f}{ends}"


def _where(part: pl.DataFrame, by: Sequence[str]) -> str:
    row = part.row(0, named=True)
    return " · ".join(f"seed {row[name]}" if name == "seed" else str(row[name]) for name in by)
