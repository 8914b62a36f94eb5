"""Several runs in the viewer as one: as the verbs join them, and conflicts on a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changed_runs import changed
from conftest import Cli
from flipmeter.run.folder import Run
from flipmeter.run.generation import CALLS, DECISIONS, MANIFEST
from flipmeter.run.joined import joined
from flipmeter.show.gather import differences, gather
from flipmeter.show.item_grid import Sought
from flipmeter.show.page.markup import TITLES
from flipmeter.show.view.flip_pages import PAGE, Flips
from flipmeter.show.view.folders import RunFolders
from read_html import Page
from report_runs import simulated
from test_view import Answer, beat, key_of, naive_flips, naive_page, put, served

TILTED, NOISY = "sim/first-slot?strength=4", "sim/biased-noisy"
Look = Callable[[str], Answer]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two halves of a study, a run that shares a seed with one of them, and another study."""
    root = tmp_path_factory.mktemp("runs")
    for name, seeds, models in (
        ("east", [0], [TILTED]),
        ("west", [7], [TILTED, NOISY]),
        ("shared", [7, 9], [NOISY]),
    ):
        simulated(root / name, name="halves", models=models, seeds=seeds, test_size=30)
    simulated(root / "other", name="other", models=[TILTED], test_size=30, base={"shots": 2})
    return root


@pytest.fixture(scope="module")
def look(runs: Path) -> Look:
    return lambda path: served(runs, path)[0]


@pytest.fixture(scope="module", params=["west,shared", "east,west,shared"])
def names(request: pytest.FixtureRequest) -> list[str]:
    return str(request.param).split(",")


@pytest.fixture(scope="module")
def whole(runs: Path, names: list[str]) -> Run:
    return joined([Run(runs / name) for name in names])


@pytest.fixture(scope="module")
def flips(runs: Path, names: list[str]) -> Flips:
    return Flips(joined([Run(runs / name) for name in names]))


@pytest.fixture(scope="module")
def twin(whole: Run) -> list[dict[str, Any]]:
    return list(naive_flips(whole))


def read_as_one(html: str) -> list[str]:
    """Return the runs that a page says it is about, if they are several."""
    _, _, rest = html.partition("Read as one run: ")
    return re.findall(r'href="/run/([^"]+)"', rest.partition("</p>")[0])


# What is read as one


def test_what_is_scanned_is_what_is_read(whole: Run) -> None:
    assert whole.scan(DECISIONS).collect().equals(whole.decisions)
    keys = whole.scan(CALLS).select("key").collect()["key"]
    assert sorted(keys) == sorted(whole.calls["key"])


@given(data=st.data())
@settings(max_examples=15)
def test_pages_are_those_of_the_joined_run(
    flips: Flips, twin: list[dict[str, Any]], data: st.DataObject
) -> None:
    like = data.draw(st.sampled_from(twin))
    names = data.draw(st.sets(st.sampled_from(list(TITLES)), max_size=2))
    order = data.draw(st.sampled_from(["", "distance", "item"]))
    wanted = Sought({name: like[name] for name in names if like[name]}, order)
    page = flips.page(wanted).to_dicts()
    assert [key_of(row) for row in page] == [key_of(row) for row in naive_page(twin, wanted)]
    assert flips.n(Sought()) == len(twin)


def test_the_report_is_that_of_the_verb(look: Look, whole: Run, names: list[str]) -> None:
    status, html = look(f"/run/{','.join(names)}")
    page = Page(html)
    assert status == 200
    assert page.open == []
    for sentence in gather(whole).sentences:
        assert sentence.text in page.text
    assert read_as_one(html) == names


def test_a_flip_of_every_part_can_be_opened(
    runs: Path, names: list[str], twin: list[dict[str, Any]]
) -> None:
    address = f"/run/{','.join(names)}"
    for seed, rater in {(flip["seed"], flip["rater"]) for flip in twin}:
        k = next(k for k, flip in enumerate(twin) if (flip["seed"], flip["rater"]) == (seed, rater))
        page = Page(served(runs, f"{address}/flips?page={k // PAGE + 1}")[0][1])
        links = [str(a["href"]) for a in page.all("a") if "/flip?" in str(a["href"])]
        assert links[k % PAGE].startswith(f"{address}/flip?")
        opened = Page(served(runs, links[k % PAGE])[0][1])
        assert len(opened.classed("prompt")) == 2
        assert len(opened.classed("reply")) == 2  # a reply that two runs have is shown once


def test_one_minus_another_may_be_several(look: Look, runs: Path) -> None:
    status, html = look("/compare?first=east,west&second=other")
    table = differences(joined([Run(runs / "east"), Run(runs / "west")]), Run(runs / "other"))
    assert status == 200
    for row in table.drop_nulls("value").to_dicts():
        assert f"{row['value']:+.1f}" in html
    assert {"value": "east,west", "selected": None} in Page(html).all("option")


# How one gets there


