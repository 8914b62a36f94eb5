"""An untrusted run folder: its manifest and files, checked before they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, FiniteFloat, NonNegativeInt, ValidationError

from flipmeter.documents import RUN_FACTOR, TABLE_FACTOR
from flipmeter.parquet import check_parquet, collected
from flipmeter.run.generation import CALLS, DECISIONS, damaged, read_schema
from flipmeter.run.rows import DECISION, SCHEMAS
from flipmeter.study.entries import TaskEntry
from flipmeter.types import Contrast

MOST_CLASSES = 10_000


class _Data(BaseModel, strict=True):
    """The keys that readers use of a dataset."""

    digest: str = ""
    source: str = ""
    licence: str = ""
    n_items: NonNegativeInt
    n_available: NonNegativeInt | None = None
    weights: list[FiniteFloat] = []
    left_out: dict[str, int] = {}
    notes: list[str]


class _Facts(BaseModel):
    """The keys that readers use in a manifest; there may be more."""

    flipmeter: str
    models: dict[str, str]
    greedy: list[str] | None = None
    reproducible: list[str]
    contrasts: list[Contrast]
    tasks: dict[str, TaskEntry]
    datasets: dict[str, _Data]
    stopped: str = ""
    fallbacks: dict[str, list[str]] = {}


def check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a manifest that lacks what readers need."""
    known = {field.name for field in fields(Contrast)}
    try:
        found = _Facts(**facts)
        strange = [name for one in facts["contrasts"] for name in one if name not in known]
        if strange or not all(contrast.views for contrast in found.contrasts):
            raise damaged(path, ValueError("a contrast of another version"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise damaged(path, ValueError(f"{place}: {first['msg']}")) from error


def check_table(path: Path, format: int) -> Path:
    """Refuse a table that unpacks to too much or has other columns than a run of its format."""
    is_read_in_parts = path.name in (DECISIONS, CALLS)
    check_parquet(path, RUN_FACTOR if is_read_in_parts else TABLE_FACTOR)
    if fault := SCHEMAS[path.name].fault(read_schema(path), format):
        raise damaged(path, ValueError(fault))
    return path


def check_decisions(path: Path, decisions: pl.LazyFrame) -> None:
    """Refuse decisions that no rater can make: a class beyond the scale, an item without a name."""
    n = pl.col("n_classes")
    wrong = {
        "an empty key": pl.any_horizontal(pl.col(*DECISION.key, "rank", "slot", "fault").is_null()),
        "no number of classes": n.is_null()
        | ~n.is_between(2, MOST_CLASSES) & pl.col("scale_from").is_null(),
        "a class beyond the scale": ~pl.col("rank").is_between(0, n),
        "a slot beyond the list": ~pl.col("slot").is_between(0, n),
        "a gold class beyond the scale": ~pl.col("gold").is_between(1, n),
        "a negative seed or repeat": (pl.col("seed") < 0) | (pl.col("repeat") < 0),
        "a number of probabilities other than the number of classes": pl.col(
            "probabilities"
        ).list.len()
        != n,
        "invalid probabilities": ~pl.col("probabilities")
        .list.eval(pl.element().is_between(0, 1))
        .list.all(),
    }
    rules = (rule.any().alias(what) for what, rule in wrong.items())
    found = decisions.select(pl.len().alias("rows"), *rules).pipe(collected, "streaming")
    told = found.row(0, named=True)
    n_rows = told.pop("rows")
    for what, is_so in told.items():
        if is_so:
            raise damaged(path, ValueError(f"a row has {what}"))
    if not n_rows:
        raise damaged(path, ValueError("it has no rows"))
