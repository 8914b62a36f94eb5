"""Paths -> Parquet tables: a path is a path, never a pattern, a home folder or an address."""

from __future__ import annotations

from pathlib import Path

import polars as pl


def scan_file(path: Path) -> pl.LazyFrame:
    """A table, not yet read; polars would take `*`, `[` and a leading `~` for more than letters."""
    return pl.scan_parquet(path.absolute(), glob=False)


def schema_of(path: Path) -> pl.Schema:
    """The columns of a table, by its footer."""
    with path.open("rb") as file:
        return pl.Schema(pl.read_parquet_schema(file))
