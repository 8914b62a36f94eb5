"""Dataset -> Sample: the rows that a study rates and shows, with the classes of a style."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from flipmeter.data import Sample, merge, merge_sample, sample
from flipmeter.decide import open_pipeline
from flipmeter.study.file import Study
from flipmeter.types import Dataset, Style

T = TypeVar("T")


def merged_for(study: Study, dataset: Dataset, style: Style) -> Dataset:
    """The dataset with the classes of a style."""
    n_classes, groups = style.cardinality or len(dataset.task.scale), study.groups(style)
    if n_classes == len(dataset.task.scale):
        return dataset
    return _once(
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
    drawn = _once(source, ("drawn", *sizes.values()), lambda: sample(source, **sizes))
    if not study.is_remapped:
        return drawn
    scale = dataset.task.scale
    return merge_sample(drawn, scale, style.cardinality or len(scale), study.groups(style))


def _once(dataset: Dataset, what: Hashable, make: Callable[[], T]) -> T:
    """A result of a dataset, computed the first time: sizes, grid and record ask for the same."""
    if what not in dataset.derived:
        dataset.derived[what] = make()
    found: T = dataset.derived[what]
    return found
