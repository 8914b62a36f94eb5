"""Do the tests notice a changed line? A seeded sample of mutants, each against its stage's tests.

    python benchmarks/mutants.py [--n 300] [--seed 0] [--results mutants.jsonl] [--minutes 60]

A mutant is the package with one operator, number or name changed. It is made in a scratch copy and
tested in a forked process, so the libraries are imported once. Results are appended to a file as
they come: started again, the command goes on where it stopped. A mutant that no test notices has
survived, and is printed with its line; `--explained` names those that change nothing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("measure", "decide", "parse", "prompt")
PATIENCE = 240.0
"""Seconds after which a mutant counts as noticed: it hangs, or is far slower."""

ASPECTS = ("measure_severity", "measure_direction", "measure_excess", "measure_aspects")
CORE = ("core_bounds", "core_verdict", "core_differences", "core_randomise", "core_boundaries")
TESTS: dict[str, tuple[str, ...]] = {
    "measure/aspects/certainty": ("measure_certainty", "measure_aspects"),
    "measure/aspects/confidence": ("measure_confidence", "measure_aspects"),
    "measure/aspects/options": ("measure_options",),
    "measure/aspects/pair_order": ("measure_options", "systems", "pair_tables"),
    "measure/aspects/systems": ("systems",),
    "measure/aspects": ASPECTS,
    "measure/effects/residuals": ("measure_residuals",),
    "measure/effects/compare": ("measure_aspects", "core_differences"),
    "measure/effects/interactions": ("measure_interactions",),
    "measure/effects/gee": ("measure_interactions",),
    "measure/effects/crossed": ("measure_interactions",),
    "measure/effects": ("measure_configs", "measure_residuals", "measure_interactions"),
    "measure/estimates": ("measure_flips", "measure_scores", "measure_table", "measure_grouped"),
    "measure/inference/claims": ("measure_claims", "check"),
    "measure/inference/limits": ("check", "measure_claims"),
    "measure/inference/sequential": ("core_boundaries", "until"),
    "measure/inference": (*CORE, "measure_words", "core_by_definition", "verdicts"),
    "measure/panel": ("measure_flips", "measure_table", "measure_grouped", "measure_aspects"),
    "measure/statistics": ("measure_inference", "measure_jackknife", "measure_flips", "systems"),
    "decide/aggregators": ("aggregate", "pipelines"),
    "decide/debiasers": ("debias", "pipelines"),
    "decide": ("pipelines", "debias", "pair_order"),
    "parse": ("parse", "extract", "sampled_scores", "long_scales"),
    "prompt/comparing": ("prompt_comparing", "prompt"),
    "prompt/template": ("own_prompts", "prompt"),
    "prompt/metered": ("own_prompts",),
    "prompt": ("prompt", "levels", "prompt_comparing", "own_prompts", "option_order"),
}
"""The tests of a module, by the longest beginning of its path: those that fail soonest first."""

SWAPS: dict[Any, Any] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
NAMES |= {"maximum": "minimum", "floor": "ceil", "ceil": "floor"}


@dataclass(frozen=True)
class Mutant:
    """One change: the module, the line, and the statement before and after."""

    module: str
    place: int
    line: int
    before: str
    after: str


def tests_of(module: str) -> list[str]:
    stem = max((one for one in TESTS if module.startswith(one)), key=len)
    files = [f"tests/test_{name}.py" for name in TESTS[stem]]
    return [name for name in files if (ROOT / name).is_file()]


def sites(tree: ast.Module) -> list[ast.AST]:
    """The nodes of a module that can be changed, in a fixed order; types and texts are left out."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        notes = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            notes += [node] if node.value.id in ("Literal", "Annotated", "Callable") else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            notes += [node] if node.func.id in ("dataclass", "cast", "lru_cache") else []
        for note in notes:
            skipped |= {id(one) for one in ast.walk(note)} if note is not None else set()
    return [node for node in ast.walk(tree) if id(node) not in skipped and _changes(node)]


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return type(node.ops[0]) in SWAPS
    if isinstance(node, ast.BinOp | ast.BoolOp):
        return type(node.op) in SWAPS
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not | ast.Invert | ast.USub)
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float, bool)
    if isinstance(node, ast.Name | ast.Attribute):
        return (node.id if isinstance(node, ast.Name) else node.attr) in NAMES
    return False


