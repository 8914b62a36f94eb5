"""A frame of decisions -> its measured columns, checked; decimal scores with their range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.errors import Problem
from flipmeter.parquet import collected
from flipmeter.stats.groups import Booleans, Floats, Ints
from flipmeter.types import Span

RANGE = ("scale_from", "scale_to", "tolerance")
"""The columns with the range of decimal scores; null where there are classes."""


@dataclass(frozen=True)
class ScaleUnits:
    """The range of every group, None for one with classes.

    Ranks of a range count its steps: a difference in ranks times `step` is one in its units, and
    one of at most `tolerance` ranks is none. Of classes both are as if they were not there.
    """

    spans: Sequence[Span | None]

    @cached_property
    def decimal(self) -> Booleans:
        """Mark the groups with decimal scores."""
        return np.array([span is not None for span in self.spans], dtype=np.bool_)

    @cached_property
    def step(self) -> Floats:
        return np.array([1.0 if span is None else span.step for span in self.spans])

    @cached_property
    def tolerance(self) -> Ints:
        tolerances = [0 if span is None else span.tolerance for span in self.spans]
        return np.array(tolerances, dtype=np.int64)


def differ(
    first: npt.NDArray[np.integer[Any]],
    second: npt.NDArray[np.integer[Any]],
    tolerance: Ints | int = 0,
) -> Booleans:
    """Mark ranks that are not the same: of decimal scores those farther apart than counts."""
    return np.asarray(np.abs(first - second) > tolerance)


def read_span(low: float | None, high: float, tolerance: int | None) -> Span | None:
    """The range that a row of decisions names, None where it has classes."""
    if low is None:
        return None
    found = Span(low, high)
    return Span(low, high, (tolerance or 0) * found.step)


def check_spans(table: pl.LazyFrame) -> None:
    """Refuse ranges that do not fit the number of ranks beside them."""
    known = table.filter(pl.col("scale_from").is_not_null()).select(*RANGE, "n_classes")
    for *told, n_ranks in known.unique().pipe(collected, "streaming").iter_rows():
        span = read_span(*told)
        if span is None or span.n_ranks != n_ranks:
            raise Problem(f"the decisions have {n_ranks} ranks on a scale that has others: {span}")


IS_OTHER = (pl.col("rank") - pl.col("gold")).abs() > pl.col("tolerance").fill_null(0)
"""Whether the class of a row is not its gold class, or its score too far from it."""

STEP = (
    pl.when(pl.col("scale_from").is_not_null())
    .then((pl.col("scale_to") - pl.col("scale_from")) / (pl.col("n_classes") - 1))
    .otherwise(1.0)
)
"""Size of one rank in the units of a row's scale."""


DataType = pl.DataType | type[pl.DataType]
Decisions = pl.DataFrame | pl.LazyFrame
"""A table of decisions that is held, or one that is read where it lies."""

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


@dataclass(frozen=True)
class Scanned:
    """Decisions with the needed and the optional columns, typed and checked, read as they are used.

    `told` are the columns that say something of some decision: not null, and no empty text.
    """

    table: pl.LazyFrame
    told: frozenset[str]
    is_held: bool

    def read(self, *columns: str | pl.Expr) -> pl.DataFrame:
        """Some columns of all decisions, in their order; what is held costs no copy."""
        return self.table.select(columns).pipe(
            collected, engine="auto" if self.is_held else "streaming"
        )

    def column(self, column: str | pl.Expr) -> pl.Series:
        return self.read(column).to_series()

    def row(self, *columns: pl.Expr) -> dict[str, Any]:
        """Statistics of all decisions, by their names."""
        return self.read(*columns).row(0, named=True)


