"""Paths -> Parquet tables: a path is a path, never a pattern, a home folder or an address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl
import polars.selectors as cs

from flipmeter.base.problem import Problem
from flipmeter.base.redaction import masked, spellings

UNREADABLE: tuple[type[BaseException], ...] = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
)
"""Raised by polars for a table that cannot be read; some damaged pages make it panic."""


def scan_file(path: Path) -> pl.LazyFrame:
    """A table, not yet read; polars would take `*`, `[` and a leading `~` for more than letters."""
    return pl.scan_parquet(path.absolute(), glob=False)


def scan_files(paths: Sequence[Path]) -> pl.LazyFrame:
    """Tables of the same columns, one after the other, not yet read."""
    return pl.scan_parquet([path.absolute() for path in paths], glob=False)


def without_secrets(table: pl.LazyFrame) -> pl.LazyFrame:
    """A table to be written, its texts without the secrets of this process."""
    sought = list(spellings())
    if not sought:
        return table

    def clean(texts: pl.Series) -> pl.Series:
        is_hit = texts.str.contains_any(sought).fill_null(value=False)
        if not is_hit.any():
            return texts
        return texts.map_elements(masked, return_dtype=pl.String)

    return table.with_columns(
        cs.string().map_batches(clean, return_dtype=pl.String, is_elementwise=True)
    )


def schema_of(path: Path) -> pl.Schema:
    """The columns of a table, by its footer."""
    with path.open("rb") as file:
        return pl.Schema(pl.read_parquet_schema(file))


def collected(rows: pl.LazyFrame, engine: Literal["auto", "streaming"] = "auto") -> pl.DataFrame:
    """The rows, read now: every query of a run's tables ends here.

    A page of a table can be damaged although its digest is right: its maker wrote both.
    """
    try:
        return rows.collect(engine=engine)
    except (pl.exceptions.ComputeError, pl.exceptions.PanicException, OSError) as error:
        reason = (str(error).splitlines() or [""])[0]
        named = _SCANNED.search(rows.explain(optimized=False))
        path = named[1] if named else "a table"
        raise Problem(f"{path} is damaged ({reason}); fetch it or run its study again") from error


_SCANNED = re.compile(r"Parquet SCAN \[(.+)\]")
"""The file that a query reads, in polars' description of it."""
