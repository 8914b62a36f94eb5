"""Intervals of the difference between two raters, by method: lowest coverage and mean width.

    python benchmarks/difference_methods.py [--studies 400] [--resamples 400]

Raters share most of their errors, which are rare; five or three classes, 20 to 200 items. `t` is
Student's interval from leaving items out, alone or with one item more on which one rater is off by
half of the scale, three quarters, or all of it; `t, few df` takes its degrees of freedom from the
kurtosis. Widths are relative to the method that flipmeter uses.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import calibration_core
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scipy import special

from flipmeter.measure.effects.measured_items import SCORES
from flipmeter.measure.estimates.scores import scores
from flipmeter.measure.inference.differences import student_ends

Floats = npt.NDArray[np.float64]
Ends = tuple[Floats, Floats]
NAMES = SCORES["recommended"]
OURS = ("whole", "three quarters", "three quarters", "whole")
"""The unseen error that flipmeter's interval of each score allows for."""


def differences(counts: Floats) -> Floats:
    """Scores of the first rater minus the second (first axis) from joint counts."""
    both = []
    for axis in (-1, -2):
        tables = counts.sum(axis=axis)
        unread = np.zeros((*tables.shape[:-1], 1))
        found = scores(np.concatenate([unread, tables], axis=-1), names=NAMES)
        both.append(np.stack([found[name] for name in NAMES]))
    return np.asarray(both[0] - both[1])


def designs() -> Iterator[tuple[str, Floats]]:
    """Joint chances of gold and two answers, by name."""
    for n_classes in (5, 3):
        calibration_core.N_CLASSES = n_classes
        errors = calibration_core.errors
        yield f"{n_classes} classes, near", errors(own=0.03, shared=0.05, step=1)
        yield f"{n_classes} classes, across", errors(own=0.02, shared=0.05, step=n_classes - 1)
        yield f"{n_classes} classes, alike", errors(own=0.06, shared=0.3)
        yield f"{n_classes} classes, both", errors(own=0.04, shared=0.1, first_only=0.04)


def methods(counts: Floats, rng: np.random.Generator, resamples: int) -> dict[str, Ends]:
    """Every interval of one study."""
    n, value = int(counts.sum()), differences(counts)
    cells = np.argwhere(counts > 0)
    times = counts[tuple(cells.T)]
    one = np.zeros((len(cells), *counts.shape))
    one[np.arange(len(cells)), *cells.T] = 1
    moves = np.nan_to_num((n - 1) * (value[:, None] - differences(counts - one)))
    squares = (times * (moves - (times * moves).sum(axis=1, keepdims=True) / n) ** 2).sum(axis=1)
    size = np.full(len(value), n)
    found = {"t": student_ends(value, squares, size, np.zeros((len(value), 2)))}
    for name, part in (("half", 0.5), ("three quarters", 0.75), ("whole", 1.0)):
        unit = _unit(counts, value, part)
        unseen = np.stack([-unit - value, unit - value], axis=-1)
        found[name] = student_ends(value, squares, size, unseen)
        if name == "half":
            found["half, few df"] = _few(value, squares, n, unseen, times, moves)
    drawn = rng.multinomial(n, counts.ravel() / n, size=resamples).reshape(-1, *counts.shape)
    sampled = np.sort(np.nan_to_num(differences(drawn.astype(np.float64))), axis=1)
    found["percentiles"] = _quantiles(sampled, np.tile([0.025, 0.975], (len(value), 1)))
    found["BCa"] = _quantiles(sampled, _bca(sampled, value, times, moves))
    return found


def _unit(counts: Floats, value: Floats, part: float) -> Floats:
    """Root mean square move by one more item on which one rater errs by a part of the scale."""
    n, n_classes = counts.sum(), len(counts)
    step = max(1, int(np.ceil(part * (n_classes - 1) - 1e-9)))
    gold = counts.sum(axis=(1, 2)) / n
    more, weight = [], []
    for place in range(n_classes):
        for wrong in (place - step, place + step):
            if 0 <= wrong < n_classes:
                more.append(counts.copy())
                more[-1][place, wrong, place] += 1
                weight.append(gold[place])
    moved = np.nan_to_num((n + 1) * (differences(np.stack(more)) - value[:, None]))
    return np.asarray(np.sqrt((moved**2 @ np.array(weight)) / max(sum(weight), 1e-12)))


