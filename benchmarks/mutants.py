"""Do the tests notice a changed line? A seeded sample of mutants, each against its stage's tests.

    python benchmarks/mutants.py [--n 300] [--seed 0] [--results mutants.jsonl] [--minutes 60]
                                 [--budget 30] [--again]

A mutant is the package with one operator, number or name changed. First the tests run once on a
copy that records which test reaches which of the sampled statements. Each mutant is then tested in
a forked process by the tests that reach it: those of its stage first, the quickest file first,
until one fails or `--budget` seconds of tests have passed. Results are appended to a file: started
again, the command continues where it stopped. Survivors are printed with their lines.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import hashlib
import itertools
import json
import os
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
PATIENCE = 300.0
"""Seconds after which a mutant counts as noticed: it hangs, or is far slower."""
NOTICED = ("killed", "timeout")

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
    "measure/inference/chosen": ("core_bounds", "select", "choose_flip_proof"),
    "measure/inference": (*CORE, "measure_words", "core_by_definition", "verdicts", "weights"),
    "measure/panel": ("measure_flips", "measure_table", "measure_grouped", "measure_aspects"),
    "measure/statistics": ("measure_inference", "measure_jackknife", "measure_flips", "systems"),
    "decide/aggregators": ("aggregate", "pipelines"),
    "decide/debiasers": ("debias", "pipelines"),
    "decide/juries": ("panels",),
    "decide": ("pipelines", "debias", "pair_order", "cuts", "yes_no"),
    "parse": ("parse", "extract", "sampled_scores", "long_scales"),
    "prompt/comparing": ("prompt_comparing", "prompt"),
    "prompt/template": ("own_prompts", "prompt"),
    "prompt/metered": ("own_prompts", "bounds"),
    "prompt/yes_no": ("yes_no", "cuts"),
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

    key: str
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


def named(module: str, tree: ast.Module) -> dict[str, int]:
    """The places of a module by a name that edits elsewhere in it leave alone."""
    owner = {id(node): "" for node in ast.walk(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owner |= {id(one): f"{owner[id(node)]}.{node.name}" for one in ast.walk(node)}
    seen: Counter[str] = Counter()
    names = {}
    for place, node in enumerate(sites(tree)):
        name = f"{module} {owner[id(node)]} {type(node).__name__} {ast.unparse(node)}"
        seen[name] += 1
        names[f"{name} {seen[name]}"] = place
    return names


def sample(n: int, seed: int) -> list[Mutant]:
    """Mutants drawn from all places of the four stages; an edit moves only its own place."""
    package = ROOT / "src" / "flipmeter"
    paths = sorted(path for stage in STAGES for path in (package / stage).rglob("*.py"))
    places = []
    for path in paths:
        module = path.relative_to(package).as_posix()
        for name, place in named(module, ast.parse(path.read_text(encoding="utf-8"))).items():
            key = hashlib.sha256(f"{seed} {name}".encode()).hexdigest()[:16]
            places.append((key, module, place))
    return [_mutant(*one, package) for one in sorted(places)[:n]]


def _mutant(key: str, module: str, place: int, package: Path) -> Mutant:
    _, line, before, after = mutated((package / module).read_text(encoding="utf-8"), place)
    return Mutant(key, module, place, line, before, after)


def run(mutant: Mutant, scratch: Path, tests: Sequence[str]) -> str:
    """Test a mutant in a process of its own: "killed", "survived", "unreached" or "timeout"."""
    if not tests:
        return "unreached"
    path = scratch / "src" / "flipmeter" / mutant.module
    source = path.read_text(encoding="utf-8")
    path.write_text(mutated(source, mutant.place)[0], encoding="utf-8")
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink()
    try:
        return _tested(scratch, tests)
    finally:
        path.write_text(source, encoding="utf-8")


def _tested(scratch: Path, tests: Sequence[str], reached: Path | None = None) -> str:
    child = os.fork()
    if not child:
        _test(scratch, tests, reached)
    start = time.monotonic()
    while time.monotonic() - start < (1800 if reached else PATIENCE):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "survived" if code == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _test(scratch: Path, tests: Sequence[str], reached: Path | None) -> None:
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

        options = [
            "-q",
            *([] if reached else ["-x"]),
            "-p",
            "no:cacheprovider",
            "-p",
            "no:flipmeter",
            "-m",
            "not real",
        ]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # libraries are loaded
        recorder = Recorder(reached) if reached else None
        code = int(pytest.main([*options, *tests], plugins=[recorder] if recorder else []))
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


def done(results: Path) -> dict[str, dict[str, Any]]:
    """Results of earlier calls, by mutant and its change; the last one counts."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {row["key"] + row["after"]: row for row in rows}


class Recorder:
    """A pytest plug-in that writes, by passed test, its seconds and the mutants that it reaches."""

    def __init__(self, into: Path) -> None:
        self.into, self.rows = into, {}  # type: Path, dict[str, dict[str, Any]]
        self.shared: set[str] = set()  # reached by fixtures, which later tests may share
        self.hits: set[str] = set()
        self.failed: set[str] = set()
        builtins._reached = self.hits  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: Any) -> None:
        row = self.rows.setdefault(report.nodeid, {"seconds": 0.0, "places": []})
        row["seconds"] += report.duration
        self.failed |= {report.nodeid} if report.failed else set()
        if report.when == "setup":
            self.shared |= self.hits
        row["places"] += [one for one in self.hits if one not in row["places"]]
        self.hits.clear()

    def pytest_sessionfinish(self) -> None:
        for row in self.rows.values():
            row["places"] = sorted({*row["places"], *self.shared})
        rows = {test: row for test, row in self.rows.items() if test not in self.failed}
        self.into.write_text(json.dumps(rows), encoding="utf-8")


