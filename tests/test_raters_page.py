"""The examples of docs/raters.md, run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conftest import Cli
from flipmeter.api import STORE

PAGE = (Path(__file__).parents[1] / "docs" / "raters.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = [
    (line.removeprefix("flipmeter ").split(), title)
    for title, section in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    for kind, _, body in FENCE.findall(section)
    if kind == "sh"
    for line in body.splitlines()
]
EXAMPLES = [
    pytest.param(
        words,
        id=f"{title}: {words[0]}",
        marks=[pytest.mark.real] if "judge.yaml" in words else [],
    )
    for words, title in COMMANDS
]


def test_the_page_has_an_example_of_everything() -> None:
    assert {title for _, title in COMMANDS} == {
        "A prompt file",
        "A judge with a rubric",
        "A Python callable",
        "Structured replies",
        "The demonstrations of a production prompt",
        "Decimal scores",
        "A panel of judges",
        "A table of predictions",
    }


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_runs_as_it_stands(
    words: list[str], cli: Cli, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "judge.yaml" in words:
        request.getfixturevalue("self_tested")(tmp_path / STORE)
    for _, name, body in FENCE.findall(PAGE):
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
    code, out, err = cli(*words)
    assert code == 0, err
    assert out
