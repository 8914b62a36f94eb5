"""Estimates -> the paper's first table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from flipmeter.base.checks import error_rate
from flipmeter.measure.inference.significance import shown
from flipmeter.measure.panel.panel import KEY
from flipmeter.measure.statistics.formulas import holm
from flipmeter.types import ALPHA, Policy


def phase0_table(
    greedy: pl.DataFrame,
    stochastic: pl.DataFrame | None = None,
    *,
    policy: Policy = "complete",
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Lay estimates out as the paper's first table, one row per model.

    P1, P2 and P3 come from the greedy run; noise, total (P1 again) and the test from the
    stochastic one, or from the same run if there is only one. Dataset, level and seed become
    columns where they vary. `sig` follows p in paper mode, p after Holm over the rows otherwise.
    """
    error_rate(alpha)
    runs = greedy if stochastic is None else stochastic
    varies = (name for name in KEY[1:] if any(of[name].n_unique() > 1 for of in (greedy, runs)))
    keys = ["rater", *varies]
    cells = [_cells(greedy, name, name, policy, keys) for name in ("P1", "P2", "P3")]
    cells += [
        _cells(runs, "noise", "noise", policy, keys),
        _cells(runs, "P1", "total", policy, keys),
    ]
    tests = runs.filter(metric="mcnemar_p", view="P1", policy=policy)
    table = cells[0]
    for more in (*cells[1:], tests.select(*keys, "p", "b", "c")):
        table = table.join(more, on=keys, how="full", coalesce=True, maintain_order="left_right")
    p = table["p"].fill_null(math.nan).to_numpy()
    adjusted = pl.Series("p_holm", holm(p) if len(p) else p).fill_nan(None)
    deciding = table["p"] if "paper" in runs["mode"].to_list() else adjusted
    table = table.with_columns(adjusted, shown(deciding, alpha).cast(pl.Int64).alias("sig"))
    last = ("p", "sig", "b", "c", "p_holm")
    return table.select(pl.exclude(last), *last).rename({"rater": "model"})


def _cells(
    frame: pl.DataFrame, metric: str, name: str, policy: Policy, keys: Sequence[str]
) -> pl.DataFrame:
    chosen = frame.filter(metric=metric, policy=policy)
    ends = {"value": name, "low": f"{name}_lo", "high": f"{name}_hi"}
    return chosen.select(*keys, *(pl.col(old).alias(new) for old, new in ends.items()))
