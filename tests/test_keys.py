"""Request keys stay what they are: a store is worth what its replies cost."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from flipmeter.run.rate import first_round, seat
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions

GOLDEN = json.loads((Path(__file__).parent / "cases" / "keys.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["about"])
def test_keys_are_golden(case: dict[str, Any]) -> None:
    grid = conditions(read_study(case["study"]))
    plan = first_round(grid, {seat(condition): "endpoint/model" for condition in grid})
    keys = [request.key for request in plan.requests]
    assert (len(keys), keys[0]) == (case["n"], case["first"])
    assert hashlib.sha256("".join(sorted(keys)).encode()).hexdigest() == case["all"]
