"""Column or dtype -> order: what pandas' ordered categoricals and polars' Enums say of a scale."""

from __future__ import annotations

from typing import Any

import polars as pl


def declared_order(column: Any) -> list[Any] | None:
    """Classes lowest first, as the dtype of a column (or a dtype itself) lists them.

    None where it lists none: a categorical of pandas that is not ordered has categories, and their
    order means nothing.
    """
    dtype = getattr(column, "dtype", column)
    if isinstance(dtype, pl.Enum):
        return dtype.categories.to_list()
    if getattr(dtype, "ordered", False) is True:
        return list(dtype.categories)
    return None
