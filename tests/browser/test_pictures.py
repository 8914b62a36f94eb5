"""The pictures of README and the site, taken from reports that are made on the spot.

They go to the folder that FLIPMETER_PICTURES names: `make pictures` writes those of docs/images.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
pytest.importorskip("axe_playwright_python", reason="make test-browser installs it")

from chromium import launched, opened
from playwright.sync_api import Browser, Page

from flipmeter.show.next_steps import findings
from flipmeter.show.whole import write_report
from report_runs import simulated

RATERS = ["sim/honest", "sim/first-slot", "sim/last-slot", "sim/biased-noisy"]
ROOT = Path(__file__).parents[2]
STUDIES: dict[str, dict[str, Any]] = {
    "report": {"name": "raters", "models": RATERS, "test_size": 100, "repeats": 2},
    "configurations": {
        "name": "prompts",
        "models": ["sim/honest", "sim/biased-noisy"],
        "vary": {"label_format": ["letter", "neutral_id"], "mood": ["indicative"]},
        "design": "factorial",
        "probes": ["label_order"],
        "test_size": 100,
    },
}
"""Simulated raters, whose preferences are known: a picture needs no weights."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


def kept(name: str, tmp_path: Path) -> Path:
    folder = ROOT / os.environ.get("FLIPMETER_PICTURES", str(tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"


def is_in_sight(page: Page, selector: str) -> bool:
    box = page.locator(selector).first.bounding_box()
    size = page.viewport_size
    return box is not None and size is not None and box["y"] < size["height"]


def test_the_first_screen_has_the_answer_the_matrix_and_the_next_step(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # commands in the picture name the run as a user would
    path = tmp_path / "report.html"
    write_report(findings(simulated(Path("runs/raters"), **STUDIES["report"])), path)
    with opened(browser, path.as_uri(), path.as_uri(), width=1180) as page:
        assert all(is_in_sight(page, one) for one in (".headline", "table.matrix", "#next"))
        out = kept("report", tmp_path)
        page.screenshot(path=out)
        assert out.stat().st_size > 20_000


def test_the_configuration_view_is_drawn(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "configurations.html"
    write_report(findings(simulated(tmp_path / "run", **STUDIES["configurations"])), path)
    with opened(browser, path.as_uri(), path.as_uri(), width=1180) as page:
        figure = page.locator("figure.configurations .drawn")
        assert figure.locator("svg.plot circle").count() == 12
        out = kept("configurations", tmp_path)
        figure.screenshot(path=out)
        assert out.stat().st_size > 5_000
