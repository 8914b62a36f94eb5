"""The command that writes docs/calibration.md: its cells, its limits and its page."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import calibration  # type: ignore[import-not-found,unused-ignore]

    return calibration


def test_every_surface_has_cells_with_names_of_their_own(command: ModuleType) -> None:
    names = [cell.name for cell in command.cells()]
    assert len(set(names)) == len(names)
    assert {command.section_of(name) for name in names} == set(command.SECTIONS)


@pytest.mark.parametrize(
    "name",
    [
        "verbs: few always flip, seeds=5 n=20",
        "verbs: copies x3, null n=20",
        "verbs: compare, alike, seeds=3 n=20",
        "verbs: select, candidates=10 seeds=3 n=100",
        "verbs: severity, 5 % redrawn n=20",
        "compare: rare, across n=20",
        "stop: rate=0.1 unread=0.04",
    ],
)
def test_cells_hold_their_limits_in_a_few_studies(command: ModuleType, name: str) -> None:
    (cell,) = [cell for cell in command.cells() if cell.name == name]
    found = command.counted(cell, 4, None)
    assert {rate.outcome for rate in found} >= set(cell.limits)
    assert all(
        0 <= rate.error < 1 or "width" in rate.outcome or rate.outcome == "items" for rate in found
    )


def test_a_broken_limit_is_named_at_the_top_of_the_page(command: ModuleType) -> None:
    wrong = command.Rate("verdict: made up", "stable", 0.2, 0.01, 2000, command.Limit(most=0.05))
    right = command.Rate("verdict: made up", "flips", 0.04, 0.01, 2000, command.Limit(most=0.05))
    text = command.page([wrong, right], "the command", 2000, 200)
    assert "1 of 2 limits are broken.\n- verdict: made up, stable: 0.200, at most 0.05" in text
    assert "| made up | flips | 0.040 ± 0.010 | at most 0.05 | 2,000 |" in text


def test_results_are_kept_and_not_counted_again(
    command: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = command.ManyCell("tests: coin", lambda rng, n: {"heads": rng.integers(0, 2, n).tolist()})
    kept = tmp_path / "kept.jsonl"
    first = command.counted(cell, 50, kept)
    monkeypatch.setattr(np.random, "default_rng", lambda *_: pytest.fail("counted again"))
    assert command.counted(cell, 50, kept) == first


def test_cells_that_were_not_studied_stay_as_the_page_has_them(command: ModuleType) -> None:
    before = command.PAGE.read_text(encoding="utf-8")
    kept = list(command.printed(before))
    own, limit = kept[0], kept[0].limit
    new = command.Rate(own.cell, own.outcome, 0.5, 0.01, 2000, limit)
    text = command.page(command.in_order([new], kept), "the command", 2000, 200)
    assert f"| {own.outcome} | 0.500 ± 0.010 | **{limit}: broken** | 2,000 |" in text
    others = [rate for rate in kept if rate.cell != own.cell]
    assert [rate for rate in command.printed(text) if rate.cell != own.cell] == others
