"""What importing the package costs, in modules: seconds depend on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flipmeter.__main__ import ALLOCATOR

LOADED = (
    "import sys\nbefore = set(sys.modules)\n{statement}\nnew = set(sys.modules) - before\n"
    "print(len(new), *sorted({{name.partition('.')[0] for name in new}}))"
)


def loaded(statement: str) -> tuple[int, set[str]]:
    """How many modules a statement loads in a new interpreter, and from which packages."""
    code = LOADED.format(statement=statement)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code.replace("import sys\n", _path(), 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    number, *packages = done.stdout.split()
    return int(number), set(packages)


def _path() -> str:
    return f"import sys\nsys.path[:] = {sys.path!r}\n"


def test_importing_the_package_loads_a_few_modules_of_the_standard_library() -> None:
    number, packages = loaded("import flipmeter")
    assert number <= 45
    assert packages - sys.stdlib_module_names == {"flipmeter"}


@pytest.mark.parametrize(
    ("statement", "most", "never"),
    [
        ("import flipmeter.pytest_plugin", 330, {"polars", "scipy", "sklearn", "aiohttp"}),
        ("from flipmeter import Question", 80, {"polars", "scipy", "sklearn", "aiohttp"}),
        ("from flipmeter import Study", 1000, {"sklearn", "torch", "ray", "inspect_ai"}),
    ],
)
def test_a_public_name_loads_no_more_than_it_needs(
    statement: str, most: int, never: set[str]
) -> None:
    number, packages = loaded(statement)
    assert number <= most
    assert not packages & never


LET_GO = """
import os, sys
sys.path[:] = {path!r}
import {module}
import polars as pl

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

made = pl.int_range(8_000_000, eager=True)
most = resident()
del made
print(most - resident())
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read there")
def test_the_command_line_gives_memory_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOCATOR[0], raising=False)
    code = LET_GO.format(path=sys.path, module="flipmeter.__main__")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 50


def test_the_allocator_of_a_user_is_left_alone() -> None:
    code = "import flipmeter.__main__, os, sys; print(os.environ[sys.argv[1]], *sys.modules)"
    name, own = ALLOCATOR[0], "dirty_decay_ms:1000"
    done = subprocess.run(
        [sys.executable, "-c", code, name],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, name: own},
    )
    told, *modules = done.stdout.split()
    assert told == own
    assert "polars" not in modules
