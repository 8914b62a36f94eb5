"""Dataset -> Sample: as many rows to rate and to show as fit it, where a study does not say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from flipmeter.data.sampling import Balance, Sample, merge, merge_sample, sample
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.study.file import Study
from flipmeter.types import Dataset, Style

T = TypeVar("T")


def merged_for(study: Study, dataset: Dataset, style: Style) -> Dataset:
    """The dataset with the classes of a style."""
    n_classes, groups = style.cardinality or len(dataset.task.scale), study.groups(style)
    if n_classes == len(dataset.task.scale):
        return dataset
    return _compute_once(
        dataset, ("merged", n_classes, repr(groups)), lambda: merge(dataset, n_classes, groups)
    )


def draw_sample(study: Study, dataset: Dataset, style: Style, seed: int) -> Sample:
    """Draw from the merged classes, or from the full scale to merge what was drawn."""
    source = dataset if study.is_remapped else merged_for(study, dataset, style)
    levels = study.levels_on(dataset.name).values()
    is_apart = any(open_pipeline(one.pipeline).traits.calibration == "apart" for one in levels)
    sizes: dict[str, Any] = {
        "test_size": study.test_size,
        "shots": style.shots,
        "seed": seed,
        "balance": study.balance,
        "n_calibration": study.calibration_size if is_apart else 0,
        "needs_pool": any(one.style.shots for one in levels),
    }
    drawn = _compute_once(source, ("drawn", *sizes.values()), lambda: sample(source, **sizes))
    if not study.is_remapped:
        return drawn
    scale = dataset.task.scale
    return merge_sample(drawn, scale, style.cardinality or len(scale), study.groups(style))


def _compute_once(dataset: Dataset, what: Hashable, make: Callable[[], T]) -> T:
    """A result of a dataset, computed the first time: sizes, grid and record ask for the same."""
    if what not in dataset.derived:
        dataset.derived[what] = make()
    found: T = dataset.derived[what]
    return found


SHOTS = (5, 3, 2, 1, 0)
BALANCES: tuple[Balance, ...] = ("equal", "proportional")


@dataclass(frozen=True)
class DrawSizes:
    """Items to rate, how they are shared out over the classes, and demonstrations per class."""

    test_size: int
    balance: Balance
    shots: int


Rows = Callable[[int, Balance], int]
"""Rows that can be rated beside so many demonstrations per class; 0 if too few are left."""


def sizes_for(
    rows: Rows, most: int, shots: Sequence[int] = SHOTS, balances: Sequence[Balance] = BALANCES
) -> Iterator[DrawSizes]:
    """Sizes that the rows allow, those with the most demonstrations first.

    Classes get equal shares unless less than half of what could be rated would be.
    """
    for n_shots in shots:
        found = {balance: min(most, rows(n_shots, balance)) for balance in balances}
        for balance, n in found.items():
            if n and 2 * n >= max(found.values()):
                yield DrawSizes(n, balance, n_shots)
                break


def fitted(study: Study, datasets: Sequence[Dataset]) -> Study:
    """The study with the sizes that its data allow, where it names none and the usual do not fit.

    The paper's sizes are part of its method.
    """
    free = [name for name in ("test_size", "balance") if name not in study.model_fields_set]
    if not any("shots" in levels for levels in (study.base, study.vary, *study.configs.values())):
        free.append("shots")
    if study.mode == "paper" or not free or _study_fits(study, datasets):
        return study
    shots: Sequence[int] = SHOTS if "shots" in free else (study.style.shots,)
    if any(open_pipeline(one.pipeline).traits.needs_demos for one in study.levels().values()):
        shots = [n for n in shots if n]
    balances = BALANCES if "balance" in free else (study.balance,)

    def rows(n_shots: int, balance: Balance) -> int:
        tried = _resize_study(study, DrawSizes(1, balance, n_shots))
        return min(_n_rows(tried, one, sparing="shots" in free) for one in datasets)

    found = [*sizes_for(rows, study.test_size, shots, balances)]
    wanted = 1 if "test_size" in free else study.test_size
    enough = [sizes for sizes in found if sizes.test_size >= wanted]
    if enough or not found:
        return _resize_study(study, enough[0]) if enough else study
    return _resize_study(study, replace(found[0], test_size=study.test_size))


def fit_note(study: Study, sized: Study, dataset: Dataset) -> str:
    """The sizes that a study was given because of a dataset; "" if it has enough rows."""
    sizes = {
        "test_size": (study.test_size, sized.test_size),
        "balance": (study.balance, sized.balance),
        "base.shots": (study.style.shots, sized.style.shots),
    }
    chosen = [f"{name} {new}" for name, (old, new) in sizes.items() if old != new]
    if not chosen or _study_fits(study, [dataset]):
        return ""
    return f"too few rows for the usual sizes; chosen to fit: {', '.join(chosen)}"


def _resize_study(study: Study, sizes: DrawSizes) -> Study:
    base = study.base if sizes.shots == study.style.shots else study.base | {"shots": sizes.shots}
    sized = {"test_size": sizes.test_size, "balance": sizes.balance, "base": base}
    return study.model_copy(update=sized)


def _study_fits(study: Study, datasets: Sequence[Dataset]) -> bool:
    try:
        for dataset in datasets:
            for level in study.levels_on(dataset.name).values():
                draw_sample(study, dataset, level.style, study.seeds[0])
    except Problem:
        return False
    return True


def _n_rows(study: Study, dataset: Dataset, *, sparing: bool) -> int:
    """Rows of a dataset that can be rated; if `sparing`, 0 if fewer would be rated than shown."""
    levels = study.levels_on(dataset.name).values()
    try:
        drawn = [draw_sample(study, dataset, level.style, study.seeds[0]) for level in levels]
    except Problem:
        return 0
    shown = max((len(one.demos) for one in drawn), default=0)
    n = min((one.n_available for one in drawn), default=0)
    is_apart = dataset.pool or dataset.demos is not None
    return 0 if sparing and not is_apart and n < shown else n
