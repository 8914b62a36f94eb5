"""The net: small studies from outside give what is on record, in any order (`tests/net`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conftest import ROOT

pytestmark = pytest.mark.long

NET = ROOT / "tests" / "net"
STUDIES = [*yaml.safe_load((NET / "studies.yaml").read_text(encoding="utf-8"))]
MACHINE = [str(ROOT).encode(), str(Path.home()).encode()]


def run(*options: str) -> tuple[int, str]:
    command = [sys.executable, str(NET / "run"), "--python", sys.executable, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("third", range(3))
def test_what_comes_out_is_on_record(third: int) -> None:
    code, told = run("--check", "--only", ",".join(STUDIES[third::3]))
    assert code == 0, f"read this as a change of the product (tests/net/README.md):\n{told[:6000]}"


def test_every_study_is_on_record_and_nothing_else() -> None:
    assert {*STUDIES} == {path.stem for path in (NET / "record").glob("*/*.txt")}


def test_the_order_of_the_studies_changes_nothing() -> None:
    code, told = run("--check", "--only", "faults,joined,orbits,stored,callable", "--seed", "5")
    assert code == 0, told[:6000]


def test_a_changed_digit_is_one_line_and_names_its_layer(tmp_path: Path) -> None:
    for name, value in (("old", "0.25"), ("new", "0.26")):
        path = tmp_path / name / "layer2" / "plain.txt"
        path.parent.mkdir(parents=True)
        path.write_text(f"verdicts | contrast=P1 | n=12 value={value}\nverdicts | same\n", "utf-8")
    code, told = run("--compare", str(tmp_path / "old"), str(tmp_path / "new"))
    assert code == 1
    assert told.splitlines() == [
        "+++ layer2/plain",
        "-verdicts | contrast=P1 | n=12 value=0.25",
        "+verdicts | contrast=P1 | n=12 value=0.26",
    ]


def test_studies_of_your_own_can_be_run(tmp_path: Path) -> None:
    study = {
        "models": ["sim/honest"],
        "datasets": ["reviews"],
        "test_size": 5,
        "base": {"shots": 1},
    }
    studies = {"mine": {"study": study, "steps": ["run", "api"]}}
    (tmp_path / "studies.yaml").write_text(yaml.safe_dump(studies), "utf-8")
    assert run("--studies", str(tmp_path), "--out", str(tmp_path / "out")) == (0, "")
    assert "rank: " in (tmp_path / "out" / "layer1" / "mine.txt").read_text("utf-8")


def test_what_is_stored_names_no_folder_of_a_machine() -> None:
    stored = {path: path.read_bytes() for path in (NET / "stored").rglob("*") if path.is_file()}
    assert stored
    assert [path for path in stored if any(folder in stored[path] for folder in MACHINE)] == []
