"""What importing the package costs, in modules: seconds depend on the machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
        ("from flipmeter import Study", 1000, {"sklearn", "torch", "ray", "inspect_ai", "litellm"}),
    ],
)
def test_a_public_name_loads_no_more_than_it_needs(
    statement: str, most: int, never: set[str]
) -> None:
    number, packages = loaded(statement)
    assert number <= most
    assert not packages & never
