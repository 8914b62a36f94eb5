"""Evidence: studies that can be read, and replies that hold no text of the data."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from conftest import ROOT, Cli
from flipmeter.ask.merge import merge
from flipmeter.ask.store import Store
from flipmeter.study.file import read_study

FOLDER = ROOT / "studies" / "evidence"
REPLIES = FOLDER / "replies.jsonl"
WEIGHTS = "qwen2.5-coder-1.5b.gguf"
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


def scripted() -> list[str]:
    """The studies of the script."""
    script = (FOLDER / "run.sh").read_text().replace("\\\n", "")
    loops = re.findall(r"^for study in (.+); do$", script, re.MULTILINE)
    return list(dict.fromkeys(name for line in loops for name in line.split()))


def test_the_script_runs_studies_that_there_are() -> None:
    assert scripted()
    assert all((FOLDER / f"qwen-{name}.yaml").is_file() for name in scripted())


@pytest.fixture
def weights() -> Path:
    """The weights that were asked, which are part of request keys, as is the engine."""
    path = Path(os.environ.get("FLIPMETER_WEIGHTS", "")) / WEIGHTS
    if not path.is_file():
        pytest.skip(f"{WEIGHTS} is not here; name its folder in FLIPMETER_WEIGHTS")
    if f" xllamacpp {version('xllamacpp')} " not in str(rows()[0]["model"]):
        pytest.skip(f"the replies are of another engine than xllamacpp {version('xllamacpp')}")
    return path


@pytest.mark.shared
def test_the_studies_replay_without_a_request(
    weights: Path, shared_data: Path, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / WEIGHTS).symlink_to(weights)
    store = tmp_path / "replies.sqlite"
    merge([REPLIES], store)
    for name in scripted():
        told = ("--data-dir", str(shared_data), "--store", str(store), "--anyway")
        code, _, error = cli("run", str(FOLDER / f"qwen-{name}.yaml"), *told)
        assert code in (0, 1, 3), error
        with Store(store) as replies:
            assert len(replies) == len(rows()), f"qwen-{name} asked for replies that are not stored"