def scanned(decisions: Decisions) -> Scanned:
    """Check decisions without holding them; what is absent is null."""
    is_held = isinstance(decisions, pl.DataFrame)
    table = typed(decisions.lazy())
    try:
        table = table.pipe(collected).lazy() if is_held else table
        rows = Scanned(table, frozenset(), is_held)
        # One column after the other: all at once, polars holds most of the table.
        found = {
            name: value
            for some in _decision_statistics()
            for name, value in rows.row(*some).items()
        }
    except pl.exceptions.PolarsError as error:
        raise Problem(f"a column of the decisions has the wrong type: {error}") from error
    if not found["n"]:
        raise Problem("there are no decisions to measure")
    if empty := [name for name in NEEDED if found[f"{name} empty"]]:
        raise Problem(f"the decisions have empty cells in {quoted(empty)}; 'no class' is rank 0")
    if found["before 0"]:
        raise Problem("a repeat is counted from 0; the decisions contain a negative one")
    for column, lowest in LOWEST.items():
        if found[f"{column} outside"]:
            worst = (
                rows.table.filter(_is_outside(column)).head(1).pipe(collected).row(0, named=True)
            )
            raise Problem(
                f"item '{worst['item']}' has {column} {worst[column]}, outside {lowest} to "
                f"{worst['n_classes']}"
            )
    told = frozenset(name for name in (*NEEDED, *OPTIONAL) if found[f"{name} told"])
    if "scale_from" in told:
        check_spans(rows.table)
    return replace(rows, told=told)


LOWEST = {"rank": 0, "gold": 1}


def _is_outside(column: str) -> pl.Expr:
    return (pl.col(column) < LOWEST[column]) | (pl.col(column) > pl.col("n_classes"))


def _decision_statistics() -> Iterator[list[pl.Expr]]:
    """Statistics of all decisions, those of each column together."""
    yield [pl.len().alias("n"), (pl.col("repeat") < 0).any().alias("before 0")]
    yield from ([_is_outside(column).any().alias(f"{column} outside")] for column in LOWEST)
    for name, kind in {**NEEDED, **OPTIONAL}.items():
        says = pl.col(name) != "" if kind == pl.String else pl.col(name).is_not_null()
        told = says.any().alias(f"{name} told")
        yield [told, pl.col(name).is_null().any().alias(f"{name} empty")]


def any_nominal(decisions: Decisions) -> bool:
    """Whether the classes of some dataset have no order."""
    return _is_any(decisions, "nominal", pl.col("nominal"))


def any_decimal(decisions: Decisions) -> bool:
    """Whether the answers to some dataset are decimal scores."""
    return _is_any(decisions, "scale_from", pl.col("scale_from").is_not_null())


def _is_any(decisions: Decisions, name: str, is_so: pl.Expr) -> bool:
    if name not in decisions.collect_schema():
        return False
    return bool(decisions.lazy().select(is_so.any()).pipe(collected, "streaming").item())


def distinct(decisions: Decisions, *names: str) -> list[tuple[Any, ...]]:
    """The distinct values of some columns, in the order in which they come."""
    numbered = decisions.lazy().select(names).with_row_index("nth").group_by(names)
    found = numbered.agg(pl.col("nth").min()).sort("nth").pipe(collected, "streaming")
    return found.select(names).rows()


def refuse_mae(decisions: Decisions, what: str) -> None:
    """Refuse a distance between classes that have no order."""
    if any_nominal(decisions):
        named = quoted(
            [name for (name,) in distinct(decisions.filter(pl.col("nominal")), "dataset")]
        )
        raise Problem(
            f"{what}: the classes of {named} have no order, so there is no MAE; use accuracy"
        )


def typed(decisions: pl.LazyFrame) -> pl.LazyFrame:
    """The needed and the optional columns, not yet checked."""
    there = decisions.collect_schema()
    missing = [name for name in NEEDED if name not in there]
    if missing:
        raise Problem(f"the decisions lack the columns {quoted(missing)}")
    wanted = {**NEEDED, **OPTIONAL}
    return decisions.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name)
        for name, kind in wanted.items()
    )


def quoted(names: Sequence[str]) -> str:
    """Write names as a list of words in quotes."""
    return ", ".join(f"'{name}'" for name in names)
