"""Look before you spend: `try` shows how replies are read; a run stops unreadable raters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flipmeter as fm
from conftest import Cli
from flipmeter.errors import Unreadable

SCORES = list(range(11))
OWN = {"shots": 0, "label_format": "values"}
SAYS = {
    "silent": "def rate(question):\n    return 'Let me think about it.'\n",
    "first": "def rate(question):\n    return question.labels[0].text\n",
    "score": "def rate(question):\n    return str(len(question.text) % 11)\n",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"Answer {n} {'is right' * (n % 7)}" for n in range(30)]
    Path("answers.csv").write_text("\n".join(["body", *rows]), encoding="utf-8")
    for name, code in SAYS.items():
        Path(f"{name}.py").write_text(code, encoding="utf-8")
    return tmp_path


def study(*raters: str, **keys: Any) -> fm.Study:
    texts = {"file": "answers.csv", "text": "body", "label": None, "scale": SCORES}
    return fm.Study(
        models=[f"python/{name}.py:rate" for name in raters],
        datasets=[texts],
        **{"base": OWN, "test_size": 30, "probes": ["label_order"], **keys},
    )


def test_a_rater_that_cannot_be_read_is_stopped_and_the_others_go_on(here: Path) -> None:
    run = study("silent", "first").run("runs/both", trust=True)
    assert set(run.decisions["rater"]) == {"python/first.py:rate"}
    assert "python/silent.py:rate on answers: 10 of its first 10 replies" in run.stopped
    assert run.environment["asked"]["asked"] == 10 + 30 * 2 * 2


def test_with_nobody_left_there_is_no_run(here: Path) -> None:
    with pytest.raises(Unreadable, match="no label that can be read"):
        study("silent").run("runs/none", trust=True)
    assert not Path("runs/none/run.json").exists()
    run = study("silent").run("runs/none", trust=True, anyway=True)
    assert run.verdicts["word"].to_list() == ["unreadable"]


def test_a_level_that_cannot_be_read_is_left_out_alone(here: Path) -> None:
    code = "def rate(question):\n    return question.labels[0].text.replace('A', '?')\n"
    Path("picky.py").write_text(code, encoding="utf-8")
    run = study("picky", vary={"label_format": ["letter"]}).run("runs/picky", trust=True)
    assert set(run.decisions["level"]) == {""}
    assert "(label_format=letter)" in run.stopped


def test_the_papers_mode_asks_all_the_same(here: Path) -> None:
    assert not study("silent", mode="paper").run("runs/paper", trust=True).stopped


def test_a_label_that_names_another_class_is_caught(here: Path) -> None:
    with pytest.raises(Unreadable, match=r"is the name of another class.*label_format: values"):
        study("score", base={"shots": 0}).run("runs/shifted", trust=True)
    assert not study("score").run("runs/own", trust=True).stopped


def test_try_shows_every_view_and_how_it_is_read(here: Path, cli: Cli) -> None:
    trial = study("first").try_out(2, trust=True)
    rows = [*trial.rows()]
    assert [(row["view"], row["reply"], row["class"]) for row in rows] == [
        *[("base", "0", "0")] * 2,
        *[("reversed", "10", "10")] * 2,
    ]
    assert not trial.doubts
    assert "class as meant" in str(trial)


@pytest.fixture
def written(here: Path) -> Callable[[str], str]:
    def write(rater: str) -> str:
        Path("study.yaml").write_text(
            f"name: one\nmodels: [python/{rater}.py:rate]\nbase: {{shots: 0}}\n"
            "datasets: [{file: answers.csv, text: body, label: null, scale: [low, high]}]\n"
            "test_size: 30\nprobes: [label_order]\n",
            encoding="utf-8",
        )
        return "study.yaml"

    return write


def test_the_verb_ends_with_the_code_of_a_run_that_is_not_whole(
    written: Callable[[str], str], cli: Cli
) -> None:
    assert cli("try", written("first"), "--trust", "--limit", "1")[0] == 0
    silent = written("silent")
    assert cli("try", silent, "--trust")[0] == 4
    assert cli("run", silent, "--trust")[0] == 4
    assert cli("run", silent, "--trust", "--anyway")[0] == 0
    code, out, _ = cli("try", silent, "--trust", "--json", "--limit", "1")
    assert code == 4, "two replies without a label are enough for a person who looks"
    assert {row["class"] for row in json.loads(out)["replies"]} == {"unparsed"}
