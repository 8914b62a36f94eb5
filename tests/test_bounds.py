"""Files from somebody who wishes us ill: each ends in one message, soon and in little memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bounded import bounded
from conftest import Cli
from flipmeter.measure import Limit, hold_limits, phase0_table, verdict, wilson
from flipmeter.measure.aspects.confidence import conformal_limit
from flipmeter.model.prices import read_prices
from flipmeter.ship.card import EstimateEntry, read_card
from flipmeter.ship.gate import read_gate
from flipmeter.study.file import read_study
from flipmeter.types import Problem

Write = Callable[[str, str], Path]

STUDY = "models: sim/honest\ndatasets: reviews\n"
READERS: Mapping[str, Callable[[Path], object]] = {
    "study": read_study,
    "gate": read_gate,
    "card": read_card,
    "prices": read_prices,
}


def laughs(start: str, line: str, n_lines: int = 40) -> str:
    """A YAML file in which every line doubles the one before."""
    return start + "".join(line.format(n=n, m=n - 1) for n in range(1, n_lines))


BOMBS = {
    "aliases in lists": laughs("a0: &a0 [x, x]\n", "a{n}: &a{n} [*a{m}, *a{m}]\n"),
    "aliases in mappings": laughs("a0: &a0 {k: x}\n", "a{n}: &a{n} {{k: *a{m}, l: *a{m}}}\n"),
    "merge keys": laughs("a0: &a0 {k0: x}\n", "a{n}: &a{n} {{<<: [*a{m}, *a{m}], k{n}: x}}\n"),
    "an alias of itself": "a: &a [*a]\n",
    "an alias of nothing": "a: *b\n",
    "lists in lists": "a: " + "[" * 100_000,
    "closed lists in lists": "a: " + "[" * 500 + "]" * 500,
    "mappings in mappings": "".join(f"{' ' * n}a:\n" for n in range(300)),
    "many values": "a: [" + "1," * 2_000_000 + "]\n",
    "many keys": "".join(f"k{n}: 1\n" for n in range(200_000)),
    "a long number": f"a: {'9' * 5_000}\n",
    "a long number in base 60": f"a: 1{':0' * 200_000}\n",
    "a large number": f"a: 0x{'f' * 80}\n",
    "not a number": "a: .nan\n",
    "an infinity": "a: [1, {b: -.inf}]\n",
    "no boolean": "a: !!bool x\n",
    "no integer": "a: !!int ''\n",
    "no time": "a: !!timestamp x\n",
    "a date": "a: 2024-01-01\n",
    "a set": "a: !!set {x, y}\n",
    "bytes": "a: !!binary aGVsbG8=\n",
    "an object": "a: !!python/object/apply:os.system [true]\n",
    "half a character": 'a: "\\uD800"\n',
    "two documents": "a: 1\n---\na: 2\n",
    "a NUL": "a: \0\n",
    "a key of a list": "? [a, b]\n: 1\n",
    "nothing": "",
    "a text": "hello\n",
    "17 MB": "a: " + "x" * 17_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("reader", READERS)
def test_hostile_yaml_ends_in_one_message(reader: str, bomb: str, write: Write) -> None:
    path = write("file.yaml", BOMBS[bomb])
    with bounded(), pytest.raises(Problem) as raised:
        READERS[reader](path)
    assert "file.yaml" in str(raised.value)
    assert len(str(raised.value)) < 2000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" + "[]," * 2_000_000 + "[]]", '{"data": 1e999}']
)
def test_a_hostile_price_list_ends_in_one_message(text: str, write: Write) -> None:
    with bounded(), pytest.raises(Problem, match=r"p\.json"):
        read_prices(write("p.json", text))


def test_what_is_set_on_the_command_line_is_bounded_too(cli: Cli) -> None:
    for value in ("[" * 5_000, "9" * 5_000, ".nan", "!!timestamp x"):
        code, _, err = cli("plan", "demo", "--set", f"margin={value}")
        assert (code, err.count("Traceback")) == (2, 0)


def test_a_study_in_python_may_not_hold_itself() -> None:
    content: dict[str, Any] = {"models": "sim/honest", "datasets": "reviews"}
    content["base"] = content
    with pytest.raises(Problem, match="refers to itself"):
        read_study(content)


def test_long_texts_and_shared_values_are_fine(write: Write) -> None:
    text = "x" * 100_000
    plain = write("s.yaml", f"{STUDY}name: &n long\nvary: {{}}\ncriteria: [{text}, *n]\n")
    assert read_study(plain).criteria == [text, "long"]


# --- numbers that mean something else ---------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.95, 0.51, 1, 0, -0.05, math.nan, math.inf])
def test_an_alpha_that_is_no_error_rate_is_refused(alpha: float) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: read_gate({"alpha": alpha, "flips": 0.7}),
        lambda: verdict([[1, 2]], alpha=alpha),
        lambda: hold_limits(None, (), {("r", "d", ""): [Limit("flips", "P1", 0.1)]}, alpha=alpha),  # type: ignore[arg-type]
        lambda: phase0_table(None, alpha=alpha),  # type: ignore[arg-type]
        lambda: conformal_limit(np.zeros(3), alpha),
    )
    for call in calls:
        with pytest.raises(Problem, match="alpha"):
            call()


def test_a_gate_with_a_confidence_for_alpha_is_told_what_was_meant(write: Write) -> None:
    with pytest.raises(Problem, match=r"gate\.yaml: alpha is 0\.95.*did you mean 0\.05\?"):
        read_gate(write("gate.yaml", "alpha: 0.95\nflips: 0.70\n"))


def test_an_interval_of_a_level_that_is_an_error_is_told_what_was_meant() -> None:
    with pytest.raises(Problem, match=r"did you mean 0\.95\?"):
        wilson(1, 4, level=0.05)


@pytest.mark.parametrize(
    "change",
    [
        {"base": {"cardinality": 1}},
        {"base": {"cardinality": True}},
        {"base": {"cardinality": -3}},
        {"base": {"shots": -1}},
        {"seeds": [-1]},
        {"margin": math.nan},
        {"margin": 1},
        {"min_interval": math.inf},
        {"budget": {"usd": math.nan}},
        {"decoding": {"temperature": math.inf}},
        {"models": [{"model": "sim/honest", "timeout": math.inf}]},
        {"models": [{"model": "sim/honest", "extra_body": {"x": [math.nan]}}]},
        {"test_size": 10**30},
    ],
    ids=str,
)
def test_a_number_that_means_nothing_is_refused(change: Mapping[str, Any]) -> None:
    with pytest.raises(Problem):
        read_study({"models": "sim/honest", "datasets": "reviews", **change})


def test_more_classes_than_the_scale_has_are_refused(cli: Cli) -> None:
    code, _, err = cli("show", "demo", "--set", "base.cardinality=9")
    assert code == 2
    assert "cannot be merged to 9" in err


def test_an_interval_the_wrong_way_round_is_refused() -> None:
    with pytest.raises(Problem, match="order them"):
        EstimateEntry(value=0.5, low=0.6, high=0.4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "sim/honest", "--delay", "nan"),
        ("serve", "sim/honest", "--port", "70000"),
        ("confirm", "card.yaml", "--items", "0"),
        ("plan", "demo", "--rate", "inf"),
    ],
    ids=" ".join,
)
def test_an_option_that_means_nothing_is_refused(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli(*arguments)[0] == 2
