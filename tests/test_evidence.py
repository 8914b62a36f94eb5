"""Evidence: studies that can be read, and replies that hold no text of the data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import ROOT
from flipmeter.model import Store, merge
from flipmeter.study.file import read_study

FOLDER = ROOT / "studies" / "evidence"
REPLIES = FOLDER / "replies.jsonl"
LABEL = re.compile(
    r"(Label: )?((very )?(positive|negative)|neutral|(Option_)?[1-5]|[A-E]|(Yes|No)\.?"
    r"|Passage [AB])"
)
"""Labels and answers to questions; anything else may be a text of the data."""


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in REPLIES.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_is_named_as_its_file_and_can_be_read(path: Path) -> None:
    assert read_study(path).name == path.stem


def test_stored_replies_are_labels_without_prompts() -> None:
    assert all("prompt" not in row for row in rows())
    assert [row["reply"] for row in rows() if not LABEL.fullmatch(str(row["reply"]))] == []


def test_stored_replies_can_be_merged_each_once(tmp_path: Path) -> None:
    (done,) = merge([REPLIES], tmp_path / "replies.sqlite")
    with Store(tmp_path / "replies.sqlite") as store:
        assert done.n_new == len(store) == len(rows())


def test_the_script_runs_studies_that_there_are() -> None:
    script = (FOLDER / "run.sh").read_text().replace("\\\n", "")
    loops = re.findall(r"^for study in (.+); do$", script, re.MULTILINE)
    names = [name for line in loops for name in line.split()]
    assert names
    assert all((FOLDER / f"qwen-{name}.yaml").is_file() for name in names)
