"""The guide of docs/judges.md, run as it stands on a judge whose preferences are planted."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from random import Random

import pytest

import flipmeter as fm
from conftest import ROOT, Cli

PAGE = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS = [
    "river",
    "stone",
    "lamp",
    "green",
    "quick",
    "market",
    "winter",
    "paper",
    "cloud",
    "engine",
    "garden",
    "silver",
    "bread",
]
SYSTEMS = ("ant", "bee", "cat")


def pairs(n: int = 240) -> str:
    """Pairs of answers; what people prefer has nothing to do with place or length."""
    chance = Random(5)
    rows = ["prompt,answer_1,answer_2,preferred,system_a,system_b"]
    for k in range(n):
        texts = [" ".join(chance.choices(WORDS, k=chance.randint(4, 16))) for _ in range(2)]
        wrote = chance.sample(SYSTEMS, 2)
        told = ["a", "tie", "b"][chance.choice((0, 0, 1, 2, 2))]
        rows.append(f"What about {k}?,{texts[0]} {k},{texts[1]} {k}.,{told},{wrote[0]},{wrote[1]}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def done(cli: Cli, tmp_path: Path) -> fm.Run:
    """Every command of the page, one after the other."""
    (tmp_path / "pairs.csv").write_text(pairs(), encoding="utf-8")
    for _, name, body in FENCE.findall(PAGE):
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
    for kind, _, body in FENCE.findall(PAGE):
        for line in body.splitlines() if kind == "sh" else ():
            code, _, err = cli(*line.removeprefix("flipmeter ").split())
            assert code == 0, (line, err)
    return fm.Run(tmp_path / "run")


def test_the_guide_runs_and_tells_a_place_from_a_taste(done: fm.Run) -> None:
    words = dict(done.verdicts.select("rater", "word").iter_rows())
    assert words["leaning"] == "flips"
    assert words["lengthy"] != "flips"
    assert words["fair"] != "flips"
    shares = done.aspects("pairs").filter(metric="first_share")
    ends = {row["rater"]: (row["low"], row["high"]) for row in shares.to_dicts()}
    assert ends["leaning"][0] > 0.5
    assert ends["lengthy"][0] <= 0.5 <= ends["lengthy"][1]
    assert ends["fair"][0] <= 0.5 <= ends["fair"][1]
    effect = done.aspects("systems").filter(metric="order_effect", rater="leaning")
    assert effect["low"][0] > 0
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    assert "Does the judge prefer a place?" in page
    assert "Does the ranking of systems change with the order?" in page
    row = done.verdicts.filter(rater="leaning").row(0, named=True)
    assert (row["leans"] == "up") == row["up_is_first"]


@pytest.mark.shared
def test_raw_replies_of_real_judges_are_read_as_published(shared_data: Path) -> None:
    folder = shared_data / "llmbar"
    if not (folder / "replies.jsonl").is_file():
        pytest.skip("LLMBar's replies are not here; name their folder in FLIPMETER_DATA")
    bench = runpy.run_path(str(ROOT / "benchmarks" / "llmbar.py"))
    found = list(bench["readings"](folder))
    assert len(found) == 4680
    assert all(published == read for _, published, read in found)


@pytest.mark.shared
def test_what_real_judges_say_is_published_but_for_known_reasons(shared_data: Path) -> None:
    folder = shared_data / "llmbar"
    if not (folder / "replies.jsonl").is_file():
        pytest.skip("LLMBar's replies are not here; name their folder in FLIPMETER_DATA")
    bench = runpy.run_path(str(ROOT / "benchmarks" / "llmbar.py"))
    found = list(bench["readings"](folder, bench["PLAIN"]))
    apart = [
        bench["reason"](told, published) for told, published, read in found if published != read
    ]
    assert len(apart) < 0.013 * len(found)
    against = sum(why.startswith("never calls the published output better") for why in apart)
    assert against == 51
    assert len(apart) - against < 0.002 * len(found)
