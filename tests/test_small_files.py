"""Sizes that a study does not name fit its data, and the run says what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flipmeter as fm
from flipmeter.errors import Problem
from flipmeter.study.file import Study
from flipmeter.study.grid import conditions
from flipmeter.study.sizes import fitted

Write = Callable[[str, str], Path]
CLASSES = ("low", "medium", "high")


def study_of(
    write: Write, n_rows: int, classes: tuple[str, ...] = CLASSES, **keys: Any
) -> fm.Study:
    rows = [f"ticket {n},{classes[n % len(classes)]}" for n in range(n_rows)]
    path = write("tickets.csv", "\n".join(["text,severity", *rows]))
    source = {"file": str(path), "label": "severity", "scale": [*CLASSES]}
    return fm.Study(models=["sim/first-slot"], datasets=[source], probes=["label_order"], **keys)


def sizes(study: Study) -> tuple[int, str, int]:
    sized = fitted(study, study.load())
    return sized.test_size, sized.balance, sized.style.shots


def test_a_file_of_nine_rows_shows_one_of_each_class_and_rates_the_rest(write: Write) -> None:
    study = study_of(write, 9)
    assert sizes(study) == (6, "equal", 1)
    assert {len(one.items) for one in conditions(study)} == {6}


def test_a_rare_class_is_rated_in_proportion(write: Write) -> None:
    study = study_of(write, 90, ("low",) * 8 + ("medium", "high"))
    assert sizes(study)[1] == "proportional"


def test_large_files_keep_the_usual_sizes(write: Write) -> None:
    study = study_of(write, 360)
    assert fitted(study, study.load()) is study


def test_what_the_study_names_is_kept_or_refused(write: Write) -> None:
    assert sizes(study_of(write, 9, test_size=3)) == (3, "equal", 1)
    assert sizes(study_of(write, 9, base={"shots": 2})) == (3, "equal", 2)
    with pytest.raises(Problem, match="its equal share of test_size 30 is 10"):
        conditions(study_of(write, 9, test_size=30))
    with pytest.raises(Problem, match="shots 5 needs 5"):
        conditions(study_of(write, 9, mode="paper"))


def test_at_most_so_many_items_may_be_fewer(write: Write) -> None:
    assert sizes(study_of(write, 9).limited(50))[0] == 6
    assert sizes(study_of(write, 9).limited(4))[0] == 4


def test_plan_run_and_record_tell_the_chosen_sizes(write: Write, tmp_path: Path) -> None:
    study = study_of(write, 9)
    note = "tickets: too few rows for the usual sizes; chosen to fit: test_size 6, base.shots 1"
    assert note in str(study.plan(store=tmp_path / "no.sqlite"))
    run = study.run(tmp_path / "run", store=tmp_path / "replies.sqlite")
    assert note in str(run)
    held = run.study
    assert (held.test_size, held.style.shots) == (6, 1)
