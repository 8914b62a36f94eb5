"""A program that uses the public names, for `mypy --strict` in an environment with the wheel only.

`.ci/wheel` checks it there; nothing here is run.
"""

from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt
import polars as pl

import flipmeter as fm

Labels = list[str]


def rate(question: fm.Question) -> str:
    """A rater of one's own: the label whose class has the longest name."""
    assert_type(question.labels, tuple[fm.Label, ...])
    assert_type(question.demos, tuple[fm.Example, ...])
    return max(question.labels, key=lambda label: len(label.name)).text


def study_it(folder: Path) -> pl.DataFrame:
    study = fm.Study(models=["local/smollm2-135m"], datasets=["reviews"], repeats=2)
    assert_type(fm.read_study("study.yaml"), fm.Study)
    run = study.run(folder)
    assert_type(run, fm.Run)
    assert_type(run.estimates, pl.DataFrame)
    assert_type(run.warnings, dict[str, str])
    assert_type(run.stopped, str)
    classifier = run.select(max_flip={"P1": 0.1}).classifier()
    assert_type(classifier, fm.OrdinalClassifier)
    return run.verdicts


def label_it(texts: list[str], labels: Labels) -> npt.NDArray[np.float64]:
    classifier = fm.OrdinalClassifier("openai/gpt-5.4", scale=["low", "high"], shots=None)
    classifier.fit(texts, labels).save("rater.yaml")
    assert_type(classifier.agreement_, npt.NDArray[np.float64])
    assert_type(classifier.faults_, list[str])
    return classifier.agreement_


def measured(path: Path) -> pl.DataFrame:
    try:
        return fm.read_predictions(path).decisions
    except fm.Problem as problem:
        raise SystemExit(str(problem)) from problem


assert_type(fm.__version__, str)