def change(node: Any) -> None:
    """Change a node in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = SWAPS[type(node.op)]()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if not isinstance(node.op, ast.UAdd):
            node.operand = ast.UnaryOp(node.op, node.operand)  # not not x, ~~x
    elif isinstance(node, ast.Constant):
        value = node.value
        node.value = not value if isinstance(value, bool) else _other(value)
    elif isinstance(node, ast.Name):
        node.id = NAMES[node.id]
    else:
        node.attr = NAMES[node.attr]


def _other(value: Any) -> float | int:
    """Another number: the next one, or half as much again."""
    return int(value) + 1 if isinstance(value, int) else 1.5 * float(value) or 0.5


def mutated(source: str, place: int) -> tuple[str, int, str, str]:
    """A module with the change at a place: its text, the line, the statement before and after."""
    tree = ast.parse(source)
    other = copy.deepcopy(tree)
    node = sites(other)[place]
    change(node)
    line = getattr(node, "lineno", 0)
    before, after = (ast.unparse(one).splitlines() for one in (tree, other))
    pairs = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    a, b = pairs[0] if pairs else ("", "")
    return "\n".join(after) + "\n", line, a.strip(), b.strip()


def sample(n: int, seed: int) -> list[Mutant]:
    """Mutants drawn from all places of the four stages, the same ones for a seed and a source."""
    package = ROOT / "src" / "flipmeter"
    paths = sorted(path for stage in STAGES for path in (package / stage).rglob("*.py"))
    places = [
        (path, place)
        for path in paths
        for place in range(len(sites(ast.parse(path.read_text(encoding="utf-8")))))
    ]
    drawn = random.Random(seed).sample(places, min(n, len(places)))
    return [_mutant(path, place, package) for path, place in drawn]


def _mutant(path: Path, place: int, package: Path) -> Mutant:
    _, line, before, after = mutated(path.read_text(encoding="utf-8"), place)
    return Mutant(path.relative_to(package).as_posix(), place, line, before, after)


def run(mutant: Mutant, scratch: Path) -> str:
    """Test a mutant in a process of its own: "killed", "survived" or "timeout"."""
    path = scratch / "src" / "flipmeter" / mutant.module
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(source, mutant.place)[0], encoding="utf-8")
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink()
    try:
        return _tested(scratch, tests_of(mutant.module))
    finally:
        path.write_text(source, encoding="utf-8")


def _tested(scratch: Path, tests: Sequence[str]) -> str:
    child = os.fork()
    if not child:
        _test(scratch, tests)
    start = time.monotonic()
    while time.monotonic() - start < PATIENCE:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "survived" if code == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _test(scratch: Path, tests: Sequence[str]) -> None:
    """Run the tests on the scratch copy and end the process with pytest's exit code."""
    os.setpgid(0, 0)
    sys.dont_write_bytecode = True
    os.chdir(scratch)
    sys.path[:0] = [str(scratch / "src"), str(scratch / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    code = 1
    try:
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:flipmeter", "-m", "not real"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries are loaded
        code = int(pytest.main([*options, *tests]))
    finally:
        os._exit(code)


def preload() -> None:
    """Import the libraries once, and nothing of flipmeter."""
    import hypothesis.extra.numpy
    import polars
    import pydantic
    import pytest
    import rich.console
    import scipy.optimize
    import scipy.stats
    import typer

    assert all((hypothesis, polars, pydantic, pytest, rich, scipy, typer))
    assert not [name for name in sys.modules if name.split(".")[0] == "flipmeter"]


def copied(into: Path) -> Path:
    """A copy of what the tests need, without what this machine has stored."""
    for name in ("src", "tests", "docs", "studies", "examples"):
        shutil.copytree(ROOT / name, into / name)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, into)
    return into


def done(results: Path) -> dict[tuple[str, int, str], dict[str, Any]]:
    """What earlier calls found, by mutant; a changed line counts as another mutant."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {(row["module"], row["place"], row["after"]): row for row in rows}


def check_unchanged(module: str, scratch: Path, results: Path) -> None:
    """See once that the tests of a module pass on the package as it is."""
    passed = results.with_suffix(".passed")
    tests = " ".join(tests_of(module))
    if passed.is_file() and tests in passed.read_text(encoding="utf-8").splitlines():
        return
    if _tested(scratch, tests.split()) != "survived":
        sys.exit(f"the tests of {module} fail on the package as it is: {tests}")
    with passed.open("a", encoding="utf-8") as file:
        file.write(f"{tests}\n")


def missing(mutants: Sequence[Mutant], known: dict[Any, Any]) -> Iterator[Mutant]:
    yield from (one for one in mutants if (one.module, one.place, one.after) not in known)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many minutes")
    parser.add_argument("--again", action="store_true", help="test survivors again")
    options = parser.parse_args()
    results, end = options.results.resolve(), time.monotonic() + 60 * options.minutes
    mutants, known = sample(options.n, options.seed), done(results)
    if options.again:
        known = {key: row for key, row in known.items() if row["outcome"] != "survived"}
    preload()
    with tempfile.TemporaryDirectory() as folder:
        scratch = copied(Path(folder))
        for mutant in missing(mutants, known):
            if time.monotonic() > end:
                break
            check_unchanged(mutant.module, scratch, results)
            row = asdict(mutant) | {"outcome": run(mutant, scratch)}
            known[mutant.module, mutant.place, mutant.after] = row
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    show([known[key] for m in mutants if (key := (m.module, m.place, m.after)) in known], mutants)


def show(rows: Sequence[dict[str, Any]], mutants: Sequence[Mutant]) -> None:
    counts = Counter(row["outcome"] for row in rows)
    noticed = counts["killed"] + counts["timeout"]
    print(f"{noticed} of {len(rows)} mutants noticed ({len(mutants)} drawn)", dict(counts))
    for row in rows:
        if row["outcome"] == "survived":
            print(f"{row['module']}:{row['line']}\n  - {row['before']}\n  + {row['after']}")


if __name__ == "__main__":
    main()
