"""A frame of decisions -> the columns that are measured, checked, or a Problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from flipmeter.measure.panel.units import check_spans
from flipmeter.types import Problem

DataType = pl.DataType | type[pl.DataType]

NEEDED: Mapping[str, DataType] = {
    "rater": pl.String,
    "dataset": pl.String,
    "level": pl.String,
    "seed": pl.Int64,
    "view": pl.String,
    "repeat": pl.Int64,
    "item": pl.String,
    "rank": pl.Int64,
    "n_classes": pl.Int64,
}
OPTIONAL: Mapping[str, DataType] = {
    "gold": pl.Int64,
    "prompt": pl.String,
    "labels": pl.String,
    "completion_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "n_calls": pl.Int64,
    "shared_calls": pl.Int64,
    "probabilities": pl.List(pl.Float64),
    "cluster": pl.String,
    "fault": pl.String,
    "label_mass": pl.Float64,
    "slot": pl.Int64,
    "nominal": pl.Boolean,
    "place": pl.Int64,
    "gold_place": pl.Int64,
    "n_places": pl.Int64,
    "system_a": pl.String,
    "system_b": pl.String,
    "orbit": pl.String,
    "invariance": pl.String,
    "scale_from": pl.Float64,
    "scale_to": pl.Float64,
    "tolerance": pl.Int64,
}


def checked(decisions: pl.DataFrame) -> pl.DataFrame:
    """The required and the optional columns, typed; missing ones are null."""
    frame = _typed(decisions)
    if frame.is_empty():
        raise Problem("there are no decisions to measure")
    empty = [name for name in NEEDED if frame[name].null_count()]
    if empty:
        raise Problem(f"the decisions have empty cells in {quoted(empty)}; 'no class' is rank 0")
    if frame.filter(pl.col("repeat") < 0).height:
        raise Problem("a repeat is counted from 0; the decisions hold a negative one")
    for column, lowest in (("rank", 0), ("gold", 1)):
        wrong = frame.filter((pl.col(column) < lowest) | (pl.col(column) > pl.col("n_classes")))
        if not wrong.is_empty():
            worst = wrong.row(0, named=True)
            raise Problem(
                f"item '{worst['item']}' has {column} {worst[column]}, outside {lowest} to "
                f"{worst['n_classes']}"
            )
    check_spans(frame)
    return frame


def any_nominal(decisions: pl.DataFrame) -> bool:
    """Whether the classes of some dataset have no order."""
    return "nominal" in decisions.columns and bool(decisions["nominal"].any())


def any_decimal(decisions: pl.DataFrame) -> bool:
    """Whether the answers to some dataset are decimal scores."""
    return "scale_from" in decisions.columns and decisions["scale_from"].is_not_null().any()


def refuse_mae(decisions: pl.DataFrame, what: str) -> None:
    """Refuse a distance between classes that have no order."""
    if any_nominal(decisions):
        named = quoted(decisions.filter("nominal")["dataset"].unique(maintain_order=True).to_list())
        raise Problem(
            f"{what}: the classes of {named} have no order, so that there is no MAE; use accuracy"
        )


def _typed(decisions: pl.DataFrame) -> pl.DataFrame:
    missing = [name for name in NEEDED if name not in decisions.columns]
    if missing:
        raise Problem(f"the decisions lack the columns {quoted(missing)}")
    absent = [pl.lit(None).alias(name) for name in OPTIONAL if name not in decisions.columns]
    wanted = {**NEEDED, **OPTIONAL}
    try:
        return decisions.with_columns(absent).select(
            pl.col(name).cast(dtype) for name, dtype in wanted.items()
        )
    except pl.exceptions.PolarsError as error:
        raise Problem(f"a column of the decisions has the wrong type: {error}") from error


def quoted(names: Sequence[str]) -> str:
    """Write names as a list of words in quotes."""
    return ", ".join(f"'{name}'" for name in names)
