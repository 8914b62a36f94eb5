"""Datasets -> sizes: how many rows to rate and to show, where a study does not say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from flipmeter.data import Balance
from flipmeter.decide import open_pipeline
from flipmeter.study.draws import draw_sample
from flipmeter.study.file import Study
from flipmeter.types import Dataset, Problem

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
    if study.mode == "paper" or not free or _fits(study, datasets):
        return study
    shots: Sequence[int] = SHOTS if "shots" in free else (study.style.shots,)
    if any(open_pipeline(one.pipeline).traits.needs_demos for one in study.levels().values()):
        shots = [n for n in shots if n]
    balances = BALANCES if "balance" in free else (study.balance,)

    def rows(n_shots: int, balance: Balance) -> int:
        tried = _sized(study, DrawSizes(1, balance, n_shots))
        return min(_n_rows(tried, one, sparing="shots" in free) for one in datasets)

    found = [*sizes_for(rows, study.test_size, shots, balances)]
    wanted = 1 if "test_size" in free else study.test_size
    enough = [sizes for sizes in found if sizes.test_size >= wanted]
    if enough or not found:
        return _sized(study, enough[0]) if enough else study
    return _sized(study, replace(found[0], test_size=study.test_size))


def fit_note(study: Study, sized: Study, dataset: Dataset) -> str:
    """The sizes that a study was given because of a dataset; "" if it has enough rows."""
    sizes = {
        "test_size": (study.test_size, sized.test_size),
        "balance": (study.balance, sized.balance),
        "base.shots": (study.style.shots, sized.style.shots),
    }
    chosen = [f"{name} {new}" for name, (old, new) in sizes.items() if old != new]
    if not chosen or _fits(study, [dataset]):
        return ""
    return f"too few rows for the usual sizes; chosen to fit: {', '.join(chosen)}"


def _sized(study: Study, sizes: DrawSizes) -> Study:
    base = study.base if sizes.shots == study.style.shots else study.base | {"shots": sizes.shots}
    sized = {"test_size": sizes.test_size, "balance": sizes.balance, "base": base}
    return study.model_copy(update=sized)


def _fits(study: Study, datasets: Sequence[Dataset]) -> bool:
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
