"""Texts without labels: everything but accuracy is measured, and nothing is set aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flipmeter as fm
from conftest import Cli
from flipmeter.data.files import load_file
from flipmeter.data.sampling import sample
from flipmeter.errors import Problem
from flipmeter.run.rate import writer
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Ask

N_ROWS = 30


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [f"Ticket {n}: the lid {'leaks' if n % 3 else 'is fine'}." for n in range(N_ROWS)]
    (tmp_path / "tickets.csv").write_text("\n".join(["body", *rows]), encoding="utf-8")
    (tmp_path / "shown.csv").write_text(
        "body,label\nIt burns.,high\nAll fine.,low\n", encoding="utf-8"
    )
    return tmp_path


def dataset(**options: Any) -> dict[str, Any]:
    scale = ["low", "high"]
    return {"file": "tickets.csv", "text": "body", "label": None, "scale": scale, **options}


def test_all_but_accuracy_is_measured(here: Path) -> None:
    study = {"models": ["http/x"], "datasets": [dataset()], "base": {"shots": 0}}
    with pytest.raises(Problem, match="test_size is 200"):
        conditions(read_study({**study, "test_size": 200}))
    grid = conditions(read_study(study))
    assert {len(one.items) for one in grid} == {N_ROWS}
    assert all(item.gold is None for one in grid for item in one.items)


def test_a_file_without_the_label_column_is_told_how_to_go_without(here: Path) -> None:
    unnamed = {name: value for name, value in dataset().items() if name != "label"}
    study = {"models": ["http/x"], "datasets": [unnamed], "base": {"shots": 0}}
    with pytest.raises(Problem, match=r"no column 'label'.*for a file without labels .*null"):
        conditions(read_study(study))
    study["datasets"] = [dataset(text="text")]
    with pytest.raises(Problem, match="no column 'text'") as wrong:
        conditions(read_study(study))
    assert "null" not in str(wrong.value)


def test_a_run_without_labels_says_so_and_has_verdicts(here: Path, cli: Cli) -> None:
    (here / "rater.py").write_text(
        "def rate(question):\n    return question.labels[0].text\n", encoding="utf-8"
    )
    (here / "study.yaml").write_text(
        "models: [python/rater.py:rate]\n"
        "datasets: [{file: tickets.csv, text: body, label: null, scale: [low, high]}]\n"
        "base: {shots: 0}\ntest_size: 30\nprobes: [label_order]\n",
        encoding="utf-8",
    )
    _, out, _ = cli("run", "study.yaml", "--trust", "--out", "runs/study")
    assert "accuracy: no labels" in out
    run = fm.Run("runs/study")
    assert run.verdicts["word"].to_list() == ["flips"]
    accuracy = run.estimates.filter(pl.col("metric") == "accuracy")
    assert set(accuracy["note"]) == {"no labels"}
    assert run.report("report.html").is_file()


def test_demonstrations_need_labels_of_their_own(here: Path) -> None:
    unlabelled = load_file(here / "tickets.csv", text="body", label=None, scale=["low", "high"])
    with pytest.raises(Problem, match="has no labels, so it has no demonstrations"):
        sample(unlabelled, test_size=5, shots=1, seed=0)
    shown = load_file(
        here / "tickets.csv", text="body", label=None, scale=["low", "high"], demos="shown.csv"
    )
    drawn = sample(shown, test_size=N_ROWS, shots=1, seed=0)
    assert (len(drawn.test), {demo.gold for demo in drawn.demos}) == (N_ROWS, {1, 2})


def test_a_study_without_demonstrations_sets_nothing_aside(here: Path) -> None:
    rows = [f"Ticket {n},{'low' if n % 2 else 'high'}" for n in range(N_ROWS)]
    (here / "labelled.csv").write_text("\n".join(["body,label", *rows]), encoding="utf-8")
    spec = {"file": "labelled.csv", "text": "body", "scale": ["low", "high"]}
    study = {"models": ["http/x"], "datasets": [spec], "test_size": N_ROWS, "base": {"shots": 0}}
    assert {len(one.items) for one in conditions(read_study(study))} == {N_ROWS}
    with pytest.raises(Problem, match="set aside for demonstrations"):
        conditions(read_study({**study, "vary": {"shots": [1]}}))


def test_a_prompt_file_is_asked_on_the_values_of_the_scale(here: Path) -> None:
    (here / "own.md").write_text("How bad is it, 0 to 10? {{ text }}", encoding="utf-8")
    scores = dataset(scale=list(range(11)))
    study = read_study(
        {"models": ["http/x"], "datasets": [scores], "prompt": "own.md", "test_size": 5}
    )
    (condition, *_) = conditions(study)
    prompt = writer(condition)(Ask(condition.items[0], condition.view))
    assert prompt.text.endswith(condition.items[0].text)
    assert prompt.answers == tuple(map(str, range(11)))


@pytest.mark.parametrize("scale", [["low", "high"], {"from": 0, "to": 10}])
def test_simulated_raters_rehearse_on_texts_without_labels(here: Path, scale: object) -> None:
    study = {"models": ["sim/honest"], "datasets": [dataset(scale=scale)], "test_size": N_ROWS}
    probes = {"probes": ["placement"], "demos": {"file": "shown.csv", "text": "body"}}
    moved = {"probes": ["label_order"], "base": {"shots": 0}} if isinstance(scale, list) else probes
    if not isinstance(scale, list):
        (here / "shown.csv").write_text("body,label\nIt burns.,9\nAll fine.,1.5\n")
    run = fm.Study(**study, **moved).run("runs/rehearsal")
    assert set(run.decisions["fault"]) == {""}
    assert run.decisions["rank"].n_unique() > 1