def test_the_list_lets_runs_be_ticked(look: Look) -> None:
    page = Page(look("/")[1])
    boxes = [a for a in page.all("input") if a["type"] == "checkbox"]
    assert {a["value"] for a in boxes} == {"east", "west", "shared", "other"}
    assert all(a["aria-label"] == f"read {a['value']} as part of one" for a in boxes)
    assert {a["action"] for a in page.all("form")} == {"/", "/together"}


def test_what_is_ticked_is_opened(look: Look) -> None:
    status, html = look("/together?run=west&run=east")
    assert (status, read_as_one(html)) == (200, ["west", "east"])
    assert read_as_one(look("/together?run=west")[1]) == []
    assert "no run is ticked" in look("/together")[1]
    assert look("/together?run=west&run=//elsewhere.example")[0] == 404


def test_a_run_alone_has_nothing_to_tick(runs: Path) -> None:
    assert "checkbox" not in served(runs / "east", "/")[0][1]


def test_all_folders_that_are_named_begin_together(runs: Path) -> None:
    assert RunFolders([runs / "west", runs / "east"]).whole.name == "west,east"
    assert RunFolders([runs]).whole.name == "east,other,shared,west"


def test_nothing_to_begin_with_is_said(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, said = cli("view", "empty", "--together")
    assert code == 2
    assert "there is no run in empty to open" in said


# What does not belong together


@pytest.mark.parametrize("page", ["", "/flips"])
@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("east,other", 400, "are not one study: `base` is {'shots': 1} and {'shots': 2}"),
        ("east,east", 400, "east is given twice"),
        ("east,nothing", 404, "no run named 'nothing'"),
        ("east,", 404, "no run named ''"),
        (",", 404, "no run named ''"),
    ],
)
def test_what_is_not_one_study_says_so(
    look: Look, address: str, status: int, said: str, page: str
) -> None:
    found, html = look(f"/run/{address}{page}")
    text = Page(html).text
    assert found == status
    assert all(part in text for part in said.split("`"))


@pytest.mark.parametrize("page", ["", "/flips"])
def test_a_contradiction_is_named_on_the_page(runs: Path, tmp_path: Path, page: str) -> None:
    for name, copy in (("west", "first"), ("west", "second")):
        shutil.copytree(runs / name, tmp_path / copy)
    is_one = pl.int_range(pl.len()) == 4
    other = Run(tmp_path / "second").decisions.with_columns(
        rank=pl.when(is_one).then(pl.col("rank") % 5 + 1).otherwise("rank")
    )
    changed(tmp_path / "second", decisions=other)
    status, html = served(tmp_path, f"/run/first,second{page}")[0]
    text = Page(html).text
    assert status == 400
    assert "have different decisions on the same condition, 1 in all" in text
    assert f"item {other['item'][4]}: " in text


@pytest.mark.parametrize("page", ["", "/flips"])
def test_other_data_under_one_name_are_named_on_the_page(
    runs: Path, tmp_path: Path, page: str
) -> None:
    for name in ("east", "west"):
        shutil.copytree(runs / name, tmp_path / name)
    about = Run(tmp_path / "west").environment["datasets"]["reviews"]
    changed(tmp_path / "west", {"datasets": {"reviews": {**about, "digest": "another"}}})
    status, html = served(tmp_path, f"/run/east,west{page}")[0]
    assert (status, "a dataset called 'reviews'" in Page(html).text) == (400, True)


@pytest.mark.parametrize("name", [DECISIONS, MANIFEST])
def test_a_damaged_part_is_named(runs: Path, tmp_path: Path, name: str) -> None:
    for part in ("east", "west"):
        shutil.copytree(runs / part, tmp_path / part)
    west = tmp_path / "west"
    (west / MANIFEST if name == MANIFEST else Run(west).path(name)).write_bytes(b"{")
    status, html = served(tmp_path, "/run/east,west")[0]
    assert status == 400
    assert Page(html).text.count(str(tmp_path / "west")) == 1
    assert served(tmp_path, "/run/east,west/flips")[0][0] in (400, 500)


def test_parts_that_are_still_asked_can_be_watched(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "east", tmp_path / "east")
    put(tmp_path / "going", beat())
    (_, html), (_, listed) = served(tmp_path, "/run/east,going", "/")
    page = Page(html)
    assert [a["data-watch"] for a in page.all("section") if "data-watch" in a] == [
        "/run/going/progress"
    ]
    assert read_as_one(html) == ["east", "going"]
    assert "checkbox" not in listed
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "decisions.parquet").touch()
    assert "earlier version" in Page(served(tmp_path, "/run/east,old")[0][1]).text


def test_large_runs_are_measured_together_elsewhere(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = {name: len(Run(runs / name).decisions) for name in ("east", "west")}
    monkeypatch.setattr("flipmeter.show.view.folders.SMALL", max(n.values()))
    (_, both), *_ = served(runs, "/run/east,west", patience=0.01)
    assert "Preparing the report" in both
    assert f"all {sum(n.values()):,} decisions" in both
    assert "Verdict" in served(runs, "/run/east,west", patience=3_000)[0][1]
