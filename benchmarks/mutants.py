"""Do the tests notice a changed line? A seeded sample of mutants, each against its stage's tests.

    python benchmarks/mutants.py [--n 300] [--seed 0] [--results mutants.jsonl] [--minutes 60]
                                 [--budget 30] [--again] [--only measure/aspects]

A mutant is the package with one operator, number or name changed. All sampled changes are put
into one copy of the package, each behind a switch that is off. pytest collects the tests of the
four stages once; then they run once, which records the tests that reach each switch; then, for
every mutant, a forked process turns its switch on and runs the tests that reach it: those of its
stage first, the quickest file first, until one fails or `--budget` seconds of tests have passed.
A change that takes effect while modules are imported gets a process that imports them itself.
Results are appended to a file: started again, the command continues where it stopped. Survivors
are printed with their lines.
"""

from __future__ import annotations

import argparse
import ast
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STAGES = ("measure", "decide", "parse", "prompt")
PATIENCE = 120.0
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
    "measure/effects/residuals": ("measure_residuals", "paper_claims"),
    "measure/effects/compare": ("measure_aspects", "core_differences"),
    "measure/effects/interactions": ("measure_interactions",),
    "measure/effects/gee": ("measure_interactions",),
    "measure/effects/crossed": ("measure_interactions",),
    "measure/effects/held_out": ("select",),
    "measure/effects/field": ("select",),
    "measure/effects/pareto": ("select",),
    "measure/effects": ("measure_configs", "measure_residuals", "measure_interactions"),
    "measure/estimates/decimal_scores": ("decimals", "measure_scores"),
    "measure/estimates/readings": ("measure_words", "measure_table"),
    "measure/estimates/moments": ("decimals", "measure_scores", "measure_jackknife"),
    "measure/estimates": ("measure_flips", "measure_scores", "measure_table", "measure_grouped"),
    "measure/inference/asserted": ("paper_claims",),
    "measure/inference/slices": ("explorer",),
    "measure/inference/significance": ("report_effects", "core_differences"),
    "measure/inference/judge": ("pair_tables", "verdicts", "core_verdict"),
    "measure/inference/sequential/bets": ("view_runs", "core_bounds", "until"),
    "measure/inference/claims": ("measure_claims", "check"),
    "measure/inference/limits": ("check", "measure_claims"),
    "measure/inference/sequential": ("core_boundaries", "until"),
    "measure/inference/chosen": ("core_bounds", "select", "choose_flip_proof"),
    "measure/inference": (*CORE, "measure_words", "core_by_definition", "verdicts", "weights"),
    "measure/panel/units": ("decimals", "measure_flips"),
    "measure/panel/reading": ("parts", "measure_table", "measure_grouped"),
    "measure/panel": ("measure_flips", "measure_table", "measure_grouped", "measure_aspects"),
    "measure/statistics/lengths": ("measure_options",),
    "measure/statistics": ("measure_inference", "measure_jackknife", "measure_flips", "systems"),
    "decide/aggregators": ("aggregate", "pipelines"),
    "decide/debiasers": ("debias", "pipelines"),
    "decide/juries": ("panels",),
    "decide": ("pipelines", "debias", "pair_order"),
    "parse/decimals": ("decimals",),
    "parse": ("parse", "extract", "sampled_scores", "long_scales"),
    "prompt/comparing": ("prompt_comparing", "prompt"),
    "prompt/template": ("own_prompts", "prompt"),
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
        notes += [node] if isinstance(node, ast.pattern) else []
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


SWITCH = """
import os

ACTIVE = os.environ.get("FLIPMETER_MUTANT")
REACHED = set()


def on(key):
    REACHED.add(key)
    return key == ACTIVE
"""
"""A module of the copy: processes that a test starts have the same mutant."""


class Switched(ast.NodeTransformer):
    """Put the change of each sampled place behind its switch."""

    def __init__(self, keys: dict[int, str]) -> None:
        self.keys = keys

    def visit(self, node: ast.AST) -> Any:
        key = self.keys.get(id(node))
        node = self.generic_visit(node)
        if key is None:
            return node
        other = copy.deepcopy(node)
        change(other)
        test = ast.parse(f"_on('{key}')", mode="eval").body
        return ast.IfExp(test, other, node)  # type: ignore[arg-type]


