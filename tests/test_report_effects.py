"""Effects on a terminal, in files and by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from conftest import Cli
from flipmeter.ask.store import Store
from flipmeter.run.perform import perform
from flipmeter.stats.bounds import found_by
from flipmeter.study.file import read_study

STUDY = {
    "models": ["sim/biased-noisy", "sim/honest"],
    "datasets": ["reviews"],
    "test_size": 20,
    "probes": ["label_order"],
    "repeats": 1,
    "vary": {"label_format": ["letter"], "shots": [1]},
}


@pytest.fixture(params=["one-at-a-time", "factorial"])
def design(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    with Store() as store:
        perform(read_study({**STUDY, "design": request.param}), tmp_path / "run", store)
    return str(request.param)


def test_the_verb_shows_residuals_and_interactions_where_factors_are_crossed(
    design: str, cli: Cli
) -> None:
    code, out, _ = cli("effects", "run")
    assert code == 0
    flat = " ".join(out.split())
    is_crossed = design == "factorial"
    assert ("Label format × Demo count" in flat) == is_crossed
    assert ("cannot see interactions" in flat) != is_crossed
    told = json.loads(cli("effects", "run", "--json")[1])
    assert {row["rater"] for row in told["residuals"]} == {"sim/biased-noisy", "sim/honest"}
    assert ("interactions" in told) == is_crossed
    if is_crossed:
        assert {row["metric"] for row in told["interactions"]} == {"accuracy", "P1"}


def test_files_have_every_table(design: str, cli: Cli) -> None:
    for ending in ("md", "tex", "csv", "parquet"):
        assert cli("effects", "run", "--out", f"e.{ending}")[0] == 0
    assert ("Label format × Demo count" in Path("e.md").read_text()) == (design == "factorial")
    assert r"\begin{tabular}" in Path("e.tex").read_text()
    assert pl.read_csv("e.csv").height == pl.read_parquet("e.parquet").height
    assert cli("effects", "run", "--csv")[1] == Path("e.csv").read_text()


@pytest.mark.parametrize(
    ("p_holm", "p_bh", "found"),
    [(0.01, 0.01, "holm"), (0.2, 0.01, "bh"), (0.2, 0.2, ""), (None, None, ""), (None, 0.01, "bh")],
)
def test_an_effect_is_found_by_the_strictest_correction_that_it_passes(
    p_holm: float | None, p_bh: float | None, found: str
) -> None:
    assert found_by(p_holm, p_bh) == found