def _few(
    value: Floats, squares: Floats, n: int, unseen: Floats, times: Floats, moves: Floats
) -> Ends:
    ends = []
    for place, side in enumerate((-1.0, 1.0)):
        away = unseen[:, place]
        total = squares + away**2 * n / (n + 1)
        fourth = ((times * moves**4).sum(axis=1) + away**4) / (n + 1)
        kurtosis = fourth / np.maximum((total / (n + 1)) ** 2, 1e-12)
        free = np.clip(2 * n / np.maximum(kurtosis - 1, 2), 2, n)
        spread = np.sqrt(total / n / (n + 1))
        ends.append(value + away / (n + 1) + side * special.stdtrit(free, 0.975) * spread)
    return ends[0], ends[1]


def _bca(sampled: Floats, value: Floats, times: Floats, moves: Floats) -> Floats:
    below = (sampled < value[:, None]).mean(axis=1) / 2 + (sampled <= value[:, None]).mean(
        axis=1
    ) / 2
    bias = special.ndtri(np.clip(below, 1e-3, 1 - 1e-3))
    cubes, squares = ((times * moves**power).sum(axis=1) for power in (3, 2))
    skew = cubes / (6 * np.where(squares > 0, squares, np.inf) ** 1.5)
    shifts = [bias + (bias + z) / np.maximum(1 - skew * (bias + z), 0.1) for z in (-1.96, 1.96)]
    return np.asarray(special.ndtr(np.stack(shifts, axis=1)))


def _quantiles(sampled: Floats, chances: Floats) -> Ends:
    ends = np.stack([np.quantile(row, at) for row, at in zip(sampled, chances, strict=True)])
    return ends[:, 0], ends[:, 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--studies", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=400)
    parser.add_argument("--items", type=int, nargs="+", default=[20, 30, 60, 200])
    options = parser.parse_args()
    lowest: dict[str, list[Floats]] = {}
    widths: dict[str, list[Floats]] = {}
    for place, (_, chances) in enumerate(designs()):
        truth = differences(1e9 * chances)
        for n in options.items:
            rng = np.random.default_rng([place, n])
            covers: dict[str, Floats] = {}
            wide: dict[str, Floats] = {}
            for _ in range(options.studies):
                drawn = rng.multinomial(n, chances.ravel()).reshape(chances.shape)
                counts = drawn.astype(np.float64)
                for name, (low, high) in methods(counts, rng, options.resamples).items():
                    inside = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
                    covers[name] = covers.get(name, 0.0) + inside / options.studies
                    wide[name] = wide.get(name, 0.0) + np.nan_to_num(high - low) / options.studies
            ours = np.array([wide[name][at] for at, name in enumerate(OURS)])
            for name in covers:
                lowest.setdefault(name, []).append(covers[name])
                widths.setdefault(name, []).append(wide[name] / ours)
    show(lowest, widths, options.studies)


def show(lowest: dict[str, list[Floats]], widths: dict[str, list[Floats]], studies: int) -> None:
    table = Table(title=f"lowest coverage, and width by ours; {studies} studies a cell")
    table.add_column("one item more")
    for name in NAMES:
        table.add_column(name, justify="right")
    for name, covers in lowest.items():
        least, wide = np.min(covers, axis=0), np.mean(widths[name], axis=0)
        table.add_row(name, *cells_of(least, wide))
    Console(width=110).print(table)


def cells_of(least: Floats, wide: Floats) -> Sequence[str]:
    return [f"{low:.3f}  {width:.2f}" for low, width in zip(least, wide, strict=True)]


if __name__ == "__main__":
    main()