def switched(source: str, keys: dict[int, str]) -> str:
    """A module with switches at places."""
    tree = ast.parse(source)
    nodes = sites(tree)
    tree = Switched({id(nodes[place]): key for place, key in keys.items()}).visit(tree)
    first = [isinstance(one, ast.ImportFrom) and one.module == "__future__" for one in tree.body]
    at = first.index(True) + 1 if any(first) else 0
    tree.body.insert(at, ast.parse("from flipmeter._mutant import on as _on").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def switch_all(mutants: Sequence[Mutant], scratch: Path) -> None:
    """Put all mutants into the copy of the package, each off."""
    package = scratch / "src" / "flipmeter"
    (package / "_mutant.py").write_text(SWITCH, encoding="utf-8")
    for module in {mutant.module for mutant in mutants}:
        keys = {one.place: one.key for one in mutants if one.module == module}
        path = package / module
        text = switched(path.read_text(encoding="utf-8"), keys)
        path.write_text(text, encoding="utf-8")


def forked(work: Callable[[], int], patience: float, *, aloud: bool = False) -> int | None:
    """The exit code of a function in a process of its own, or none if it takes too long."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setpgid(0, 0)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in () if aloud else (1, 2):
                os.dup2(nowhere, stream)
            code = work()
        finally:
            os._exit(code)
    start = time.monotonic()
    while time.monotonic() - start < patience:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


OUTCOMES = {0: "survived", None: "timeout"}
OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:flipmeter", "-m", "not real"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # libraries are loaded
)


def pytest_on(scratch: Path, tests: Sequence[str], *plugins: object, stop: bool = False) -> int:
    """Run pytest on the copy, in this process."""
    import pytest

    sys.dont_write_bytecode = True
    os.chdir(scratch)
    sys.path[:0] = [str(scratch / "src"), str(scratch / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    words = [*OPTIONS, f"--basetemp={scratch / 'temp'}", *(["-x"] if stop else [])]
    return int(pytest.main([*words, *tests], plugins=[*plugins]))


class Loop:
    """A pytest plug-in: record which test reaches what, then test each mutant in a fork."""

    def __init__(self, waiting: Waiting, reached: Path) -> None:
        self.waiting, self.into = waiting, reached
        self.rows: dict[str, dict[str, Any]] = {}
        self.failed = False
        self.is_recording = True
        self.spent = 0.0

    def pytest_runtestloop(self, session: Any) -> bool:
        from flipmeter import _mutant

        if session.testsfailed:
            raise session.Interrupted("a file of tests cannot be collected")

        threads = [*Path("/proc/self/task").glob("*")]
        if len(threads) > 1:
            print(f"{len(threads)} threads before the first test: forks may hang", file=sys.stderr)
        self.switch = _mutant
        early = set(_mutant.REACHED)
        items = {item.nodeid: item for item in session.items}
        for file in dict.fromkeys(test.partition("::")[0] for test in items):
            own = [item for test, item in items.items() if test.partition("::")[0] == file]
            into = self.into / f"{Path(file).stem}-{self.waiting.digest(file)}.json"
            if not into.is_file() and not self.waiting.is_over():
                forked(lambda own=own, into=into: self._record(own, into), 1800)  # type: ignore[misc]
            if into.is_file():
                self.rows |= json.loads(into.read_text(encoding="utf-8"))
            elif self.waiting.is_over():
                return True
        self.is_recording = False
        for mutant in self.waiting.mutants():
            if mutant.key in early or not self.waiting.is_warm(mutant):
                continue
            tests = [items[test] for test in chosen(mutant, self.rows, self.waiting.budget)]
            with self.waiting.outcome(mutant, len(tests)) as row:
                if tests:
                    code = forked(lambda m=mutant, t=tests: self._test(m, t), PATIENCE)  # type: ignore[misc]
                    row["outcome"] = OUTCOMES.get(code, "killed")
        self.waiting.early |= early
        return True

    def _record(self, items: Sequence[Any], into: Path) -> int:
        self.rows, self.shared, self.bad = {}, set(), set()  # type: ignore[var-annotated]
        self.spent = time.process_time()
        self.switch.REACHED.clear()
        self._run(items)
        for row in self.rows.values():
            row["places"] = sorted({*row["places"], *self.shared})
        rows = {test: row for test, row in self.rows.items() if test not in self.bad}
        into.write_text(json.dumps(rows), encoding="utf-8")
        return 0

    def _test(self, mutant: Mutant, items: Sequence[Any]) -> int:
        os.environ["FLIPMETER_MUTANT"] = self.switch.ACTIVE = mutant.key
        self._run(items)
        return 0

    def _run(self, items: Sequence[Any]) -> None:
        for item, after in itertools.zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not self.is_recording:
            if report.failed:
                os._exit(1)
            return
        row = self.rows.setdefault(report.nodeid, {"seconds": 0.0, "places": []})
        row["seconds"] += time.process_time() - self.spent  # a busy machine is not a slow test
        self.spent = time.process_time()
        self.bad |= {report.nodeid} if report.failed else set()
        hits = self.switch.REACHED
        if report.when == "setup":  # reached by fixtures, which later tests may share
            self.shared |= hits
        row["places"] += [one for one in hits if one not in row["places"]]
        hits.clear()


@dataclass
class Waiting:
    """The mutants that are not tested yet, and where results go."""

    drawn: Sequence[Mutant]
    known: dict[str, dict[str, Any]]
    results: Path
    budget: float
    end: float
    early: set[str] = field(default_factory=set)

    def is_over(self) -> bool:
        return time.monotonic() > self.end

    def mutants(self) -> Iterator[Mutant]:
        for one in self.drawn:
            if one.key + one.after not in self.known and not self.is_over():
                yield one

    def is_warm(self, mutant: Mutant) -> bool:
        """Whether a change takes effect in calls, and not when its module is imported."""
        source = (ROOT / "src/flipmeter" / mutant.module).read_text(encoding="utf-8")
        tree = ast.parse(source)
        node = sites(tree)[mutant.place]
        bodies = [
            one
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for one in function.body
        ]
        return any(node is one for body in bodies for one in ast.walk(body))

    def digest(self, test: str) -> str:
        """Changes with a test file and with the sample."""
        keys = "".join(one.key for one in self.drawn).encode()
        return hashlib.sha256(keys + (ROOT / test).read_bytes()).hexdigest()[:16]

    @contextmanager
    def outcome(self, mutant: Mutant, n_tests: int) -> Iterator[dict[str, Any]]:
        """Write down how a test of a mutant ends."""
        start = time.monotonic()
        row = asdict(mutant) | {"outcome": "unreached", "n_tests": n_tests}
        yield row
        row["seconds"] = round(time.monotonic() - start, 1)
        self.known[mutant.key + mutant.after] = row
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def test_cold(waiting: Waiting, rows: dict[str, Any], scratch: Path) -> None:
    """Test the mutants that take effect on import, by their stage's tests, in fresh processes."""
    for mutant in waiting.mutants():
        own = tests_of(mutant.module)
        quick = {test: row for test, row in rows.items() if test.partition("::")[0] in own}
        tests = by_file(quick, own, waiting.budget)
        os.environ["FLIPMETER_MUTANT"] = mutant.key
        with waiting.outcome(mutant, len(tests)) as row:
            code = forked(lambda t=tests: pytest_on(scratch, t, stop=True), PATIENCE)  # type: ignore[misc]
            row["outcome"] = OUTCOMES.get(code, "killed")


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
    for name in ("src", "tests", "docs", "studies", "examples", "benchmarks"):
        shutil.copytree(ROOT / name, into / name)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, into)
    return into


