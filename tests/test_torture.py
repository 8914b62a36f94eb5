"""The short form of `make torture`: whatever strikes a run, nothing is lost or paid twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

TORTURE = Path(__file__).parents[1] / "benchmarks" / "torture.py"


def test_a_short_torture_meets_every_target() -> None:
    command = [sys.executable, str(TORTURE), "--short", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("drain", "streams", "removal", "kill -9", "three processes", "damage", "faults"):
        assert f"{name}: done" in done.stderr
