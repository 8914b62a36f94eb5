"""Two runs compared, the list of runs, and rates while a run goes on."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import InterimRate, Meter, Terms
from flipmeter.show.flipped_items import FIRST, SECOND, changed_items
from flipmeter.show.gather import differences, gather
from flipmeter.show.view.folders import RunFolders, describe
from flipmeter.stats.sequential import share_bounds
from flipmeter.stats.verdict import worst_first
from flipmeter.study.file import read_study
from read_html import Page
from report_runs import simulated
from test_view import beat, put, served


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one study whose rater got worse and worse."""
    root = tmp_path_factory.mktemp("runs")
    for name, strength in (("early", 1), ("later", 3), ("last", 6)):
        model = {"model": f"sim/first-slot?strength={strength}", "name": "ours"}
        simulated(root / name, name="nightly", models=[model], vary={"mood": ["indicative"]})
    return root


# two runs


def test_changed_items_are_those_that_the_differences_count(runs: Path) -> None:
    pair = Run(runs / "early"), Run(runs / "last")
    found = changed_items(*pair)
    table = differences(*pair).filter(metric="P1", dataset="reviews")
    for level, b, c in table.select("level", "b", "c").iter_rows():
        own = found.filter(level=level, contrast="P1")["change"].to_list()
        assert (own.count(SECOND), own.count(FIRST)) == (b, c)
    assert found["change"].to_list().count(SECOND) > 5


def test_a_comparison_draws_both_runs_and_leads_to_the_items(runs: Path) -> None:
    ((status, html),) = served(runs, "/compare?first=early&second=last&contrast=P1")
    page = Page(html)
    assert status == 200
    pair = Run(runs / "early"), Run(runs / "last")
    n = len(changed_items(*pair).filter(contrast="P1"))
    assert f"{n} pairs of answers under P1 were read in both runs and flip in one only" in page.text
    assert "Flip rates in both runs, largest change first" in page.text
    for run in ("early", "last"):
        link = re.search(rf'href="(/run/{run}/flip\?[^"]*)"', html)
        assert link is not None
        assert served(runs, unescape(link[1]))[0][0] == 200
    ((_, html),) = served(runs, "/compare?first=early&second=last&contrast=garbage")
    assert "0 pairs of answers under garbage" in Page(html).text


def test_raters_of_two_names_are_paired_and_linked_by_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        model = {"model": f"sim/first-slot?strength={'16'[name == 'b']}", "name": name}
        simulated(tmp_path / name, models=[model])
    found = changed_items(Run(tmp_path / "a"), Run(tmp_path / "b"))
    assert found.select("rater_first", "rater_second").unique().rows() == [("a", "b")]


# the list


def test_the_list_has_the_worst_rate_of_every_run(runs: Path) -> None:
    ((_, html),) = served(runs, "/")
    page = Page(html)
    worst = worst_first(Run(runs / "last").verdicts.drop_nulls("value")).row(0, named=True)
    assert f"{100 * worst['value']:.1f} %" in page.text


def test_the_worst_rate_of_a_run_is_that_of_its_report(tmp_path: Path) -> None:
    """At a level that flips most, not at the base."""
    model = "sim/first-slot?strength=2"
    run = simulated(tmp_path / "levels", models=[model], vary={"cardinality": [2]})
    worst = worst_first(run.verdicts.drop_nulls("value")).row(0, named=True)
    ((_, html),) = served(tmp_path, "/")
    (cell,) = re.findall(r'<td class="wrapped" data-head="worst rate".*?</td>', html)
    assert f"{100 * worst['value']:.1f} %" in cell
    assert f"· {worst['level']}" in cell
    assert worst["level"] == "cardinality=2"


@pytest.mark.parametrize(
    ("words", "n"), [("LATER", 1), ("nightly ours", 3), ("flips", 2), ("<b>", 0), ("reviews l", 3)]
)
def test_runs_are_found_by_words(runs: Path, words: str, n: int) -> None:
    ((status, html),) = served(runs, f"/?q={words}")
    listed = [a for a in Page(html).all("a") if (a.get("href") or "").startswith("/run/")]
    assert (status, len(listed)) == (200, n)
    assert n or "No run has all of these words." in html