REACHED = "__import__('builtins').__dict__.setdefault('_reached', set()).add('{}')"
"""Works in processes that a test starts, too; what those reach is not recorded."""


def watched(source: str, places: dict[int, str]) -> str:
    """A module that adds a mutant's key to `_reached` before each sampled statement."""
    tree = ast.parse(source)
    nodes = sites(tree)
    keys = {id(nodes[place]): key for place, key in places.items()}
    _watch(tree, keys, inside=False)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _watch(node: ast.AST, keys: dict[int, str], *, inside: bool) -> None:
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        for one in list(block):
            _watch(one, keys, inside=inside)
            if inside and isinstance(one, ast.stmt):
                own = {keys[id(part)] for part in _own(one) if id(part) in keys}
                added = [ast.parse(REACHED.format(key)).body[0] for key in sorted(own)]
                block[block.index(one) : block.index(one)] = added


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement without the statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]


def in_function(source: str, place: int) -> bool:
    """Whether a place is evaluated by a call, and not when the module is imported."""
    return REACHED.format("") in watched(source, {place: ""})


def reaching(mutants: Sequence[Mutant], scratch: Path, folder: Path, end: float) -> dict[str, Any]:
    """Every test with its seconds and the mutants that it reaches; unchanged files are kept."""
    folder.mkdir(exist_ok=True)
    package = scratch / "src" / "flipmeter"
    rows: dict[str, Any] = {}
    keys = "".join(mutant.key for mutant in mutants).encode()
    sources = {m.module: (package / m.module).read_text(encoding="utf-8") for m in mutants}
    for module, source in sources.items():
        places = {m.place: m.key for m in mutants if m.module == module}
        (package / module).write_text(watched(source, places), encoding="utf-8")
        for stale in (package / module).parent.glob(f"__pycache__/{Path(module).stem}.*.pyc"):
            stale.unlink()
    for test in sorted({test for module in sources for test in tests_of(module)}):
        digest = hashlib.sha256(keys + (scratch / test).read_bytes())
        into = folder / f"{Path(test).stem}-{digest.hexdigest()[:16]}.json"
        if time.monotonic() > end:
            sys.exit("not all test files are recorded yet: run the command again")
        if not into.is_file():
            _tested(scratch, [test], into)
        rows |= json.loads(into.read_text(encoding="utf-8"))
    for module, source in sources.items():
        (package / module).write_text(source, encoding="utf-8")
    return rows


def chosen(mutant: Mutant, rows: dict[str, Any], source: str, budget: float) -> list[str]:
    """The tests that reach a mutant: its stage's first, by file, quick files and tests first."""
    own = tests_of(mutant.module)
    if in_function(source, mutant.place):
        tests = [test for test, row in rows.items() if mutant.key in row["places"]]
    else:
        tests = [test for test in rows if test.partition("::")[0] in own]
    files: dict[str, list[str]] = {}
    for test in sorted(tests, key=lambda test: float(rows[test]["seconds"])):
        files.setdefault(test.partition("::")[0], []).append(test)

    def rank(file: str) -> tuple[bool, float]:
        return file not in own, sum(rows[test]["seconds"] for test in files[file])

    ordered = [test for file in sorted(files, key=rank) for test in files[file]]
    spent = list(itertools.accumulate(float(rows[test]["seconds"]) for test in ordered))
    return [test for test, sum_ in zip(ordered, spent, strict=True) if sum_ <= budget]


def missing(mutants: Sequence[Mutant], known: dict[str, Any]) -> Iterator[Mutant]:
    yield from (one for one in mutants if one.key + one.after not in known)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many minutes")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests per mutant")
    parser.add_argument("--again", action="store_true", help="test survivors again")
    options = parser.parse_args()
    results, end = options.results.resolve(), time.monotonic() + 60 * options.minutes
    mutants, known = sample(options.n, options.seed), done(results)
    if options.again:
        known = {key: row for key, row in known.items() if row["outcome"] in NOTICED}
    preload()
    with tempfile.TemporaryDirectory() as folder:
        scratch = copied(Path(folder))
        rows = reaching(mutants, scratch, results.with_suffix(".reach"), end)
        for mutant in missing(mutants, known):
            if time.monotonic() > end:
                break
            source = (ROOT / "src/flipmeter" / mutant.module).read_text(encoding="utf-8")
            tests = chosen(mutant, rows, source, options.budget)
            start = time.monotonic()
            row = asdict(mutant) | {"outcome": run(mutant, scratch, tests), "n_tests": len(tests)}
            row["seconds"] = round(time.monotonic() - start, 1)
            known[mutant.key + mutant.after] = row
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    show([known[key] for m in mutants if (key := m.key + m.after) in known], mutants)


def show(rows: Sequence[dict[str, Any]], mutants: Sequence[Mutant]) -> None:
    counts = Counter(row["outcome"] for row in rows)
    noticed = sum(counts[outcome] for outcome in NOTICED)
    print(f"{noticed} of {len(rows)} mutants noticed ({len(mutants)} drawn)", dict(counts))
    for row in rows:
        if row["outcome"] in ("survived", "unreached"):
            print(f"{row['module']}:{row['line']}\n  - {row['before']}\n  + {row['after']}")


if __name__ == "__main__":
    main()
