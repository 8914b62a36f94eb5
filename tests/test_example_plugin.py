"""The example plug-in: installed as a user would, its parts are listed and used by a study."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

PLUGIN = ROOT / "examples" / "plugin"
MAIN = """
import sys
from flipmeter.cli import main
for command in sys.argv[1:]:
    sys.argv[:] = ["flipmeter", *command.split()]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
PACKAGE = "(from flipmeter-example)"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the plug-in installed in `site`, and its study."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    words = ["-m", "pip", "install", *options, "--target", str(folder / "site"), str(source)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    shutil.copy(PLUGIN / "study.yaml", folder)
    return folder


def python(place: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python with the plug-in on its path."""
    path = os.pathsep.join(filter(None, (str(place / "site"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd or place, env=env, capture_output=True, text=True
    )


def flipmeter(place: Path, *commands: str) -> str:
    """What some commands print; they must succeed."""
    done = python(place, "-c", MAIN, *commands)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_parts_are_listed_with_their_package(place: Path) -> None:
    rows = [row.strip() for row in flipmeter(place, "list").splitlines() if PACKAGE in row]
    assert [row.split()[0] for row in rows] == [
        "keyword/WORD,WORD",
        "keyword",
        "middle_first",
        "pairwise+above_the_beaten",
        "above_the_beaten",
        "classes_given",
    ]


def test_importing_flipmeter_loads_no_plug_in(place: Path) -> None:
    done = python(
        place,
        "-c",
        "import sys, flipmeter.cli.list, flipmeter.run.perform, flipmeter.show.view.server\n"
        "sys.exit('flipmeter_example' in sys.modules)",
    )
    assert done.returncode == 0, done.stderr


def test_a_study_uses_all_four(place: Path) -> None:
    folder = "runs/plugged-in"
    report = f"report {folder} --out page.html"
    out = flipmeter(place, "run study.yaml", f"measure {folder}", report)
    assert "keyword/good,great" in out
    assert "M1" in out
    assert "Classes given" in out
    page = (place / "page.html").read_text(encoding="utf-8")
    assert '<section id="classes_given"' in page
    assert "above_the_beaten" in page  # in the study, which the page quotes


def test_the_parts_keep_the_laws_that_they_do_not_opt_out_of(place: Path) -> None:
    files = ["tests/test_aggregate.py", "tests/test_probe.py"]
    words = ["-q", "-p", "no:cacheprovider", "-k", "above_the_beaten or middle_first"]
    done = python(place, "-m", "pytest", *files, *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout
