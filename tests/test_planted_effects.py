"""A small version of benchmarks/planted_effects.py: what is planted is found, and nothing else."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCH = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "planted_effects.py"))
ALONE = [planted for planted in BENCH["PROPERTIES"] if "+" not in planted.name]


@pytest.mark.parametrize("planted", ALONE, ids=lambda planted: planted.name)
def test_what_is_planted_is_reported_by_its_estimators_and_by_no_other(planted: object) -> None:
    found = BENCH["matrix"]([planted], 2, 80)
    for estimator, cells in found.items():
        for name, cell in cells.items():
            assert cell.k == (cell.n if cell.is_planted else 0), (estimator, name)
