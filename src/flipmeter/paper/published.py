"""The paper's printed numbers, by table; facts and figures only, kept as printed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from flipmeter.registry import suggestion
from flipmeter.types import Problem

FOLDER = Path(__file__).parent / "csv"
METRICS = {
    "acc": "accuracy",
    "f1": "macro_f1",
    "rho": "spearman",
    "mae": "mae",
    **{name.casefold(): name for name in ("P1", "P2a", "P2b", "P3a", "P3b")},
}
"""The paper's column names, and ours, in its order."""


@cache
def published(table: str) -> pl.DataFrame:
    """All rows of a table as text, null where the paper prints nothing."""
    known = sorted(path.stem for path in FOLDER.glob("*.csv"))
    if table not in known:
        raise Problem(f"no published table named '{table}'{suggestion(table, known)}")
    rows = pl.read_csv(FOLDER / f"{table}.csv", infer_schema=False)
    return rows.with_columns(pl.col("metric").replace(METRICS)) if "metric" in rows else rows


@dataclass(frozen=True)
class PublishedCell:
    """One printed number, with its SD where there is one; `text` is how the paper prints it."""

    value: float
    sd: float | None
    text: str


def published_cell(table: str, metric: str, **where: str) -> PublishedCell | None:
    """The cell of a table with one row per metric; None where the paper prints none."""
    rows = published(table).filter(metric=metric, **where)
    if rows.is_empty():
        return None
    row = rows.row(0, named=True)
    text = row.get("mean", row.get("residual_x100"))
    if text is None:
        return None
    sd = row.get("sd")
    if sd is None:
        return PublishedCell(float(text), None, text)
    return PublishedCell(float(text), float(sd), f"{text} ± {sd}")


def printed(table: str, metric: str, **where: str) -> str:
    """A cell as the paper prints it, empty where it prints none."""
    cell = published_cell(table, metric, **where)
    return cell.text if cell else ""
