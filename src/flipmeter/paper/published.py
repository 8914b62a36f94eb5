"""The paper's printed numbers, by table; facts and figures only, kept as printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl

from flipmeter.errors import Problem
from flipmeter.registry import suggestion

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


LEVELS: Mapping[tuple[str, str], str] = {
    ("Label format", "Letter"): "label_format=letter",
    ("Label format", "Natural language"): "label_format=natural_language",
    ("Label format", "Neutral ID"): "label_format=neutral_id",
    ("Scale cardinality", "3-way"): "cardinality=3",
    ("Scale cardinality", "2-way"): "cardinality=2",
    ("Demo count", "0-shot"): "shots=0",
    ("Demo count", "1-shot"): "shots=1",
    ("Demo count", "3-shot"): "shots=3",
    ("Prompt clarity", "Minimal"): "clarity=minimal",
    ("Prompt clarity", "Ordinal-explicit"): "clarity=ordinal_explicit",
    ("Separator", "Space"): "separator=space",
    ("Separator", "Tab"): "separator=tab",
    ("Connector", "Space"): "connector=space",
    ("Connector", "Newline+tab"): "connector=newline_tab",
    ("Mood", "Interrogative"): "mood=interrogative",
    ("Mood", "Indicative"): "mood=indicative",
}
"""Rows of the Phase 1 table; those of its factor `Model` are models by name."""

PIPELINES: Mapping[tuple[str, str], str] = {
    ("Inference paradigm", "Pairwise"): "pipeline=pairwise",
    ("Inference paradigm", "Listwise"): "pipeline=listwise",
    ("Inference paradigm", "Listwise-compare"): "pipeline=listwise_compare",
    ("Aggregation method", "Majority vote"): "pipeline=pairwise+majority_vote",
    ("Aggregation method", "Mean score"): "pipeline=pairwise+mean_score",
    ("Aggregation method", "Weighted sum"): "pipeline=pairwise+weighted_sum",
    ("Aggregation method", "Copeland"): "pipeline=pairwise+copeland",
    ("Aggregation method", "Bradley-Terry"): "pipeline=pairwise+bradley_terry",
    ("Debiasing strategy", "Label averaging"): "pipeline=pointwise+label_average",
    ("Debiasing strategy", "Demo averaging"): "pipeline=pointwise+demo_average",
    ("Debiasing strategy", "PriDe"): "pipeline=pointwise+pride",
    ("Debiasing strategy", "Context. Calib."): "pipeline=pointwise+contextual",
}
"""Rows of the Phase 2 pipeline table, in its three families."""

REFERENCE = "Qwen3-8B (ref.)"
"""The model that the paper chooses its configurations on, as its absolute table calls it."""
