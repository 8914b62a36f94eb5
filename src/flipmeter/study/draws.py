"""Dataset -> Sample: the rows that a study rates and shows, with the classes of a style."""

from __future__ import annotations

from flipmeter.data import Sample, merge, merge_sample, sample
from flipmeter.decide import open_pipeline
from flipmeter.study.file import Study
from flipmeter.types import Dataset, Style


def merged_for(study: Study, dataset: Dataset, style: Style) -> Dataset:
    """The dataset with the classes of a style."""
    return merge(dataset, _n_classes(dataset, style), study.groups(style))


def _n_classes(dataset: Dataset, style: Style) -> int:
    return style.cardinality or len(dataset.task.scale)


def draw_sample(study: Study, dataset: Dataset, style: Style, seed: int) -> Sample:
    """Draw from the merged classes, or from the full scale to merge what was drawn."""
    source = dataset if study.is_remapped else merged_for(study, dataset, style)
    drawn = sample(
        source,
        test_size=study.test_size,
        shots=style.shots,
        seed=seed,
        balance=study.balance,
        n_calibration=_n_calibration(study, dataset),
        needs_pool=any(level.style.shots for level in study.levels_on(dataset.name).values()),
    )
    if not study.is_remapped:
        return drawn
    scale = dataset.task.scale
    return merge_sample(drawn, scale, _n_classes(dataset, style), study.groups(style))


def _n_calibration(study: Study, dataset: Dataset) -> int:
    """Number of items of a dataset held out for calibration."""
    levels = study.levels_on(dataset.name).values()
    traits = (open_pipeline(level.pipeline).traits for level in levels)
    return study.calibration_size if any(one.calibration == "apart" for one in traits) else 0