def test_the_list_counts_the_verdicts_that_a_report_counts(runs: Path) -> None:
    run = Run(runs / "last")
    listed = RunFolders([runs]).entries()["last"].summary.words
    assert listed == dict(gather(run).words.group_by("word_among").len().iter_rows())
    assert sum((listed or {}).values()) == run.verdicts.select("rater", "level").n_unique()


def test_an_unreadable_run_is_listed_by_what_cannot_be_read(tmp_path: Path) -> None:
    simulated(tmp_path / "mute", models=["sim/refusing?refuse=1"])
    ((_, html),) = served(tmp_path, "/")
    assert "100.0 % unreadable" in Page(html).text


def test_raters_that_are_not_compared_are_named(tmp_path: Path) -> None:
    for name, other in (("a", "sim/last-slot"), ("b", "sim/honest")):
        simulated(tmp_path / name, models=["sim/first-slot", other], test_size=15)
    ((_, html),) = served(tmp_path, "/compare?first=a&second=b")
    told = (
        "Compared: sim/first-slot. Not compared: sim/last-slot (only in a); sim/honest (only in b)."
    )
    assert told in Page(html).text
    ((_, html),) = served(tmp_path, "/compare?first=a&second=a")
    assert "Not compared" not in html


# a run in progress


def test_rates_so_far_cost_at_the_end_and_faults_are_told(tmp_path: Path) -> None:
    rate = InterimRate("<i>r</i>", "reviews", "", "P1", 9, 30, *share_bounds(9, 30))
    put(tmp_path / "now", beat(rates=[rate], unread={"refused": 5, "unparsed": 1}))
    (_, html), (_, told) = served(tmp_path, "/run/now", "/run/now/progress")
    text = Page(html).text
    assert "$0.1234 so far, about $1.0489 at the end" in text  # 1,500 of 1,700 are still to come
    assert "5 refused, 1 unparsed" in text
    assert "<i>r</i> · reviews" in text
    assert json.loads(told)["rates"][0][1:] == [
        "P1",
        f"30.0 % [{100 * rate.low:.1f}, {100 * rate.high:.1f}]",
        "9 of 30",
    ]


def test_a_beat_of_an_older_version_is_read(tmp_path: Path) -> None:
    put(tmp_path / "now", beat())
    path = tmp_path / "now" / "progress.json"
    old = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("rates", "unread")}
    path.write_text(json.dumps(old))
    ((status, html),) = served(tmp_path, "/run/now")
    assert status == 200
    assert "4 refused" in html


def test_an_interval_holds_however_often_one_looks() -> None:
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(200):
        hits = np.cumsum(rng.random(120) < 0.2)
        bounds = [share_bounds(int(hits[n - 1]), n) for n in range(5, 121, 5)]
        missed += any(not low <= 0.2 <= high for low, high in bounds)
    assert missed <= 0.05 * 200 + 3 * (0.0475 * 200) ** 0.5


def test_bounds_close_in_on_the_rate() -> None:
    assert share_bounds(0, 0) == (0.0, 1.0)
    low, high = share_bounds(300, 1000)
    assert 0.24 < low < 0.3 < high < 0.36
    assert share_bounds(0, 50)[0] == 0.0
    assert share_bounds(50, 50)[1] == pytest.approx(1.0)


def test_replies_are_counted_once_for_every_item(tmp_path: Path) -> None:
    study = {"name": "two seeds", "models": ["sim/first-slot?strength=5"], "datasets": ["reviews"],
             "test_size": 30, "seeds": [0, 1], "base": {"shots": 1}}  # fmt: skip
    meter = Meter(Ledger())
    perform(read_study(study), tmp_path / "r", Store(), Terms(listener=meter, anyway=True))
    interim = meter.interim
    rates = {one.contrast: one for one in interim.rates(40)}
    assert rates["P1"].n == Run(tmp_path / "r").decisions["item"].n_unique()
    assert rates["P1"].k > 3
    rows = interim.rates(1)
    assert [one.contrast for one in rows] == ["P1"]
    assert describe(beat(rates=rows))["rates"][0][1] == "P1"


def test_no_table_of_rates_is_shown_for_a_killed_run_without_them(tmp_path: Path) -> None:
    put(tmp_path / "gone", beat(host="elsewhere", seen=0.0))
    ((_, html),) = served(tmp_path, "/run/gone")
    assert "Flip rates so far" not in html
