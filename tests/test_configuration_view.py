"""The configuration view of a report: one Pareto front, that of `select`, drawn and as a table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flipmeter.choose.select import ALL, Selection, select
from flipmeter.run.folder import Run
from flipmeter.show.findings import Findings
from flipmeter.show.gather import gather
from flipmeter.show.next_steps import findings
from flipmeter.show.page import CHART, asset, configurations, render_page
from flipmeter.show.page.configurations import configuration_views
from read_html import Page
from report_runs import simulated

MODELS = ["sim/biased-noisy", "sim/first-slot?strength=0.4"]
VARY = {"label_format": ["letter"], "shots": [0, 2]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("configurations")
    return simulated(folder, models=MODELS, vary=VARY, test_size=40)


@pytest.fixture(scope="module")
def found(run: Run) -> Findings:
    return findings(run)


@pytest.fixture(scope="module")
def selection(run: Run) -> Selection:
    return select(run, max_flip={ALL: run.study.margin})


def data_of(found: Findings) -> dict[str, Any]:
    (view,), _ = configuration_views(found)
    content: dict[str, Any] = json.loads(view.data)
    return content


def test_a_picture_of_many_keeps_some_of_the_front_and_some_of_the_others(
    found: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = data_of(found)["points"]
    monkeypatch.setattr(configurations, "MOST_ROWS", 2)
    some = data_of(found)["points"]
    assert [point["isFront"] for point in some] == [True, False]
    assert some[0] == every[0]
    (view,), _ = configuration_views(found)
    assert view.title.endswith("on the Pareto front; the picture shows 2 of them")


def test_the_front_of_the_page_is_that_of_select(found: Findings, selection: Selection) -> None:
    front = {(one.candidate[0], one.candidate[1] or "base") for one in selection.front}
    points = data_of(found)["points"]
    drawn = {(p["factors"]["rater"], p["query"]) for p in points if p["isFront"]}
    assert len(drawn) == len(front) < len(points)
    (view,), _ = configuration_views(found)
    marked = [
        row for group in view.grid.groups for row in group.rows if "no " not in str(row[1].text)
    ]
    assert len(marked) == len(front)
    assert view.title.endswith(f"{len(points)} configurations, {len(front)} on the Pareto front")


def test_every_number_is_that_of_select_with_its_interval(
    found: Findings, selection: Selection
) -> None:
    by_query = {point["query"]: point for point in data_of(found)["points"]}
    assert len(by_query) == len(selection.standings)
    for one in selection.standings:
        rater, level = one.candidate
        named = [p for p in by_query.values() if p["factors"]["rater"] == rater]
        (point,) = (p for p in named if p["query"].split("level=")[1].startswith(_quoted(level)))
        assert point["values"]["accuracy"] == pytest.approx(
            [one.score.value, one.score.low, one.score.high], abs=1e-6
        )
        assert point["chosen"] == pytest.approx(one.chance_chosen, abs=1e-4)
        assert point["onFront"] == pytest.approx(one.chance_on_front, abs=1e-4)
        for name, flips in one.flips.items():
            drawn = point["values"][f"flips {name}"]
            ends = [flips.value, flips.low, flips.high]
            # Without demonstrations their order cannot flip, which counts as 0.
            assert drawn == (
                [0, 0, 0] if math.isnan(flips.value) else pytest.approx(ends, abs=1e-6)
            )


def _quoted(level: str) -> str:
    return (level or "base").replace("=", "%3D") + "&"


def test_the_axes_are_scores_contrasts_and_costs_and_facets_are_what_varies(
    found: Findings,
) -> None:
    data = data_of(found)
    names = [axis["name"] for axis in data["axes"]]
    assert names[:3] == ["accuracy", "mae", "worst_accuracy"]
    assert names[3] == "flips P1"
    assert names[-2:] == ["calls", "tokens"]
    assert data["facets"] == ["rater", "label_format", "shots"]
    assert {point["factors"]["shots"] for point in data["points"]} == {"0", "1", "2"}


def test_worst_case_accuracy_and_error_are_those_of_the_measures(run: Run, found: Findings) -> None:
    by_mae = select(run, by="mae").standings
    choice = found.choices[0]
    rows = zip(choice.standings, *choice.others.values(), by_mae, strict=True)
    assert [*choice.others] == ["mae", "worst_accuracy"]
    for mine, mae, worst, theirs in rows:
        assert mine.candidate == theirs.candidate
        assert mae.value == pytest.approx(theirs.score.value)
        assert mae.high == pytest.approx(theirs.score.high)
        if not math.isnan(worst.value):
            assert worst.value <= mine.score.value + 1e-9


def test_the_library_is_in_a_page_only_where_there_is_something_to_draw(
    found: Findings, tmp_path: Path
) -> None:
    alone = findings(simulated(tmp_path, models=MODELS[:1], test_size=12))
    with_chart, without = render_page(found), render_page(alone)
    assert all(asset(name) in with_chart and asset(name) not in without for name in CHART)
    assert len(with_chart.encode()) < len(without.encode()) + 2_000_000
    assert "nothing to compare it with" in without


def test_hostile_names_stay_data(found: Findings) -> None:
    name = "</script><script>alert(1)</script>&amp;\u202e"
    choice = found.choices[0]
    bad = [replace(one, candidate=(name, one.level)) for one in choice.standings]
    page = Page(render_page(replace(found, choices=[replace(choice, standings=bad)])))
    ours = Page(render_page(found))
    assert len(page.all("script")) == len(ours.all("script"))
    assert page.open == []


def test_datasets_without_a_selection_say_why(found: Findings, run: Run) -> None:
    trouble = replace(found.choices[0], standings=(), chosen=None, trouble="no gold class")
    views, notes = configuration_views(replace(found, choices=[trouble]))
    assert views == []
    assert notes == ["reviews: no gold class."]
    assert configuration_views(gather(run))[0] == []


def test_accuracy_says_how_it_counts_what_is_unreadable(found: Findings) -> None:
    _, notes = configuration_views(found)
    assert configurations.UNREAD not in notes
    unread = found.verdicts.with_columns(unreadable=pl.lit(0.1))
    _, notes = configuration_views(replace(found, verdicts=unread))
    assert configurations.UNREAD in notes


def test_pictures_without_scripts_name_points_that_do_not_touch(found: Findings) -> None:
    (view,), _ = configuration_views(found)
    heights: list[float] = []

    class Names(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            own = dict(attrs)
            if tag == "text" and own.get("class") == "name":
                heights.append(float(str(own["y"]).rstrip("%")))

    Names().feed(str(view.picture))
    heights.sort()
    assert heights
    assert all(b - a > 6 for a, b in pairwise(heights))
