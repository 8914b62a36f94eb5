"""Time the statistics: grouped counts against a library loop, and the curve to 10^7 decisions.

    python benchmarks/statistics_stage.py [--powers 4 5 6 7] [--groups 200]

The library loop scores each group with scikit-learn and scipy, on the same arrays in the same run;
all nine scores from grouped counts are compared with each library call alone. Every size of the
curve gets a process of its own, so that its peak memory is its own: `before` is the peak with the
decisions in memory and nothing measured yet. (The file is not called `statistics`: it would hide
that module of Python from every script beside it.)
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import polars as pl
from goals import Goal, alone, show_goals, show_table
from scipy import stats
from sklearn.metrics import accuracy_score, cohen_kappa_score, f1_score, mean_absolute_error

from flipmeter.prompt.probes import probes
from flipmeter.stats.estimates import measure
from flipmeter.stats.groups import Groups, Ranks
from flipmeter.stats.judge import verdicts
from flipmeter.stats.scores import confusions, scores

T = TypeVar("T")
Score = Callable[[Ranks, Ranks], float]

N_ITEMS, N_CLASSES, N_SEEDS, N_DATASETS, N_LEVELS = 200, 5, 3, 6, 10
GROUPS_PER_RATER = N_SEEDS * N_LEVELS * N_DATASETS
FAULTS = 0.02
VIEWS = ("base", "reversed", "random", "ascending", "descending", "after", "split")
RUNS = [*((view, 0) for view in VIEWS), *((view, 1) for view in ("base", "reversed", "random"))]
CONTRASTS = [contrast for _, probe in probes.items() for contrast in probe.contrasts]
LIBRARY: dict[str, Score] = {
    "accuracy": accuracy_score,
    "macro_f1": lambda gold, predicted: f1_score(
        gold, predicted, labels=range(1, N_CLASSES + 1), average="macro", zero_division=0
    ),
    "mae": mean_absolute_error,
    "qwk": lambda gold, predicted: cohen_kappa_score(gold, predicted, weights="quadratic"),
    "spearman": lambda gold, predicted: float(stats.spearmanr(gold, predicted).statistic),
    "kendall_tau_b": lambda gold, predicted: stats.kendalltau(gold, predicted).statistic,
}


@dataclass(frozen=True)
class Race:
    """CPU seconds per group: one score by the library, all nine from grouped counts."""

    name: str
    library: float
    grouped: float

    @property
    def ratio(self) -> float:
        return self.library / self.grouped


@dataclass(frozen=True)
class Point:
    """Cost of one size of the curve, in seconds and GiB."""

    n_decisions: int
    n_rows: int
    measuring: float
    judging: float
    cpu: float
    before: float
    peak: float


def decisions(n: int) -> pl.DataFrame:
    """Simulate n decisions: groups of 200 items under seven views, three of them asked twice."""
    n_groups = max(1, n // (N_ITEMS * len(RUNS)))
    starts = range(0, n_groups, GROUPS_PER_RATER)
    return pl.concat(
        [_rated(start, min(GROUPS_PER_RATER, n_groups - start)) for start in starts], rechunk=False
    )


def _rated(start: int, n_groups: int) -> pl.DataFrame:
    """Simulate one rater, small enough that its making leaves no mark on the peak memory."""
    rng, shape = np.random.default_rng(start), (n_groups, len(RUNS), N_ITEMS)
    gold = rng.integers(1, N_CLASSES + 1, (n_groups, 1, N_ITEMS))
    slips = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.4)
    rank = np.clip(gold + slips, 1, N_CLASSES) * (rng.random(shape) >= FAULTS)
    group, run, item = (places.ravel() for places in np.indices(shape))
    views, repeats = (pl.Series(of) for of in zip(*RUNS, strict=True))
    cells = {"group": start + group, "view": views[run], "repeat": repeats[run], "place": item}
    cells |= {"rank": rank.ravel(), "gold": np.broadcast_to(gold, shape).ravel()}
    return _named(pl.DataFrame(cells)).drop("group", "place")


def _named(cells: pl.DataFrame) -> pl.DataFrame:
    """Say whose decisions these are: seeds within levels within datasets within raters."""
    group, digest = pl.col("group"), pl.struct("group", "view", "place").hash()
    dataset = pl.format("dataset-{}", group // (N_SEEDS * N_LEVELS) % N_DATASETS)
    return cells.with_columns(
        rater=pl.format("model-{}", group // GROUPS_PER_RATER),
        dataset=dataset,
        level=pl.format("level={}", group // N_SEEDS % N_LEVELS),
        seed=group % N_SEEDS,
        item=pl.format("{}-{}", dataset, "place"),
        n_classes=pl.lit(N_CLASSES),
        prompt=digest.cast(pl.String),
        completion_tokens=1 + digest % 40,
    )


def races(n_groups: int) -> list[Race]:
    """Score groups one by one with the libraries, and all at once from counts; they must agree."""
    rng, shape = np.random.default_rng(1), (n_groups, N_ITEMS)
    gold = rng.integers(1, N_CLASSES + 1, shape)
    slips = rng.integers(-1, 2, shape) * (rng.random(shape) < 0.4)
    predicted = np.clip(gold + slips, 1, N_CLASSES)
    of = Groups(np.repeat(np.arange(n_groups), N_ITEMS), n_groups)
    grouped, values = _best(
        lambda: scores(confusions(gold.ravel(), predicted.ravel(), N_CLASSES, of))
    )
    found = []
    for name, score in LIBRARY.items():
        library, each = _best(partial(_loop, score, gold, predicted))
        np.testing.assert_allclose(each, values[name])
        found.append(Race(name, library / n_groups, grouped / n_groups))
    together = sum(race.library for race in found)
    return [*found, Race("these six", together, grouped / n_groups)]


def _loop(score: Score, gold: Ranks, predicted: Ranks) -> list[float]:
    return [score(*group) for group in zip(gold, predicted, strict=True)]


def _best(work: Callable[[], T], times: int = 3) -> tuple[float, T]:
    """The least CPU seconds of a few runs, which a busy machine distorts less than wall."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def curve(powers: Sequence[int]) -> Iterator[Point]:
    """Measure and judge 10^power decisions, each size in a fresh process."""
    for power in powers:
        yield alone(point, 10**power)


