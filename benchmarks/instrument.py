"""Time the aspects of a study, all groups at once, and against a loop over library calls.

    python benchmarks/instrument.py [--levels 3 10 30] [--groups 4]

The study has 200 items, 7 views (three of them asked twice), 5 datasets, 3 seeds and as many levels
as named; every interval that is a bootstrap has 2,000 draws. The loop takes one pair of views of
some groups through scipy, statsmodels and scikit-learn: excess, mean distance and three
coefficients of agreement with scipy's BCa bootstrap, and the tests of direction. CPU seconds of
all threads count, so that the number is that of one core.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
from goals import Goal, show_goals, show_table
from scipy import stats
from sklearn.metrics import cohen_kappa_score
from statistics_stage import CONTRASTS, N_CLASSES, N_ITEMS, RUNS, decisions
from statsmodels.stats.contingency_tables import SquareTable

from flipmeter.stats.aspects import ASPECTS, measure_aspects
from flipmeter.stats.direction import flip_matrices
from flipmeter.stats.groups import one_group
from flipmeter.stats.resampling import RESAMPLES
from flipmeter.stats.severity import coincidences, ordinal_alpha

N_DATASETS, N_SEEDS = 5, 3
RACED = ("direction", "severity")
REPEATED = {view for view, repeat in RUNS if repeat}
Classes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Point:
    """Cost of one size of study: CPU seconds in all, and by aspect."""

    n_groups: int
    n_rows: int
    cpu: float
    by_aspect: dict[str, float]


def point(n_levels: int) -> Point:
    """Measure every aspect of a study, alone and together."""
    n_groups = n_levels * N_DATASETS * N_SEEDS
    frame = decisions(n_groups * N_ITEMS * len(RUNS))
    alone = {name: _cpu(frame, [name])[0] for name in ASPECTS}
    together, n_rows = _cpu(frame, list(ASPECTS))
    return Point(n_groups, n_rows, together, alone)


def _cpu(frame: pl.DataFrame, names: Sequence[str]) -> tuple[float, int]:
    start = time.process_time()
    tables = measure_aspects(frame, CONTRASTS, names)
    return time.process_time() - start, sum(table.height for table in tables.values())


# --- the loop ---------------------------------------------------------------------------------


def loop(n_groups: int) -> float:
    """The CPU seconds of one group and pair of views, one library call after another."""
    frame = decisions(n_groups * N_ITEMS * len(RUNS)).filter(pl.col("rank") > 0)
    groups = frame.partition_by("rater", "dataset", "level", "seed")
    start = time.process_time()
    for group in groups:
        runs = group.filter(pl.col("view").is_in(["base", "reversed"]))
        wide = runs.pivot(["view", "repeat"], index="item", values="rank").drop_nulls()
        names = [f'{{"{view}",{repeat}}}' for view in ("base", "reversed") for repeat in (0, 1)]
        library([wide[name].to_numpy() for name in names])
    return (time.process_time() - start) / len(groups)


def library(runs: Sequence[Classes]) -> None:
    """Compute what ours computes for a pair of views that were both asked twice."""
    base, again, turned, turned_again = runs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for apart in (np.not_equal, lambda x, y: np.abs(x - y)):
            pairs = [(base, turned), (base, turned_again), (again, turned), (again, turned_again)]
            across = np.mean([apart(x, y) for x, y in pairs], axis=0)
            within = (apart(base, again) * 1.0 + apart(turned, turned_again)) / 2
            _bootstrap(across - within)
        _bootstrap(np.abs(base - turned) / (N_CLASSES - 1))
        table = SquareTable(
            flip_matrices(base, turned, N_CLASSES, one_group(len(base)))[0], shift_zeros=False
        )
        table.symmetry()
        table.homogeneity()
        stats.wilcoxon(turned - base)
        for score in (_kappa, _quadratic, _alpha):
            stats.bootstrap(
                (base, turned), score, paired=True, vectorized=False, n_resamples=RESAMPLES
            )


def _bootstrap(values: npt.NDArray[np.float64]) -> None:
    stats.bootstrap((values,), np.mean, n_resamples=RESAMPLES, vectorized=True)


def _kappa(x: Classes, y: Classes) -> float:
    return float(cohen_kappa_score(x, y))


def _quadratic(x: Classes, y: Classes) -> float:
    return float(cohen_kappa_score(x, y, weights="quadratic"))


def _alpha(x: Classes, y: Classes) -> float:
    return float(ordinal_alpha(coincidences(np.stack([x, y], axis=1), N_CLASSES).sum(axis=0)))


# --- the result -------------------------------------------------------------------------------


def show(points: Sequence[Point], by_loop: float) -> None:
    title = f"aspects of a study, {N_ITEMS * len(RUNS):,} decisions a group: CPU seconds"
    rows = []
    for at in points:
        alone = (f"{seconds:.2f}" for seconds in at.by_aspect.values())
        each = f"{1e3 * at.cpu / at.n_groups:.1f}"
        rows.append([f"{at.n_groups}", f"{at.n_rows:,}", *alone, f"{at.cpu:.2f}", each])
    show_table(title, ("groups", "rows", *ASPECTS, "together", "ms a group"), rows)
    print(f"the loop, one pair of views of one group: {by_loop:.2f} s")


def goals(points: Sequence[Point], by_loop: float) -> list[Goal]:
    last, pairs = points[-1], [contrast for contrast in CONTRASTS if contrast.is_pair]
    n_repeated = sum(REPEATED.issuperset(contrast.views) for contrast in pairs)
    ours = last.by_aspect["excess"] / (last.n_groups * n_repeated)
    ours += sum(last.by_aspect[name] for name in RACED) / (last.n_groups * len(pairs))
    each = [at.cpu / at.n_groups for at in points]
    found = [
        Goal(f"aspects of {last.n_groups} groups, {RESAMPLES:,} draws, CPU s", last.cpu, "<=", 10),
        Goal("excess, direction and severity, library loop / ours", by_loop / ours, ">=", 100),
    ]
    if len(each) > 1:
        steps = max(more / less for less, more in pairwise(each))
        found.append(Goal("aspects, CPU of a group, largest step of the curve", steps, "<=", 1.5))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", type=int, nargs="+", default=[3, 10, 30])
    parser.add_argument("--groups", type=int, default=4, help="groups of the library loop")
    options = parser.parse_args()
    by_loop = loop(options.groups)
    points = [point(n_levels) for n_levels in options.levels]
    show(points, by_loop)
    show_goals(goals(points, by_loop))


if __name__ == "__main__":
    main()
