"""The names that packages offer: what others use or a page explains, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import flipmeter

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flipmeter"
FACADES = ("data", "probe", "prompt", "model", "parse", "decide", "measure", "report", "view")
PAGES = [
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
    if path.name not in ("log.md", "calibration.md", "nouns.md")
]


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Every import and class of every module, with the package that it is in."""
    return [
        (path.relative_to(SOURCE).parts[0], node)
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.ImportFrom, ast.ClassDef))
    ]


def imported_elsewhere(package: str) -> set[str]:
    """Every name that modules of other packages take from a façade."""
    return {
        alias.name
        for where, node in nodes()
        if where != package
        if isinstance(node, ast.ImportFrom) and node.module == f"flipmeter.{package}"
        for alias in node.names
    }


@pytest.mark.parametrize("package", FACADES)
def test_a_facade_offers_what_is_used_or_explained(package: str) -> None:
    offered = set(import_module(f"flipmeter.{package}").__all__)
    used = imported_elsewhere(package)
    explained = {name for name in offered if any(re.search(rf"\b{name}\b", p) for p in PAGES)}
    assert sorted(offered - used - explained) == []


@pytest.mark.parametrize("package", FACADES)
def test_what_a_facade_offers_is_there(package: str) -> None:
    module = import_module(f"flipmeter.{package}")
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_public_names_are_these() -> None:
    assert sorted(flipmeter.__all__) == [
        *("Example", "Label", "OrdinalClassifier", "Predictions", "Problem", "Question", "Run"),
        *("Study", "__version__", "read_predictions", "read_study", "stats"),
    ]


def test_a_class_name_stands_for_one_idea() -> None:
    names = Counter(node.name for _, node in nodes() if isinstance(node, ast.ClassDef))
    # `Study` and `Run` are public in `api`, each beside what it is made of.
    assert {name for name, n in names.items() if n > 1} == {"Study", "Run"}