def done(results: Path, after: int = 0) -> dict[str, dict[str, Any]]:
    """Results in a file, from a line on, by mutant and its change; the last one counts."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    rows = [json.loads(line) for line in lines[after:]]
    return {row["key"] + row["after"]: row for row in rows}


def chosen(mutant: Mutant, rows: dict[str, Any], budget: float) -> list[str]:
    """The tests that reach a mutant: its stage's first, by file, quick files and tests first."""
    reaching = {test: row for test, row in rows.items() if mutant.key in row["places"]}
    return by_file(reaching, tests_of(mutant.module), budget)


def by_file(rows: dict[str, Any], own: Sequence[str], budget: float) -> list[str]:
    """Tests in the order to run them, as many as fit into a number of seconds."""
    files: dict[str, list[str]] = {}
    for test in sorted(rows, key=lambda test: float(rows[test]["seconds"])):
        files.setdefault(test.partition("::")[0], []).append(test)

    def rank(file: str) -> tuple[bool, float]:
        return file not in own, sum(rows[test]["seconds"] for test in files[file])

    ordered = [test for file in sorted(files, key=rank) for test in files[file]]
    spent = list(itertools.accumulate(float(rows[test]["seconds"]) for test in ordered))
    return [test for test, sum_ in zip(ordered, spent, strict=True) if sum_ <= budget]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so many minutes")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests per mutant")
    parser.add_argument("--only", default="", help="the sampled mutants of some modules")
    parser.add_argument("--again", action="store_true", help="test survivors again")
    options = parser.parse_args()
    results, end = options.results.resolve(), time.monotonic() + 60 * options.minutes
    drawn, known = sample(options.n, options.seed), done(results)
    mutants = [one for one in drawn if one.module.startswith(options.only)]
    n_lines = len(results.read_text(encoding="utf-8").splitlines()) if results.is_file() else 0
    if options.again:
        known = {key: row for key, row in known.items() if row["outcome"] in NOTICED}
    preload()
    reached = results.with_suffix(".reach")
    reached.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = copied(Path(folder))
        switch_all(mutants, scratch)
        waiting = Waiting(mutants, known, results, options.budget, end)
        tests = sorted({test for one in mutants for test in tests_of(one.module)})
        loop = Loop(waiting, reached)
        forked(lambda: pytest_on(scratch, tests, loop), 86400, aloud=True)
        files = [reached / f"{Path(one).stem}-{waiting.digest(one)}.json" for one in tests]
        rows: dict[str, Any] = {}
        for file in files:
            rows |= json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        waiting.known = known = known | done(results, n_lines)
        if all(file.is_file() for file in files):
            test_cold(waiting, rows, scratch)
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
