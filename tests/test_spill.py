"""Rows that wait on disk: the same tables, whatever was written when, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forked
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import open_pipeline, pipelines
from flipmeter.run import rate, spill
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, CONDITIONS, DECISIONS, ITEMS, PROMPTS
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.run.spill import Spill, scratch
from flipmeter.study.file import Study, read_study
from flipmeter.study.grid import conditions

KILLED = """
import os, signal, sys
from pathlib import Path
from flipmeter.run import rate
from flipmeter.run import spill
from flipmeter.ask.store import Store
from flipmeter.run.progress import Listener, Terms
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study

rate.LOT = spill.MANY = 300
folder = Path(sys.argv[1])

class Killer(Listener):
    def on_reply(self, request, reply):
        if len(list((folder / "run").glob(".spill.*/decisions-1.parquet"))):
            os.kill(os.getpid(), signal.SIGKILL)

with Store(folder / "replies.sqlite") as store:
    perform(read_study(Path(sys.argv[2])), folder / "run", store, Terms(listener=Killer()))
"""
STUDY = {
    "models": ["sim/biased-noisy"],
    "datasets": ["reviews"],
    "test_size": 45,
    "base": {"shots": 1},
    "seeds": [0, 1, 2, 3],
}

JUDGE = {
    "models": ["sim/first-answer"],
    "test_size": 12,
    "base": {"shots": 0},
    "datasets": [
        {
            "file": "pairs.jsonl",
            "fields": {"question": "question", "a": "one", "b": "two"},
            "exchange": ["a", "b"],
            "label": None,
            "scale": ["b", "tie", "a"],
        }
    ],
}
ITEMWISE = sorted(
    name for name in pipelines if open_pipeline(name).traits.calibration in ("", "apart")
)


def study() -> Study:
    return read_study(STUDY)


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    """A run of one lot, which never waits for a disk."""
    return perform(study(), tmp_path / "whole", Store())


def assert_same_files(one: Path, other: Path) -> None:
    for name in (ITEMS, CONDITIONS, PROMPTS, CALLS, DECISIONS):
        assert Run(one).path(name).read_bytes() == Run(other).path(name).read_bytes()


@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=12), st.integers(1, 50))
def test_rows_come_back_by_bin_and_then_in_their_order(lots: list[list[int]], many: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(spill, "MANY", many)
        bins = [one for lot in lots for one in lot]
        rows = pl.DataFrame({"bin": bins, "n": range(len(bins))}, schema={"bin": int, "n": int})
        heap, start = Spill(Path(folder), "rows", rows.clear(), lambda some: some["bin"]), 0
        for lot in lots:
            heap.add(rows[start : start + len(lot)])
            start += len(lot)
            assert sum(map(len, heap._near)) < many
        assert heap.rows().collect().equals(rows.sort("bin", maintain_order=True))
        assert heap.n_rows == len(rows)


@given(st.lists(st.lists(st.integers(0, 99), max_size=30), max_size=12), st.integers(1, 50))
def test_of_equal_rows_one_comes_back(lots: list[list[int]], many: int) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(spill, "MANY", many)
        empty = pl.DataFrame(schema={"n": int})
        heap = Spill(Path(folder), "rows", empty, lambda some: some["n"] // 7, distinct="n")
        for lot in lots:
            heap.add(pl.DataFrame({"n": lot}, schema={"n": int}))
        wanted = sorted({one for lot in lots for one in lot})
        assert heap.rows().collect()["n"].to_list() == wanted


def test_a_run_in_many_lots_writes_the_same_bytes(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate, "LOT", 300)
    monkeypatch.setattr(spill, "MANY", 300)
    run = perform(study(), tmp_path / "cut", Store())
    assert len(run.decisions) > 4 * 300
    assert_same_files(whole.folder, run.folder)
    assert not list(run.folder.glob(".*"))


@pytest.mark.parametrize("name", ITEMWISE)
def test_items_of_one_condition_in_many_lots_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [{"question": f"Why {k}?", "one": f"As {k}.", "two": "No." * k} for k in range(1, 13)]
    Path("pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    is_judge = open_pipeline(name).traits.moves == "pair"
    small = STUDY | {"test_size": 12, "seeds": [0]}
    asked = read_study((JUDGE if is_judge else small) | {"pipeline": name})
    whole = perform(asked, tmp_path / "whole", Store(), Terms(anyway=True))
    monkeypatch.setattr(rate, "LOT", 20)
    monkeypatch.setattr(spill, "MANY", 50)
    cut = perform(asked, tmp_path / "cut", Store(), Terms(anyway=True))
    assert len(list(rate.lots(conditions(asked), None))) > 1
    assert_same_files(whole.folder, cut.folder)


def test_pipelines_that_learn_from_the_items_get_them_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate, "LOT", 20)
    for name in set(pipelines) - set(ITEMWISE):
        if open_pipeline(name).traits.moves is None:
            lots = [*rate.lots(conditions(read_study(STUDY | {"pipeline": name})), None)]
            assert all(len(one.items) == 45 for lot in lots for one in lot)


def test_a_run_that_is_killed_loses_nothing_and_is_not_taken_for_one(
    whole: Run, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(whole.recipe)
    done = forked.run(tmp_path, tmp_path / "s.yaml", code=KILLED)
    assert done.returncode == -9, done.stderr
    folder = tmp_path / "run"
    assert list(folder.glob(".spill.*/*.parquet"))
    with pytest.raises(Problem, match="was stopped before the end"):
        Run(folder).decisions  # noqa: B018 - reading is the test
    ledger = Ledger()
    with Store(tmp_path / "replies.sqlite") as store:
        n_stored = len(store)
        run = perform(study(), folder, store, Terms(ledger))
    assert 0 < n_stored == ledger.stored
    assert ledger.asked == whole.environment["asked"]["asked"] - n_stored
    assert_same_files(whole.folder, run.folder)
    assert not list(folder.glob(".*"))


def test_what_others_still_write_is_left_alone(tmp_path: Path) -> None:
    (ended := subprocess.Popen([sys.executable, "-c", ""])).wait()
    here, elsewhere = platform.node(), "another-machine"
    for name in (f"{here}.0.{os.getpid()}", f"{elsewhere}.0.{ended.pid}", f"{here}.0.{ended.pid}"):
        (tmp_path / f".spill.{name}").mkdir()
    with scratch(tmp_path) as inner:
        inner.mkdir()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f".spill.{here}.0.{os.getpid()}", f".spill.{elsewhere}.0.{ended.pid}"}


def test_a_run_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    with scratch(tmp_path / "run") as inner:
        inner.mkdir(parents=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("many", [300, 50_000])  # the first file of rows, or the last of the run
def test_a_full_disk_is_a_problem_and_leaves_no_rows_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rate, "LOT", 300)
    monkeypatch.setattr(spill, "MANY", many)
    monkeypatch.setattr("polars.DataFrame.write_parquet", fail)
    monkeypatch.setattr("polars.LazyFrame.sink_parquet", fail)
    with pytest.raises(Problem, match=r"No space left .* every reply so far is in the store"):
        perform(study(), tmp_path / "run", Store())
    assert not list(tmp_path.glob("run/.*"))
