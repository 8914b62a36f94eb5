"""Effects on a terminal, in files and by the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from conftest import Cli
from flipmeter.measure import effects
from flipmeter.measure.inference.significance import found_by
from flipmeter.model import Store
from flipmeter.report import CANNOT_SEE, effect_notes, effect_table, write_effects
from flipmeter.report.effects import effects_markdown, level_text, term_text
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study
from flipmeter.types import Problem


def decided(cells: dict[str, float], n_items: int = 60) -> pl.DataFrame:
    """Write decisions of two classes that are right with the share of their cell."""
    chance = np.random.default_rng(0)
    rows = [
        {"level": level, "item": f"i{item}", "rank": 1 if is_right else 2}
        for level, share in cells.items()
        for item, is_right in enumerate(chance.random(n_items) < share)
    ]
    about = {"rater": "r", "dataset": "d", "view": "base", "seed": 0, "repeat": 0, "gold": 1}
    named = {name: pl.lit(value) for name, value in {**about, "n_classes": 2}.items()}
    return pl.DataFrame(rows).with_columns(**named)


CROSSED = {"": 0.5, "clarity=minimal": 0.5, "shots=1": 0.5, "clarity=minimal,shots=1": 0.95}
SINGLE = {"": 0.5, "clarity=minimal": 0.9, "shots=1": 0.5}


def printed(table: pl.DataFrame) -> str:
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(effect_table(table))
    return console.export_text()


def test_the_table_shows_terms_levels_and_what_is_left() -> None:
    table = effects(decided(CROSSED), [])
    lines = [line.strip() for line in printed(table).splitlines()]
    assert any(line.startswith("Prompt clarity × Demo count") and "**" in line for line in lines)
    assert any(
        line.startswith("minimal × 1-shot  ") or "minimal × 1-shot" in line for line in lines
    )
    assert any(line.startswith("residual") for line in lines)
    notes = "\n".join(effect_notes(table))
    assert "4 cells, 60 items" in notes
    assert "found Prompt clarity × Demo count" in notes
    assert CANNOT_SEE not in notes


def test_one_factor_at_a_time_is_warned_of_and_shows_no_interaction() -> None:
    table = effects(decided(SINGLE), [])
    assert CANNOT_SEE in effect_notes(table)
    assert "×" not in printed(table)
    assert "cannot see interactions" in effects_markdown(table)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, "41 % (2) p 0.003 **"),
        ({"p_holm": 0.2}, "41 % (2) p 0.003 *"),
        ({"p_holm": 0.2, "p_bh": 0.06}, "41 % (2) p 0.003"),
        ({"p": None}, "41 % (2)"),
        ({"p": None, "share": None}, "-"),
    ],
)
def test_a_term_shows_its_share_and_how_sure_it_is(changes: dict[str, Any], wanted: str) -> None:
    row = {"share": 0.41, "share_by_chance": 0.02, "p": 0.003, "p_holm": 0.03, "p_bh": 0.01}
    row |= changes
    found = {"found_by": found_by(row["p_holm"], row["p_bh"])}
    assert term_text(row | found) == wanted


def test_a_level_shows_points_with_their_interval_or_a_dash() -> None:
    assert level_text({"value": 2.24, "low": -1.0, "high": 5.3}) == "+2.2 [-1.0, 5.3]"
    assert level_text({"value": None, "low": None, "high": None}) == "-"


def test_files_hold_the_table_or_all_numbers(tmp_path: Path) -> None:
    table = effects(decided(CROSSED), [])
    write_effects(table, tmp_path / "e.parquet")
    assert pl.read_parquet(tmp_path / "e.parquet").equals(table)
    write_effects(table, tmp_path / "e.csv")
    lines = (tmp_path / "e.csv").read_text(encoding="utf-8").splitlines()
    assert len(list(csv.DictReader(lines))) == table.height
    write_effects(table, tmp_path / "e.md")
    assert "Prompt clarity × Demo count" in (tmp_path / "e.md").read_text(encoding="utf-8")
    with pytest.raises(Problem, match=r"must end in \.csv, \.md or \.parquet"):
        write_effects(table, tmp_path / "e.tex")


def test_the_command_line_shows_effects_and_says_what_they_cannot_see(
    tmp_path: Path, cli: Cli
) -> None:
    study = read_study(
        {
            "models": ["sim/biased-noisy"],
            "datasets": ["reviews"],
            "test_size": 20,
            "probes": ["label_order"],
            "repeats": 1,
            "vary": {"label_format": ["letter"], "shots": [1]},
        }
    )
    with Store() as store:
        perform(study, tmp_path / "run", store)
    code, out, _ = cli("effects", "run", "--out", "e.md")
    assert code == 0
    assert "Effects of each factor" in out
    assert "cannot see interactions" in " ".join(out.split())
    assert (tmp_path / "e.md").is_file()
    _, out, _ = cli("effects", "run", "--json")
    told = json.loads(out)["effects"]
    assert {row["metric"] for row in told} == {"accuracy", "P1"}
    _, out, _ = cli("residuals", "run")
    assert "cannot see interactions" in " ".join(out.split())


@pytest.mark.parametrize(
    ("p_holm", "p_bh", "found"),
    [(0.01, 0.01, "holm"), (0.2, 0.01, "bh"), (0.2, 0.2, ""), (None, None, ""), (None, 0.01, "bh")],
)
def test_an_effect_is_found_by_the_strictest_correction_that_it_passes(
    p_holm: float | None, p_bh: float | None, found: str
) -> None:
    assert found_by(p_holm, p_bh) == found
