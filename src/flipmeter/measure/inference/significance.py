"""p-values, intervals and limits -> what is shown: nothing else compares them with anything."""

from __future__ import annotations

from typing import Literal

import polars as pl

from flipmeter.types import ALPHA

FoundBy = Literal["", "holm", "bh"]


def is_shown(p: float, alpha: float = ALPHA) -> bool:
    """Whether a p-value shows an effect."""
    return p < alpha


def shown(p: pl.Series, alpha: float = ALPHA) -> pl.Series:
    """Whether each p-value shows an effect; null where there is none."""
    return p < alpha


def found_by(p_holm: float | None, p_bh: float | None) -> FoundBy:
    """The correction that an effect passes: Holm, or only Benjamini and Hochberg."""
    if p_holm is not None and is_shown(p_holm):
        return "holm"
    return "bh" if p_bh is not None and is_shown(p_bh) else ""


def side_of_zero() -> pl.Expr:
    """The word for a difference by its interval (columns value, low and high)."""
    return (
        pl.when(pl.col("value").is_null())
        .then(pl.lit("undefined"))
        .when(pl.col("low") > 0)
        .then(pl.lit("higher"))
        .when(pl.col("high") < 0)
        .then(pl.lit("lower"))
        .otherwise(pl.lit("not distinguishable"))
    )
