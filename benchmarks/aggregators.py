"""Time the aggregators on 10^5 items with 25 comparisons each, and a naive loop beside them.

    python benchmarks/aggregators.py [--items 100000] [--naive 50]

The naive loop (tests/naive_aggregators.py: one item at a time) gets the first few items only, and
its seconds are scaled to all of them; on those the classes must agree. `noisy` items come from a
comparator that errs more often between near classes; `random` ones from no comparator at all, so
that hardly two have the same counts and none can share a Bradley-Terry solution.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np
import numpy.typing as npt
from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table

from flipmeter.decide import aggregate
from flipmeter.types import Mode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from naive_aggregators import NAIVE

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
N_CLASSES, SHOTS = 5, 5
LABELS = np.repeat(np.arange(1, N_CLASSES + 1), SHOTS)


@dataclass(frozen=True)
class Race:
    """CPU seconds for all items: ours as measured, the naive loop's scaled up."""

    name: str
    mode: Mode
    items: str
    ours: float
    naive: float

    @property
    def row(self) -> tuple[str, ...]:
        ratio = f"{self.naive / self.ours:,.0f} x"
        return self.name, self.mode, self.items, f"{self.ours:.3f}", f"{self.naive:,.1f}", ratio


def noisy(n_items: int) -> Ints:
    """Compare items of each class with every demonstration in both orders, with logistic noise."""
    rng = np.random.default_rng(0)
    gold = rng.integers(1, N_CLASSES + 1, n_items)
    chance = 1 / (1 + np.exp(-2.0 * (gold[:, None] - LABELS)))
    first, second = (rng.random(chance.shape) < chance for _ in range(2))
    outcomes: Ints = first.astype(np.int64) + second - 1
    return outcomes


def random(n_items: int) -> Ints:
    return np.random.default_rng(0).integers(-1, 2, (n_items, len(LABELS)))


def races(n_items: int, n_naive: int) -> Iterator[Race]:
    """Run every aggregator in every mode on both kinds of items, after one small warm-up."""
    for items, outcomes in (("noisy", noisy(n_items)), ("random", random(n_items))):
        for name in NAIVE:
            for mode in get_args(Mode):
                aggregate(name, outcomes[:10], LABELS, N_CLASSES, mode=mode)
                yield _race(name, mode, items, outcomes, n_naive)


def _race(name: str, mode: Mode, items: str, outcomes: Ints, n_naive: int) -> Race:
    few, labels, twin = outcomes[:n_naive].tolist(), LABELS.tolist(), NAIVE[name]
    ours, found = _timed(lambda: aggregate(name, outcomes, LABELS, N_CLASSES, mode=mode))
    naive, each = _timed(lambda: [twin(row, labels, N_CLASSES, mode).rank for row in few])
    assert found.ranks[: len(few)].tolist() == each, f"{name} and its twin disagree"
    return Race(name, mode, items, ours, naive * len(outcomes) / len(few))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def show(found: Sequence[Race], n_items: int, n_naive: int) -> None:
    title = f"{n_items:,} items x {len(LABELS)}; the naive loop ran on {n_naive} and is scaled"
    table = Table("aggregator", "mode", "items", "CPU s", "naive, CPU s", "ratio", title=title)
    for race in found:
        table.add_row(*race.row)
    Console(width=120).print(table)


def _goal(found: Sequence[Race], items: str, n_items: int) -> Goal:
    slowest = max((race for race in found if race.items == items), key=lambda race: race.ours)
    what = f"{n_items:,} {items} items x {len(LABELS)}, slowest aggregator ({slowest.name}), CPU s"
    return Goal(what, slowest.ours, "<=", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--naive", type=int, default=50, help="items that the naive loop gets")
    options = parser.parse_args()
    found = list(races(options.items, options.naive))
    show(found, options.items, options.naive)
    show_goals([_goal(found, items, options.items) for items in ("noisy", "random")])


if __name__ == "__main__":
    main()
