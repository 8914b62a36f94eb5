"""The documents stay true: what is registered is described, and links lead somewhere."""

from __future__ import annotations

import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from flipmeter import types
from flipmeter.data.catalog import datasets
from flipmeter.prompt.levels import clarities, factors, label_formats, moods
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import natural, probes
from flipmeter.types import FAULTS, Item, Style, View

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
NOUNS = (ROOT / "docs" / "reference" / "nouns.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LEVELS = [level for registry in factors.values() for level in registry]
SHOWN = {view.name for probe in probes for view in probes[probe].views(3)}
VIEWS = sorted({re.sub(r"_\d+$", "_1", name) for name in SHOWN})  # the first of a series
CONTRASTS = [contrast for probe in probes for contrast in probes[probe].contrasts]
CLASSES = [
    name
    for name, kind in inspect.getmembers(types, inspect.isclass)
    if kind.__module__ == types.__name__ and is_dataclass(kind)
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:work|home|root|tmp|var|mnt|Users)/|\b[A-Z]:\\")

QUERY = Item("q", {"text": "The soup was worth the wait."})
DEMO = Item("d", {"text": "Everything about it is dull."}, 2, role="demo")


def test_the_method_names_what_a_study_may_use() -> None:
    names = [*factors, *LEVELS, *probes, *VIEWS, *FAULTS, *datasets]
    assert [name for name in names if f"`{name}`" not in METHOD] == []


def test_the_method_lists_every_contrast_with_its_views() -> None:
    for contrast in CONTRASTS:
        named = [f"`{view}`" for view in contrast.views]
        views = ", ".join([*named[:2], "…"] if contrast.is_open else named)
        assert f"| `{contrast.probe}` | {contrast.name} | {views} |" in METHOD


def test_every_noun_is_in_the_dictionary() -> None:
    assert [name for name in CLASSES if f"`{name}` in `types.py`" not in NOUNS] == []


def test_the_method_shows_the_baseline_prompt() -> None:
    task = datasets["sst5"].task
    text = render(task, Style(), View("base", natural(5)), [DEMO], QUERY).text
    assert "\n".join(f"    {line}".rstrip() for line in text.splitlines()) in METHOD


@pytest.mark.parametrize("clarity", list(clarities))
@pytest.mark.parametrize("mood", list(moods))
def test_the_method_quotes_every_header(clarity: str, mood: str) -> None:
    task, style = datasets["sst5"].task, Style(clarity=clarity, mood=mood)
    header = render(task, style, View("base", natural(5)), (), QUERY).text.partition("\n\n")[0]
    first, *rest = re.sub(r"\[.*\]", "[…]", header).splitlines()
    assert f"| `{clarity}` | `{mood}` | `{first}` |" in METHOD
    assert all(f"`{line}`" in METHOD for line in rest)


def test_the_method_quotes_every_label_list() -> None:
    for name in label_formats:
        listing = label_formats[name].listing(datasets["sst5"].task.scale, natural(5))
        assert f"| `{name}` | `[{listing}]` |" in METHOD


def test_links_lead_somewhere() -> None:
    made = ROOT / "docs" / "reference" / "cli.md"  # by the build of the site, which checks it
    for page in PAGES:
        links = LINK.findall(page.read_text(encoding="utf-8"))
        for path, _, section in (link.partition("#") for link in links if ":" not in link):
            linked = page.parent / path if path else page
            if linked != made:
                assert linked.exists(), f"{page}: {path} is not there"
                assert not section or section in _sections(linked), f"{page}: no {section}"


def _sections(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_no_page_names_a_place_on_one_machine() -> None:
    places = {page: MACHINE_PATH.search(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: place for page, place in places.items() if place} == {}


THREATS = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")


def test_every_threat_is_held_by_a_test_that_there_is() -> None:
    rows = [row for row in THREATS.splitlines() if row.startswith("| ") and "---" not in row]
    named = [re.findall(r"`(test_\w+\.py)::(test_\w+)`", row) for row in rows]
    assert len(rows) > 30
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == [
        row for row in rows if row.startswith("| threat |")
    ]
    for file, test in (pair for tests in named for pair in tests):
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, test)
