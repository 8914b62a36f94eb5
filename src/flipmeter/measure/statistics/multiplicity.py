"""Many p-values -> the same, adjusted for their number; raw and adjusted stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from flipmeter.measure.panel.checked import Floats
from flipmeter.measure.statistics.formulas import holm
from flipmeter.types import Problem

FAMILY = ("metric", "policy")


def benjamini_hochberg(p_values: npt.ArrayLike) -> Floats:
    """Adjust p-values by Benjamini and Hochberg's step-up, for tables that explore.

    Below alpha after adjusting, at most that share is expected to be false. NaN stays NaN and is
    not counted as a test.
    """
    p = np.atleast_1d(np.asarray(p_values, dtype=np.float64))
    tested = np.flatnonzero(~np.isnan(p))
    if ((p[tested] < 0) | (p[tested] > 1)).any():
        raise Problem(f"p-values lie between 0 and 1; got {p.tolist()}")
    order = tested[np.argsort(p[tested], kind="stable")[::-1]]
    steps = p[order] * len(order) / np.arange(len(order), 0, -1)
    adjusted = p.copy()
    adjusted[order] = np.minimum(1.0, np.minimum.accumulate(steps))
    return adjusted


def adjusted(table: pl.DataFrame, family: Sequence[str] = FAMILY) -> pl.DataFrame:
    """Add `p_holm` and `p_bh` beside `p`; a family is the rows that are equal in these columns.

    Holm holds for every claim of the family at once, Benjamini-Hochberg for exploring.
    """
    missing = [name for name in ("p", *family) if name not in table.columns]
    if missing:
        raise Problem(f"cannot adjust p-values: the table lacks {', '.join(missing)}")
    numbered = table.with_row_index("place")
    parts = []
    for part in numbered.partition_by(*family, maintain_order=True) if table.height else []:
        p = part["p"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        columns = {"p_holm": holm(p), "p_bh": benjamini_hochberg(p)}
        parts.append(part.with_columns(pl.Series(name, of) for name, of in columns.items()))
    if not parts:
        return table.with_columns(
            pl.lit(None, pl.Float64).alias(name) for name in ("p_holm", "p_bh")
        )
    whole = pl.concat(parts).sort("place").drop("place")
    return whole.with_columns(pl.col("p_holm", "p_bh").fill_nan(None))
