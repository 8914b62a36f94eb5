"""Decisions, slices of items -> flip rates by slice, and which differ from the rest (Holm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from flipmeter.base.chance import draw
from flipmeter.measure.inference.blocks import count_pairs, read_blocks
from flipmeter.measure.inference.bounds import Bounded, bounded_share
from flipmeter.measure.inference.judge import contrast_rows
from flipmeter.measure.inference.significance import is_shown
from flipmeter.measure.panel.checked import Floats
from flipmeter.measure.panel.panel import Panel
from flipmeter.measure.panel.reading import read_panel
from flipmeter.measure.statistics.formulas import holm
from flipmeter.types import ALPHA, Contrast

DRAWS = 20_000
APART = "\x1f"
"""Stands between a dataset and its slice: a slice is measured as a dataset of its own."""
SCHEMA: dict[str, type[pl.DataType]] = {
    **dict.fromkeys(("rater", "dataset", "level", "contrast", "slice"), pl.String),
    **dict.fromkeys(("value", "low", "high", "rest", "p", "p_holm"), pl.Float64),
    **dict.fromkeys(("n_clusters", "n_unreadable", "n_pairs"), pl.Int64),
    "word": pl.String,
}
"""`rest` is the rate of all other slices together; p is that the slice is like them."""


@dataclass(frozen=True)
class _Slice:
    """One slice under one contrast: the share of pairs that differ in each of its clusters."""

    whose: tuple[str, str, str, str]
    name: str
    shares: Floats
    clusters: frozenset[str]
    rate: Bounded
    n_pairs: int
    n_unreadable: int


def slice_rates(
    decisions: pl.DataFrame,
    slices: pl.DataFrame,
    contrasts: Sequence[Contrast],
    *,
    alpha: float = ALPHA,
) -> pl.DataFrame:
    """Flip rates on readable pairs by slice, each with its interval, as verdicts have them.

    `slices` files every item (dataset, item) under one `slice`. A slice is compared with all others
    of its rater, dataset, level and contrast: p is from exchanging clusters of items between them,
    two-sided; `p_holm` and the word hold over all rows of the table.
    """
    if decisions.is_empty() or not contrasts:
        return pl.DataFrame(schema=SCHEMA)
    own = decisions.join(slices, on=["dataset", "item"], how="inner", maintain_order="left")
    named = own.with_columns(dataset=pl.concat_str("dataset", "slice", separator=APART))
    panel = read_panel(named.drop("slice"))
    found = [one for contrast in contrasts for one in _measured(panel, contrast, alpha)]
    by_whose: dict[tuple[str, str, str, str], list[_Slice]] = {}
    for one in found:
        by_whose.setdefault(one.whose, []).append(one)
    against = [_against_rest(one, by_whose[one.whose]) for one in found]
    adjusted = holm([p for _, p in against]).tolist() if found else []
    rows = [
        (
            *one.whose,
            one.name,
            *(one.rate.value, one.rate.low, one.rate.high, rest),
            *(None if np.isnan(p) else p, None if np.isnan(by_holm) else by_holm),
            *(one.rate.n, one.n_unreadable, one.n_pairs),
            _word(one.rate.value, rest, by_holm, alpha),
        )
        for one, (rest, p), by_holm in zip(found, against, adjusted, strict=True)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _measured(panel: Panel, contrast: Contrast, alpha: float) -> list[_Slice]:
    found = []
    for row in contrast_rows(panel, contrast):
        if row.row is None:
            continue
        counts = count_pairs(read_blocks(row.row))
        seen = counts.read > 0
        rater, dataset, level = row.key
        name, _, of = dataset.partition(APART)
        numbers = np.unique(np.asarray(row.row.clusters))
        found.append(
            _Slice(
                (rater, name, level, contrast.name),
                of,
                counts.differ[seen] / counts.read[seen],
                frozenset(panel.cluster_names[number] for number in numbers),
                bounded_share(counts.differ, counts.read, alpha),
                int(counts.asked.sum()),
                int((counts.asked - counts.read).sum()),
            )
        )
    return found


def _against_rest(one: _Slice, every: Sequence[_Slice]) -> tuple[float | None, float]:
    """The rate of the other slices, and p that this one is like them; NaN where it cannot be told.

    Items of one cluster that lie in two slices cannot be exchanged.
    """
    others = [other for other in every if other is not one]
    rest = np.concatenate([other.shares for other in others] or [np.zeros(0)])
    if not len(rest) or not len(one.shares):
        return None, float("nan")
    if any(one.clusters & other.clusters for other in others):
        return float(rest.mean()), float("nan")
    seed = int(draw("slice", *one.whose, one.name) * 2**32)
    return float(rest.mean()), exchange_p(one.shares, rest, seed=seed)


def exchange_p(inside: Floats, outside: Floats, *, seed: int = 0, draws: int = DRAWS) -> float:
    """Two-sided p of the same mean inside and outside, exchanging clusters between them.

    Clusters with equal shares are alike, so that counts of them are drawn, and not clusters.
    """
    both = np.concatenate([inside, outside])
    values, counts = np.unique(np.round(both, 12), return_counts=True)
    if len(values) == 1:
        return 1.0
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_hypergeometric(counts, len(inside), size=draws, method="marginals")
    expected = both.mean()
    off = np.abs(drawn @ values / len(inside) - expected)
    observed = abs(float(inside.mean()) - expected)
    return float((1 + (off >= observed - 1e-9).sum()) / (1 + draws))


def _word(value: float, rest: float | None, p_holm: float, alpha: float) -> str:
    if rest is None or np.isnan(p_holm):
        return ""
    if not is_shown(p_holm, alpha):
        return "not distinguishable"
    return "higher" if value > rest else "lower"
