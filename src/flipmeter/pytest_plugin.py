"""pytest -> a gate among the tests: an item of its own, or fixtures for tests of yours.

Every pytest of the environment imports this module, so it imports nothing heavy by itself.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flipmeter.errors import Problem
from flipmeter.files import inside
from flipmeter.types import canonical_json

if TYPE_CHECKING:
    from flipmeter.api import Run
    from flipmeter.choose.gate import Checked, Gate

PerformStudy = Callable[..., "Run"]
HoldToGate = Callable[..., "Checked"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the gate."""
    group = parser.getgroup("flipmeter", "position bias of LLM raters")
    group.addoption(
        "--flip-gate",
        metavar="FILE",
        help="Test this gate on the study or run that it names; also the default of flip_gate.",
    )
    group.addoption(
        "--flip-study",
        metavar="STUDY",
        help="The study for --flip-gate, instead of the gate's own.",
    )
    group.addoption(
        "--flip-inconclusive",
        choices=("fail", "skip"),
        default="fail",
        help="What to do if a gate is inconclusive; default: fail.",
    )
    group.addoption(
        "--flip-runs",
        metavar="FOLDER",
        help="The folder for runs and replies; default: pytest's cache.",
    )
    group.addoption(
        "--flip-trust",
        action="store_true",
        help="Run the Python code that studies name.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add an item for --flip-gate, unless tests use the gate by its fixture and it names no run."""
    file = config.getoption("--flip-gate")
    if not file:
        return
    is_used = any("flip_gate" in getattr(item, "fixturenames", ()) for item in items)
    found = _read_gate_or_problem(Path(file))
    is_named = isinstance(found, Problem) or found.study or found.run
    if is_named or config.getoption("--flip-study") or not is_used:
        items.append(GateItem.from_parent(session, name=f"flip-gate[{file}]", file=Path(file)))


def _read_gate_or_problem(file: Path) -> Gate | Problem:
    from flipmeter.choose.gate import read_gate

    try:
        return read_gate(file)
    except Problem as problem:
        return problem


class GateItem(pytest.Item):
    """The gate of --flip-gate as a test."""

    def __init__(self, *, file: Path, **options: Any) -> None:
        super().__init__(**options)
        self.file = file

    def runtest(self) -> None:
        """Run the study, or open the run, and test it."""
        __tracebackhide__ = True
        gate = _read_gate_or_problem(self.file)
        with _fail_on_problem():
            if isinstance(gate, Problem):
                raise gate
            done = self._run(gate).check(gate=self.file)
        _conclude_check(done, self.config.getoption("--flip-inconclusive"))

    def _run(self, gate: Gate) -> Run:
        own, study = self.file.parent, self.config.getoption("--flip-study")
        if not study and gate.run:
            return _open_run(own / gate.run)
        if not study and not gate.study:
            raise Problem(
                f"{self.file} names nothing to test; add `study: study.yaml` or `run: runs/NAME`, "
                "or pass --flip-study"
            )
        beside = own / gate.study
        chosen = study or (beside if beside.exists() else gate.study)
        return _run_test_study(
            chosen,
            _runs_folder(self.config, lambda: Path(tempfile.mkdtemp(prefix="flipmeter-"))),
            self.config,
        )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.file, None, self.name


@pytest.fixture(scope="session")
def flipmeter_run(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> PerformStudy:
    """A function that runs a study and returns its `Run`; stored replies are not requested again.

    It takes a study file, the name of a bundled study or the content of one, and keys to change:
    `flipmeter_run("study.yaml", test_size=40)`. `trust` runs Python code that the study names.
    """
    folder = _runs_folder(pytestconfig, lambda: tmp_path_factory.mktemp("flipmeter"))

    def run(
        study: str | Path | Mapping[str, Any],
        *,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
        **changes: Any,
    ) -> Run:
        with _fail_on_problem():
            return _run_test_study(study, folder, pytestconfig, changes, trust, trust_hosts)

    return run


def _run_test_study(
    study: str | Path | Mapping[str, Any],
    folder: Path,
    config: pytest.Config,
    changes: Mapping[str, Any] | None = None,
    trust: bool = False,
    trust_hosts: Sequence[str] = (),
) -> Run:
    """Run a study in a folder of its own content."""
    from flipmeter.api import read_study

    chosen = read_study(study, changes)
    digest = hashlib.sha256(canonical_json(chosen.model_dump(mode="json")).encode())
    return chosen.run(
        inside(folder / "runs" / f"{chosen.name}-{digest.hexdigest()[:12]}", folder),
        store=inside(folder / "replies.sqlite", folder),
        is_quiet=True,
        trust=trust or config.getoption("--flip-trust"),
        trust_hosts=trust_hosts,
    )


def _runs_folder(config: pytest.Config, temporary: Callable[[], Path]) -> Path:
    """The folder that keeps runs between sessions, if pytest keeps a cache."""
    if config.getoption("--flip-runs"):
        return Path(config.getoption("--flip-runs"))
    if hasattr(config, "cache") and config.cache is not None:
        return inside(Path(config.cache.mkdir("flipmeter")), config.rootpath)
    return temporary()


@pytest.fixture
def flip_gate(pytestconfig: pytest.Config) -> HoldToGate:
    """A function that tests a run against a gate, and fails the test with the table.

    It takes a run or its folder; `gate` is a file or its content, by default that of --flip-gate,
    otherwise the margin of the study for every contrast. `against` is an earlier run.
    """

    def hold(
        run: Run | str | Path,
        gate: str | Path | Mapping[str, Any] | None = None,
        *,
        against: Run | str | Path | None = None,
    ) -> Checked:
        __tracebackhide__ = True
        limits = pytestconfig.getoption("--flip-gate") if gate is None else gate
        with _fail_on_problem():
            done = _open_run(run).check(
                gate=limits, against=None if against is None else _open_run(against)
            )
        _conclude_check(done, pytestconfig.getoption("--flip-inconclusive"))
        return done

    return hold


def _open_run(run: Run | str | Path) -> Run:
    from flipmeter.api import Run

    return run if isinstance(run, Run) else Run(run)


def _conclude_check(done: Checked, when_inconclusive: str) -> None:
    __tracebackhide__ = True
    if done.word in ("flips", "unreadable"):
        pytest.fail(str(done), pytrace=False)
    if done.word == "inconclusive":
        end = pytest.skip if when_inconclusive == "skip" else pytest.fail
        end(str(done), **({} if end is pytest.skip else {"pytrace": False}))


@contextmanager
def _fail_on_problem() -> Iterator[None]:
    """Turn a Problem into a failed test that shows its message alone."""
    __tracebackhide__ = True
    said = ""
    try:
        yield
    except Problem as problem:
        said = str(problem)
    # Not inside the handler: pytest would show the whole chain.
    if said:
        pytest.fail(f"flipmeter: {said}", pytrace=False)
