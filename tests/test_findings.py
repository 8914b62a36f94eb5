"""What stands beside a word stands there on every surface, from one function."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import polars as pl
import pytest

import flipmeter as fm
from flipmeter.show.estimate_tables import failures_line
from flipmeter.show.sentences import finding_lines
from flipmeter.stats.conclude import verdict
from flipmeter.stats.judge import verdicts
from flipmeter.stats.reading import read_panel
from flipmeter.types import FAULTS, Contrast
from report_runs import simulated

Cli = Callable[..., tuple[int, str, str]]
P1 = Contrast("P1", ("base", "reversed"), "label list reversed", "label_order")
RNG = np.random.default_rng(3)


def named(**options: Any) -> dict[str, str]:
    """Findings of a verdict with their sentences."""
    return {finding.name: finding.text for finding in verdict(**options).findings}


# Each finding


def test_constant_answers_are_named_by_their_class() -> None:
    frame = pl.DataFrame(
        [
            {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3, "view": view}
            | {"repeat": 0, "item": f"{i}", "rank": 3}
            for view in ("base", "reversed")
            for i in range(50)
        ]
    )
    panel = read_panel(frame, scales={"d": ("low", "mid", "high")})
    (row,) = verdicts(panel, [P1]).to_dicts()
    assert (row["word"], row["findings"]) == ("stable", ["constant answers"])
    assert row["notes"] == ["always answers 'high'"]
    assert verdicts(frame, [P1])["notes"].to_list() == [["always answers class 3"]]


def test_a_noisy_rater_is_called_so() -> None:
    one, two = RNG.integers(1, 4, (2, 100, 2))
    assert "of repeats differ" in named(pairs=one, repeats=two)["noisy"]
    assert "noisy" not in named(pairs=one, repeats=one)


def test_readability_that_differs_between_views_is_told() -> None:
    pairs = np.array([[1, 0]] * 10 + [[1, 1], [2, 2]] * 100)
    assert "unreadable by view: 0 %" in named(pairs=pairs)["readability differs between views"]


def test_a_small_effect_is_real() -> None:
    pairs = np.array([[1, 2]] * 6 + [[1, 1], [2, 2]] * 200)
    found = verdict(pairs, reproducible=True)
    assert (found.word, found.has("a small effect is real")) == ("stable", True)


def test_reproducibility_that_failed_is_told() -> None:
    pairs = np.tile([[1, 1], [2, 2]], (50, 1))
    repeats = np.full_like(pairs, -1)
    repeats[:20] = pairs[:20]
    repeats[0, 0] = 2
    assert "1 of 40 repeats differ" in named(pairs=pairs, repeats=repeats, reproducible=True).get(
        "reproducibility failed", ""
    )


def test_little_label_mass_and_equal_prompts_are_told() -> None:
    rows = [
        {"rater": "r", "dataset": "d", "level": "", "seed": 0, "n_classes": 3, "view": view}
        | {"repeat": 0, "item": f"{i}", "rank": 1 + i % 3, "label_mass": 0.2, "prompt": f"{p}{i}"}
        for view, p in (("base", "a"), ("reversed", "b"), ("same", "a"))
        for i in range(30)
    ]
    same = Contrast("P9", ("base", "same"))
    judged = verdicts(pl.DataFrame(rows), [P1, same]).to_dicts()
    assert judged[0]["findings"] == ["little label mass"]
    assert (judged[1]["word"], judged[1]["findings"]) == ("not identified", ["not identified"])


# Every surface


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fm.Run:
    folder = tmp_path_factory.mktemp("findings")
    models = ["sim/noisy", "sim/refusing?strength=1", "sim/first-slot?strength=1"]
    probes = ["label_order", "placement"]
    return fm.Run.of(simulated(folder / "run", models=models, test_size=60, probes=probes))


def flat(text: str) -> str:
    return " ".join(text.split())


def test_reports_print_the_lines_of_one_function(run: fm.Run, cli: Cli) -> None:
    lines = finding_lines(run.verdicts)
    assert len(lines) >= 2
    terminal = flat(cli("measure", str(run.folder), "--show", "verdicts")[1])
    page = html.unescape(run.report(run.folder / "r.html").read_text(encoding="utf-8"))
    markdown = run.report(run.folder / "r.md").read_text(encoding="utf-8")
    latex = run.report(run.folder / "r.tex").read_text(encoding="utf-8")
    for line in lines:
        assert f"! {line}" in terminal
        assert line in page
        assert line in markdown.replace("\\", "")
        assert f"% {line}" in latex
    told = json.loads(cli("measure", str(run.folder), "--json")[1])["verdicts"]
    assert finding_lines(pl.DataFrame(told)) == lines


def test_the_gate_has_the_findings_of_the_verdicts(run: fm.Run, cli: Cli, tmp_path: Path) -> None:
    wanted = {
        (row["rater"], row["contrast"]): row["notes"]
        for row in run.verdicts.filter(status="measured").to_dicts()
    }
    assert any(wanted.values())
    files = ("--junit", "j.xml", "--markdown", "m.md")
    terminal = flat(cli("check", str(run.folder), *files)[1])
    told = json.loads(cli("check", str(run.folder), "--json")[1])["claims"]
    assert {(row["rater"], row["where"]): row["notes"] for row in told} == wanted
    markdown = flat(Path("m.md").read_text(encoding="utf-8")).replace("\\", "")
    junit = "".join(ET.parse("j.xml").getroot().itertext())
    attributes = " ".join(str(one.attrib) for one in ET.parse("j.xml").iter())
    for note in {note for notes in wanted.values() for note in notes}:
        assert note in markdown
        assert note in junit + attributes
        words = note.split()
        assert all(word in terminal for word in words)


def test_a_rater_that_is_never_read_breaks_a_gate(run: fm.Run) -> None:
    claims = run.check().claims.filter(rater="sim/refusing?strength=1")
    assert set(claims["word"]) == {"unreadable"}


def test_a_certificate_has_its_findings(run: fm.Run, cli: Cli) -> None:
    _, out, _ = cli("check", str(run.folder), "P1<0.10")
    rows = run.check("P1<0.10").to_dicts()
    assert any(row["notes"] for row in rows)
    for row in rows:
        for note in row["notes"]:
            assert all(word in out for word in note.split())


def test_faults_are_counted_by_rater_and_named_with_views_where_only_some_have_any() -> None:
    rows = [("a", "base", 2, 0), ("a", "reversed", 3, 1), ("b", "base", 0, 0), ("b", "after", 0, 4)]
    tally = pl.DataFrame(
        [
            dict.fromkeys(FAULTS, 0)
            | {"rater": rater, "view": view, "n": 1_000, "n_faults": refused + unparsed}
            | {"refused": refused, "unparsed": unparsed}
            for rater, view, refused, unparsed in rows
        ]
    )
    told = "no class in 10 of 4,000 decisions (a: 1 unparsed, 5 refused; b: 4 unparsed under after)"
    assert failures_line(tally) == told
    assert failures_line(tally.filter(n_faults=0)) == ""
