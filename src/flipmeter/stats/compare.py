"""Two runs -> their differences, item by item: the second minus the first, times 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
import polars as pl

from flipmeter.errors import Problem
from flipmeter.stats.bounds import side_of_zero
from flipmeter.stats.formulas import adjusted, mcnemar
from flipmeter.stats.frame import Decisions, any_decimal, any_nominal, distinct, quoted, scanned
from flipmeter.stats.measured_items import SCORES, MeasuredItems, Measurer, in_common, read_sides
from flipmeter.stats.residuals import LevelComparison, Pair, subtract
from flipmeter.stats.scores import MOMENT_SCORES
from flipmeter.types import Contrast

Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)
FIRST, SECOND = "first", "second"
BY_ITEM = "accuracy"
"""The score that McNemar's test can compare item by item, as it can every flip rate."""

ONE = 2
"""One dataset and the mean over it say the same."""


def compare(first: Decisions, second: Decisions, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """Subtract a run from another, metric by metric, on the items that both have.

    Raters, datasets, levels and seeds are paired by name; where each run has one rater, these are
    paired whatever their names. The interval is over clusters of items (their copies and seeds),
    and holds datasets and seeds fixed. `word` is `higher`, `lower` or `not distinguishable`, by
    that interval. `b` counts the items that only the second run gets right (or flips), `c` those
    that only the first does; McNemar's two-sided mid-p needs one seed and no copies of items,
    which are not independent.
    """
    pairs = [pair for contrast in contrasts for pair in contrast.pairs]
    frames = same_raters(scanned(first).table, scanned(second).table)
    names = [contrast.name for contrast in pairs]
    nominal, decimal = (any(map(of, frames)) for of in (any_nominal, any_decimal))
    tables: list[pl.DataFrame] = []
    counts: dict[tuple[str, str, str], _Counts] = {}
    raters = [{name for (name,) in distinct(frame, "rater")} for frame in frames]
    for rater in sorted(raters[0] & raters[1]):  # one is let go of before the next
        named = (pl.lit(f"{run}/{rater}").alias("rater") for run in (FIRST, SECOND))
        own = [frame.filter(pl.col("rater") == rater) for frame in frames]
        both = pl.concat(one.with_columns(name) for one, name in zip(own, named, strict=True))
        keys, sides = read_sides(both, pairs, "recommended")
        found = _level_comparisons(keys)
        tables.append(subtract(sides, Measurer("recommended", names, nominal, decimal), found))
        counts |= {
            (one.rater, one.level, dataset): _count_discordant(sides, of)
            for one in found
            for dataset, of in {**one.pairs, "": list(chain(*one.pairs.values()))}.items()
        }
    if not counts:
        raise Problem(
            "the runs have no rater, dataset, level and seed in common; there is nothing to pair"
        )
    table = pl.concat(tables).drop("factor", "mode", "against")
    n_datasets = pl.col("dataset").n_unique().over("rater", "level")
    table = table.filter((pl.col("dataset") != "") | (n_datasets > ONE))
    return _test_differences(table, counts, names)


def same_raters(first: Table, second: Table) -> tuple[Table, Table]:
    """Give the only rater of each run one name; otherwise names must meet."""
    names = [[name for (name,) in distinct(frame, "rater")] for frame in (first, second)]
    if set(names[0]) & set(names[1]):
        return first, second
    if [len(own) for own in names] != [1, 1]:
        raise Problem(
            f"the runs share no rater: {quoted(names[0])} and {quoted(names[1])}; give one of them "
            "the same name in both studies"
        )
    name = pl.lit(f"{names[1][0]} - {names[0][0]}").alias("rater")
    return first.with_columns(name), second.with_columns(name)


def _level_comparisons(keys: pl.DataFrame) -> list[LevelComparison]:
    places = {
        (*rater.split("/", 1), *rest): group
        for group, (rater, *rest) in enumerate(keys.iter_rows())
    }
    found: dict[tuple[str, str], LevelComparison] = {}
    for (run, rater, dataset, level, seed), group in places.items():
        other = places.get((FIRST, rater, dataset, level, seed))
        if run == SECOND and other is not None:
            one = found.setdefault((rater, level), LevelComparison("run", level, rater, rater))
            one.pairs.setdefault(dataset, []).append((seed, group, other))
    return list(found.values())


_Counts = tuple[bool, list[tuple[int, int]]]
"""Whether items are independent, and McNemar's b and c of accuracy and of each contrast."""


def _count_discordant(sides: Sequence[MeasuredItems], pairs: Sequence[Pair]) -> _Counts:
    """Count the items that hold in one run only, added up over seeds and datasets."""
    is_independent = len({seed for seed, _, _ in pairs}) == 1
    totals = np.zeros((1 + len(sides[0].pairs), 2), dtype=np.int64)
    for _, second, first in pairs:
        here, there = in_common(sides[second], sides[first])
        usable = here.usable & here.read & there.read
        is_independent &= len(np.unique(here.cluster)) == len(here.cluster)
        marks = [np.concatenate([side.right[None], side.flipped]) for side in (here, there)]
        for place, (only, other) in enumerate(((0, 1), (1, 0))):
            totals[:, place] += (usable & marks[only] & ~marks[other]).sum(axis=1)
    counts = [(int(b), int(c)) for b, c in totals.tolist()]
    return is_independent, counts


def _test_differences(
    table: pl.DataFrame,
    counts: Mapping[tuple[str, str, str], _Counts],
    names: Sequence[str],
) -> pl.DataFrame:
    scores = {*SCORES["recommended"], *MOMENT_SCORES}
    tested = [BY_ITEM, *(name for name in names if name not in scores)]
    rows: list[tuple[int | None, int | None, float | None]] = []
    for row in table.select("rater", "level", "dataset", "metric").iter_rows():
        is_independent, found = counts[row[:3]]
        if row[3] in tested:
            b, c = found[tested.index(row[3])]
            p = mcnemar(b, c, alternative="two-sided") if is_independent else None
            rows.append((b, c, p))
        else:
            rows.append((None, None, None))
    schema = {"b": pl.Int64, "c": pl.Int64, "p": pl.Float64}
    wide = table.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
    wide = wide.with_columns(side_of_zero().alias("word"), is_mean=pl.col("dataset") == "")
    return adjusted(wide, ["metric", "is_mean"]).drop("is_mean")
