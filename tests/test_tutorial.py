"""The tutorial works: its commands are run in their order, as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flipmeter.api import STORE
from flipmeter.cli import VERBS

pytestmark = pytest.mark.long

Cli = Callable[..., tuple[int, str, str]]

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.md"
FLIP_PROOF = PAGE.with_name("flip-proof.md")
BLOCK = re.compile(r"<!-- (run|file)(.*?) -->\n```\w+\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A file to write, or commands to run with the exit codes that they may end with."""

    file: str
    content: str
    codes: tuple[int, ...]

    @property
    def commands(self) -> list[list[str]]:
        return [shlex.split(line) for line in self.content.splitlines() if line]


def steps(page: Path = PAGE) -> Iterator[Step]:
    for kind, about, content in BLOCK.findall(page.read_text(encoding="utf-8")):
        codes = tuple(int(code) for code in re.findall(r"\d+", about)) if kind == "run" else ()
        yield Step(
            about.removeprefix(":").strip() if kind == "file" else "", content, codes or (0,)
        )


def test_the_tutorial_goes_the_whole_way() -> None:
    verbs = [command[1] for step in steps() if not step.file for command in step.commands]
    assert verbs == [
        *("list", "init", "plan", "run", "report"),
        *("select", "classify", "check", "check"),
    ]


def go_through(cli: Cli, model: str, *, limit: int = 10) -> list[str]:
    """Do all that the page says, and return the verbs that are not there yet."""
    missing = []
    for step in steps():
        if step.file:
            Path(step.file).write_text(step.content, encoding="utf-8")
            continue
        for program, verb, *arguments in step.commands:
            assert program == "flipmeter"
            if verb not in VERBS:
                missing.append(verb)
                continue
            named = ["--model", model] if verb == "init" else []
            words = [str(limit) if word == "10" else word for word in arguments]
            code, out, err = cli(verb, *words, *named)
            assert code in step.codes, f"{verb}: {out}{err}"
    assert Path("runs/reviews/report.html").is_file()
    assert Path("flipmeter.xml").is_file()
    return missing


def test_the_tutorial_works_on_a_simulated_rater(cli: Cli) -> None:
    missing = go_through(cli, "sim/first-slot")
    if missing:
        pytest.skip(f"all but {', '.join(missing)}, which is not there yet")


def test_the_way_to_a_rater_that_cannot_flip_works_as_it_stands(cli: Cli) -> None:
    said = []
    for step in steps(FLIP_PROOF):
        if step.file:
            Path(step.file).write_text(step.content, encoding="utf-8")
        for _, verb, *arguments in () if step.file else step.commands:
            code, out, err = cli(verb, *arguments)
            assert code in step.codes, f"{verb}: {out}{err}"
            said.append((verb, out))
    assert [verb for verb, _ in said] == ["plan", "run", "select", "confirm"]
    assert "ruled out by construction in all of these: flips of P1" in said[2][1]
    assert "pipeline: " in Path("rater.yaml").read_text(encoding="utf-8")


@pytest.mark.real
def test_the_tutorial_works_on_the_embedded_model(
    cli: Cli, self_tested: Callable[[Path], None]
) -> None:
    self_tested(STORE)
    missing = go_through(cli, "local/smollm2-135m", limit=2)
    if missing:
        pytest.skip(f"all but {', '.join(missing)}, which is not there yet")