def point(n: int) -> Point:
    """Compute the full set of estimates and verdicts of n decisions."""
    frame = decisions(n)
    before, start, cpu = _peak(), time.perf_counter(), time.process_time()
    estimated = measure(frame, CONTRASTS)
    middle = time.perf_counter()
    judged = verdicts(frame, CONTRASTS)
    return Point(
        n_decisions=frame.height,
        n_rows=estimated.height + judged.height,
        measuring=middle - start,
        judging=time.perf_counter() - middle,
        cpu=time.process_time() - cpu,
        before=before,
        peak=_peak(),
    )


def _peak() -> float:
    """The most memory this process ever held, in GiB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**30 if sys.platform == "darwin" else 2**20)


def show_races(found: Sequence[Race], n_groups: int) -> None:
    title = f"{n_groups} groups of {N_ITEMS} items, {N_CLASSES} classes"
    rows = []
    for race in found:
        microseconds = [f"{1e6 * seconds:.1f}" for seconds in (race.library, race.grouped)]
        rows.append([race.name, *microseconds, f"{race.ratio:.0f} x"])
    show_table(title, ("", "library, CPU µs per group", "grouped, all nine", "ratio"), rows)


def show_curve(points: Iterable[Point]) -> None:
    title = f"the full set, {N_ITEMS * len(RUNS):,} decisions a group: s, CPU µs each, peak GiB"
    names = ("decisions", "rows", "measure", "judge", "CPU", "each", "before", "peak")
    rows = []
    for at in points:
        each = 1e6 * at.cpu / at.n_decisions
        numbers = (at.measuring, at.judging, at.cpu, each, at.before, at.peak)
        counts = (f"{at.n_decisions:,}", f"{at.n_rows:,}")
        rows.append([*counts, *(f"{number:.2f}" for number in numbers)])
    show_table(title, names, rows)


def race_goals(found: Sequence[Race]) -> list[Goal]:
    ratio = {race.name: race.ratio for race in found}
    return [
        Goal("scores of many groups, library loop / grouped counts", ratio["these six"], ">=", 100),
        Goal("macro-F1 alone, scikit-learn / all nine scores", ratio["macro_f1"], ">=", 100),
    ]


def curve_goals(points: Sequence[Point]) -> list[Goal]:
    """Largest growth of the cost of a decision from one size to the next; 1 is linear."""
    each = [at.cpu / at.n_decisions for at in points]
    steps = [more / less for less, more in pairwise(each)]
    what = (
        f"statistics to {points[-1].n_decisions:,} decisions, CPU each, largest step of the curve"
    )
    return [Goal(what, max(steps), "<=", 1.5)] if steps else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--powers", type=int, nargs="+", default=[4, 5, 6, 7])
    parser.add_argument("--groups", type=int, default=200, help="groups of the library loop")
    options = parser.parse_args()
    found = races(options.groups)
    show_races(found, options.groups)
    points = list(curve(options.powers))
    show_curve(points)
    show_goals([*race_goals(found), *curve_goals(points)])


if __name__ == "__main__":
    main()
