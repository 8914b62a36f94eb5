"""Time the core on the contrasts of a large study: how many rows a second, and is it linear?

    python benchmarks/core_speed.py [--rows 900] [--items 200] [--seeds 3] [--draws 2000]

The default is 200 items x 7 views x 30 levels x 5 datasets x 3 seeds: six pair contrasts of each
level and dataset, half of them with an effect that puts p at its floor. Seconds are of the process.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt

from flipmeter.measure.inference import Row, verdicts

Ints = npt.NDArray[np.int64]


def planted(rng: np.random.Generator, *, items: int, seeds: int, moved: float) -> Row:
    """A row with noise of 20 % in both views, and some items that move by two classes."""
    at = np.repeat(rng.integers(2, 4, items), seeds)
    away = np.repeat(2 * (rng.random(items) < moved), seeds)
    first, again = (
        np.stack([_slipped(rng, at), _slipped(rng, at + away)], axis=1) for _ in range(2)
    )
    return Row(first, again, np.repeat(np.arange(items), seeds))


def _slipped(rng: np.random.Generator, at: Ints) -> Ints:
    slips = np.where(rng.random(len(at)) < 0.2, rng.choice([-1, 1], len(at)), 0)
    return np.clip(at + slips, 1, 5)


def timed(rows: int, items: int, seeds: int, draws: int) -> tuple[float, int]:
    """Seconds for all verdicts, and the rows whose p is at or below the floor of the draws."""
    rng = np.random.default_rng(1)
    study = [planted(rng, items=items, seeds=seeds, moved=0.25 * (row % 2)) for row in range(rows)]
    start = time.process_time()
    found = verdicts(study, draws=draws)
    spent = time.process_time() - start
    return spent, sum(one.p is not None and one.p <= 1 / (draws + 1) for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=900)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draws", type=int, default=2000)
    options = parser.parse_args()
    for part in (4, 2, 1):
        rows = options.rows // part
        spent, floor = timed(rows, options.items, options.seeds, options.draws)
        each = f"{1000 * spent / rows:5.2f} ms a row"
        print(f"{rows:6} rows  {spent:6.2f} s  {each}  {floor} at floor")


if __name__ == "__main__":
    main()
