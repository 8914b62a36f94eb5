"""Laws over every level of every factor, those of other people's packages included."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipmeter.errors import Problem
from flipmeter.prompt.levels import factors
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import natural, reversed_order
from flipmeter.registry import Registry
from flipmeter.types import Item, Prompt, Reply, Scale, Style, Task, View

LEVELS = [(factor, level) for factor, registry in factors.items() for level in registry]
every_level = pytest.mark.parametrize(
    ("factor", "level"), LEVELS, ids=[f"{factor}-{level}" for factor, level in LEVELS]
)
TASKS = [
    Task(
        Scale(
            ("very negative", "negative", "neutral", "positive", "very positive"),
            values=("-2", "-1", "0", "1", "2"),
        )
    ),
    Task(
        Scale(("non-hate", "hate"), "non-hateful", "hateful", values=("no", "yes")),
        "Hate Speech",
        "Post",
        "hate",
    ),
]
ORDERS = {"base": natural, "reversed": reversed_order}
QUERY = Item("q", {"text": "The soup was worth the wait."})


def prompts(factor: str, level: str, query: Item = QUERY) -> Iterator[tuple[Task, Prompt]]:
    """Yield the prompt of a level for each task and label order, one demonstration per class."""
    change: dict[str, Any] = {factor: level}
    for task in TASKS:
        demos = [Item(f"d{r}", {"text": f"Shown {r}."}, r, role="demo") for r in task.scale.ranks]
        for name, order in ORDERS.items():
            view = View(name, order(len(task.scale)))
            yield task, render(task, replace(Style(), **change), view, demos[::-1], query)


@every_level
def test_what_a_prompt_offers_can_be_read_back(factor: str, level: str) -> None:
    for task, prompt in prompts(factor, level):
        assert sorted(prompt.ranks) == list(task.scale.ranks)
        read = [parse(Reply(text=answer, finish="stop"), prompt) for answer in prompt.answers]
        assert [answer.rank for answer in read] == list(prompt.ranks)


@every_level
def test_a_prompt_shows_its_texts_once_and_ends_where_an_answer_belongs(
    factor: str, level: str
) -> None:
    for task, prompt in prompts(factor, level):
        texts = [QUERY.text, *(f"Shown {rank}." for rank in task.scale.ranks)]
        assert [prompt.text.count(text) for text in texts] == [1] * len(texts)
        assert prompt.text == prompt.text.rstrip()
        assert prompt.text.rindex(QUERY.text) > prompt.text.rindex("Shown")


@every_level
def test_prompts_share_all_but_the_query(factor: str, level: str) -> None:
    other = Item("o", {"text": "Another."})
    pairs = zip(prompts(factor, level), prompts(factor, level, other), strict=True)
    for (_, one), (_, two) in pairs:
        assert one.script.head == two.script.head
        assert one.text.replace(QUERY.text, other.text) == two.text


@every_level
def test_no_two_levels_of_a_factor_are_the_same_prompt(factor: str, level: str) -> None:
    mine = [prompt.text for _, prompt in prompts(factor, level)]
    for other in factors[factor]:
        if other != level:
            theirs = [prompt.text for _, prompt in prompts(factor, other)]
            assert not set(mine) & set(theirs)


# A level from somebody else's package


CODE = """
from flipmeter.prompt.levels import LabelFormat, label_formats, separators

separators.add("pipe", " | ")
label_formats.add("roman", LabelFormat(lambda slot, name: ["I", "II", "III", "IV", "V"][slot - 1]))
"""


def package(folder: Path, code: str) -> dict[str, str]:
    """Write a package with its metadata; return the environment in which it is installed."""
    (folder / "my_levels.py").write_text(code)
    info = folder / "my_levels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-levels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[flipmeter]\nlevels = my_levels\n")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def python(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True)


def test_a_level_of_another_package_is_listed_studied_and_under_the_laws(tmp_path: Path) -> None:
    env = package(tmp_path, CODE)
    main = "from flipmeter.cli import main; import sys; sys.argv[0] = 'flipmeter'; main()"
    listed = python(env, "-c", main, "list", "factors").stdout
    assert "pipe (from my-levels)" in listed
    assert "roman (from my-levels)" in listed
    study = "{'models': ['sim/honest'], 'datasets': ['reviews'], 'test_size': 10, 'base': %s}"
    code = f"""
from flipmeter.study.grid import conditions
from flipmeter.show.flipped_items import prompt_of
from flipmeter.study.file import read_study
first = conditions(read_study({study % {"separator": "pipe", "label_format": "roman"}}))[0]
print(prompt_of(first, first.items[0]).text)
"""
    shown = python(env, "-c", code).stdout
    assert "[I: very negative, II: negative" in shown
    assert "Label | IV\n" in shown
    laws = (__file__, "-q", "-p", "no:cacheprovider", "-k", "separator-pipe or label_format-roman")
    ran = python(env, "-m", "pytest", *laws)
    assert "8 passed" in ran.stdout, ran.stdout


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    main = "from flipmeter.cli import main; main()"
    ran = python(package(tmp_path, "import nowhere_to_be_found"), "-c", main, "list", "factors")
    assert ran.returncode == 2
    words = " ".join(ran.stderr.split())
    assert "the plug-in 'my-levels' (levels = my_levels) cannot be loaded" in words
    assert "No module named 'nowhere_to_be_found'" in words


BROKEN = """
from flipmeter.ask.family import Family, backends
from flipmeter.prompt.levels import LabelFormat, label_formats


def gone(*given):
    raise KeyError("gone")


class Silent:
    concurrency, is_reproducible, identity = 1, True, "silent@1"
    ask = gone

    async def close(self): ...


class Silence(Family):
    about = "never answers"

    def open(self, model, world, progress):
        return Silent()


backends.add("silent", Silence())
label_formats.add("broken", LabelFormat(gone))
"""


@pytest.mark.parametrize("part", ["base.label_format=broken", "models=[silent/x]"])
def test_a_part_that_fails_is_named_with_its_package_and_line(tmp_path: Path, part: str) -> None:
    main = "from flipmeter.cli import main; import sys; sys.argv[0] = 'flipmeter'; main()"
    study = "{models: [sim/honest], datasets: [reviews], test_size: 10, probes: [label_order]}"
    (tmp_path / "study.yaml").write_text(study)
    words = ["run", str(tmp_path / "study.yaml"), "--set", part, "--out", str(tmp_path / "run")]
    store = ["--store", str(tmp_path / "replies.sqlite")]
    ran = python(package(tmp_path, BROKEN), "-c", main, *words, *store)
    assert ran.returncode == 2
    assert "the plug-in 'my-levels' failed: KeyError: 'gone'" in " ".join(ran.stderr.split())
    assert "my_levels.py, line 7); fix or uninstall it" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_a_name_is_taken_once() -> None:
    registry: Registry[str] = Registry("tone")
    registry.add("soft", "quietly")
    assert registry.package("soft") == "flipmeter"
    with pytest.raises(Problem, match="already a tone named 'soft'"):
        registry.add("soft", "loudly")
