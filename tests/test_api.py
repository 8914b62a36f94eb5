"""The public `Study` and `Run`: ten lines that work, and say the same as the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import flipmeter as fm
from flipmeter.errors import Problem

Cli = Callable[..., tuple[int, str, str]]

SMALL = {
    "name": "small",
    "models": ["sim/first-slot?strength=4"],
    "datasets": ["reviews"],
    "probes": ["label_order"],
    "test_size": 20,
    "base": {"shots": 1},
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> fm.Run:
    folder = tmp_path_factory.mktemp("api")
    study = fm.Study(**SMALL, vary={"label_format": ["letter"]})
    return study.run(folder / "run", store=folder / "replies.sqlite")


def test_the_ten_lines_work(here: Path) -> None:
    study = fm.Study(models=["sim/honest"], datasets=["reviews"], probes=["label_order"], repeats=2)
    assert "distinct requests" in str(study.plan())
    run = study.run("runs/first")
    assert len(run.verdicts) == 1
    assert "accuracy" in set(run.estimates["metric"])
    assert len(run.check("P1 < 0.10")) == 1
    choice = run.select(max_flip={"P1": 0.50})
    found = choice.classifier().predict([_text(run)])
    assert found.shape == (1,)
    assert run.report("first.html") == Path("first.html")
    assert "<html" in Path("first.html").read_text(encoding="utf-8")


def _text(run: fm.Run) -> str:
    """A text that a simulated rater knows."""
    return str(run.items.filter(role="test")["text"][0])


def test_a_second_run_asks_nothing(here: Path) -> None:
    study = fm.Study(**SMALL)
    assert study.run("run").environment["asked"]["asked"] > 0
    assert study.run("run").environment["asked"]["asked"] == 0


def test_runs_go_on_inside_a_running_loop(here: Path) -> None:
    study = fm.Study(**SMALL)

    async def both() -> tuple[fm.Run, fm.Run]:
        return await study.arun("first"), study.run("second")

    first, second = asyncio.run(both())
    assert_frame_equal(first.estimates, second.estimates)
    assert second.environment["asked"]["asked"] == 0


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_are_texts_or_paths(here: Path, kind: Callable[[str], str | Path]) -> None:
    Path("small.yaml").write_text(json.dumps(SMALL), encoding="utf-8")
    study = fm.read_study(kind("small.yaml"))
    assert isinstance(study, fm.Study)
    run = study.run(kind("run"), store=kind("replies.sqlite"))
    assert_frame_equal(fm.Run(kind("run")).estimates, run.estimates)
    assert run.report(kind("page.html")) == Path("page.html")
    assert run.compare(kind("run")).height > 0


def test_a_bundled_study_is_read_by_its_name() -> None:
    assert fm.read_study("demo").name == "demo"
    assert fm.read_study("demo", {"base.shots": 2}).style.shots == 2


def test_what_is_wrong_with_a_study_is_said_as_in_a_file() -> None:
    with pytest.raises(Problem, match="no key named 'probs'; did you mean 'probes'"):
        fm.Study(**{**SMALL, "probs": ["label_order"]})
    with pytest.raises(Problem, match="no study file or bundled study 'dmeo'"):
        fm.read_study("dmeo")
    with pytest.raises(Problem, match="no study file"):
        fm.read_study("nowhere.yaml")


def test_a_study_shows_its_views(here: Path) -> None:
    study = fm.Study(**SMALL)
    assert "Label" in str(study.show())
    assert "reversed" in str(study.show(2, views=["reversed"]))
    assert "base" in str(study.show(views=["base"]))
    with pytest.raises(Problem, match="no view named 'revresed'; did you mean 'reversed'"):
        str(study.show(views=["revresed"]))
    with pytest.raises(Problem, match="the test set has 20 items"):
        study.show(21)


def test_results_print_as_tables_and_as_html(done: fm.Run) -> None:
    results = (done, done.select(), done.check(), fm.Study(**SMALL).plan())
    for result, column in zip(results, ("what moves", "chosen", "items", "requests"), strict=True):
        assert column in str(result)
        assert repr(result) == str(result)
        assert result._repr_html_().startswith("<pre")


def test_every_part_of_a_run_is_a_frame(done: fm.Run) -> None:
    frames = (
        *(done.estimates, done.verdicts, done.flips, done.items, done.decisions, done.calls),
        *(done.residuals(), done.aspects("direction"), done.aspects("severity")),
    )
    assert all(isinstance(frame, pl.DataFrame) and len(frame) for frame in frames)
    assert {"text", "rank", "rank_b", "towards"} <= set(done.flips.columns)
    assert (done.flips["rank"] != done.flips["rank_b"]).all()


def test_costs_reach_the_worst_case(done: fm.Run) -> None:
    costs = np.abs(np.subtract.outer(np.arange(5), np.arange(5))).astype(float)
    assert len(done.aspects("worst", costs=costs))


def test_the_command_line_says_the_same(here: Path, cli: Cli) -> None:
    Path("small.yaml").write_text(json.dumps(SMALL), encoding="utf-8")
    code, out, _ = cli("run", "small.yaml")
    assert code == 0
    run = fm.Run("runs/small")
    for line in str(run).splitlines():
        assert line in out
    assert json.loads(cli("measure", "runs/small", "--json")[1])["verdicts"] == json.loads(
        run.verdicts.write_json()
    )


def test_dir_lists_what_there_is() -> None:
    assert set(dir(fm)) == set(fm.__all__)
    assert {"Study", "Run", "Predictions", "Question", "Label", "Example"} <= set(dir(fm))
    assert {"Problem", "OrdinalClassifier", "read_study", "read_predictions"} <= set(dir(fm))
    assert {"stats", "__version__"} <= set(dir(fm))
