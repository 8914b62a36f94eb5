"""Decisions read a part at a time: every number and page is as if they had been read whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import flipmeter as fm
from changed_runs import changed
from flipmeter.run.generation import DECISIONS
from flipmeter.show.flipped_items import changed_items
from flipmeter.stats import reading
from flipmeter.stats.aspects import ASPECTS, measure_aspects
from flipmeter.stats.estimates import measure
from flipmeter.stats.excess import noise_warnings
from flipmeter.stats.judge import verdicts
from flipmeter.stats.reading import Panels, Parts
from flipmeter.types import Contrast

TONES = {
    "file": "tones.csv",
    "text": "text",
    "label": "tone",
    "name": "d",
    "scale": ["1", "2", "3"],
}
STUDY = {
    "models": [
        {"model": "sim/first-slot", "name": "b"},
        {"model": "sim/biased-noisy", "name": "a"},
    ],
    "datasets": ["reviews", TONES],
    "test_size": 12,
    "repeats": 2,
    "seeds": [0, 1],
    "base": {"shots": 1},
    "vary": {"label_format": ["letter"], "mood": ["indicative"]},
    "design": "factorial",
    "configs": {"both": {"label_format": "letter", "mood": "indicative"}},
}
GATE = {
    "flips": 0.3,
    "excess": 0.3,
    "noise": 0.3,
    "accuracy": 0.3,
    "faults": 0.1,
    "level": "*",
    "drift": {"flips": 0.2, "accuracy": 0.2, "faults": 0.1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("parts")
    rows = [f"The {k}. letter is {'calm' if k % 3 else 'tense'}.,{1 + k % 3}" for k in range(90)]
    (where / "tones.csv").write_text("\n".join(["text,tone", *rows]))
    study = fm.Study(**STUDY | {"folder": where})
    return Path(study.run(where / "run", store=where / "replies.sqlite").folder)


@pytest.fixture(scope="module")
def other(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run with other answers to some items."""
    where = tmp_path_factory.mktemp("other") / "run"
    shutil.copytree(folder, where)
    nth = pl.int_range(pl.len())
    moved = pl.when(nth % 7 == 0).then(pl.col("rank") % 3 + 1).otherwise("rank")
    changed(where, decisions=fm.Run(folder).decisions.with_columns(rank=moved))
    return where


READERS: dict[str, Callable[[fm.Run, fm.Run], pl.DataFrame]] = {
    "residuals": lambda run, _: run.residuals(),
    "transfer": lambda run, _: run.transfer("b"),
    "effects": lambda run, _: run.effects(),
    "flips": lambda run, _: run.flips,
    "check": lambda run, other: run.check(gate=GATE, against=other).claims,
    "compare": lambda run, other: run.compare(other),
    "changed items": lambda run, other: changed_items(run.source, other.source),
    "select": lambda run, _: pl.DataFrame(
        {
            name: [str(getattr(one, name)) for one in run.select(dataset="reviews").standings]
            for name in ("candidate", "score", "flips", "cost", "chance_on_front")
        }
    ),
}


@pytest.fixture(params=[1, 4000])
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reading, "TOGETHER", request.param)
    return int(request.param)


@pytest.fixture(scope="module")
def whole(folder: Path) -> fm.Run:
    run = fm.Run(folder)
    _ = run.estimates, run.verdicts, run.source.tally
    assert run.source.parts.is_one
    return run


def test_numbers_do_not_depend_on_how_decisions_are_read(
    folder: Path, whole: fm.Run, apart: int
) -> None:
    run = fm.Run(folder)
    assert len(list(run.source.parts)) == (4 if apart == 1 else 2)
    for name in ("estimates", "verdicts", "warnings"):
        found, wanted = getattr(run, name), getattr(whole, name)
        assert found.equals(wanted) if isinstance(found, pl.DataFrame) else found == wanted
    assert run.source.tally.equals(whole.source.tally)


@pytest.mark.parametrize("name", [*ASPECTS])
def test_aspects_do_not_depend_on_how_decisions_are_read(
    folder: Path, whole: fm.Run, apart: int, name: str
) -> None:
    assert fm.Run(folder).aspects(name).equals(whole.aspects(name))


@pytest.mark.parametrize("name", READERS)
def test_what_reads_decisions_finds_the_same_in_parts(
    folder: Path, other: Path, whole: fm.Run, apart: int, name: str
) -> None:
    run, before = fm.Run(folder), fm.Run(other)
    found = READERS[name](run, before)
    assert not run.source.parts.is_one
    assert "decisions" not in vars(run.source) | vars(before.source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "TOGETHER", 10**6)
        wanted = READERS[name](whole, fm.Run(other))
    assert len(wanted)
    assert_frame_equal(found, wanted, check_exact=True)


@pytest.fixture(scope="module")
def page(whole: fm.Run, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole.report(tmp_path_factory.mktemp("page") / "whole.html").read_bytes()


def test_a_page_is_the_same_and_never_holds_all_decisions(
    folder: Path, page: bytes, apart: int, tmp_path: Path
) -> None:
    run = fm.Run(folder)
    assert run.report(tmp_path / "apart.html").read_bytes() == page
    assert len(list(run.tables()))
    assert len(run.compare(fm.Run(folder)))
    assert "decisions" not in vars(run.source)


def test_a_scan_is_measured_as_the_frame_that_it_reads(folder: Path) -> None:
    run = fm.Run(folder)
    frame, scan = run.decisions, run.source.scan(DECISIONS)
    assert measure(frame, run.contrasts).equals(measure(scan, run.contrasts))
    assert_frame_equal(
        verdicts(frame, run.contrasts), verdicts(scan, run.contrasts), check_exact=True
    )
    assert noise_warnings(frame, ["a"]) == noise_warnings(scan, ["a"])


def test_parts_hold_whole_raters_on_whole_datasets(folder: Path) -> None:
    decisions = fm.Run(folder).decisions
    parts = [part.collect() for part in Parts(decisions.lazy(), together=1)]
    assert [part.select("rater", "dataset").unique().rows() for part in parts] == [
        [("a", "d")],
        [("a", "reviews")],
        [("b", "d")],
        [("b", "reviews")],
    ]
    assert sum(map(len, parts)) == len(decisions)


def test_a_view_that_only_another_dataset_has_counts_among_all_views() -> None:
    shown = {"d1": ("base", "reversed"), "d2": ("base", "reversed", "random")}
    rows = [
        {"rater": "r", "dataset": name, "level": "", "seed": 0, "view": view, "repeat": 0}
        | {"item": f"i{k}", "rank": 1 + k % 3, "gold": 1 + (k + at) % 3, "n_classes": 3}
        for name, views in shown.items()
        for at, view in enumerate(views)
        for k in range(12)
    ]
    frame, contrasts = pl.DataFrame(rows), [Contrast("P1", ("base", "reversed"))]
    panels = Panels(Parts(frame.lazy(), together=1))
    wanted = measure_aspects(frame, contrasts, ["worst"])["worst"]
    assert wanted.filter(view="all")["dataset"].unique().to_list() == ["d2"]
    assert measure_aspects(panels, contrasts, ["worst"])["worst"].equals(wanted)


def test_raters_that_fit_together_are_one_part() -> None:
    rows = pl.DataFrame({"rater": list("aaaaaabbbccc"), "dataset": "d"}).lazy()
    assert [len(Parts(rows, together=n).filters) for n in (5, 6, 11, 12)] == [3, 2, 2, 1]
