"""pytest -> a gate among the tests: fixtures that run a study and hold it to limits.

Every pytest of the environment imports this module, so it imports nothing heavy by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flipmeter.types import Problem, canonical_json

if TYPE_CHECKING:
    from flipmeter.api import Run
    from flipmeter.ship.gate import Checked

PerformStudy = Callable[..., "Run"]
HoldToGate = Callable[..., "Checked"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the gate."""
    group = parser.getgroup("flipmeter", "position bias of LLM raters")
    group.addoption(
        "--flip-gate", metavar="FILE", help="The gate file of flip_gate, where a test names none."
    )
    group.addoption(
        "--flip-inconclusive",
        choices=("fail", "skip"),
        default="fail",
        help="What flip_gate does when the evidence does not suffice (fail).",
    )
    group.addoption(
        "--flip-runs",
        metavar="FOLDER",
        help="Where flipmeter_run keeps runs and replies (pytest's cache).",
    )
    group.addoption(
        "--flip-trust",
        action="store_true",
        help="Let flipmeter_run run the Python code that studies name.",
    )


@pytest.fixture(scope="session")
def flipmeter_run(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> PerformStudy:
    """Return a function that performs a study and gives its run; no reply is asked for twice.

    It takes a study file, the name of a bundled study or the content of one, and keys to change:
    `flipmeter_run("study.yaml", test_size=40)`. `trust` runs Python code that the study names.
    """
    folder = _folder(pytestconfig, tmp_path_factory)

    is_trusted = pytestconfig.getoption("--flip-trust")

    def run(
        study: str | Path | Mapping[str, Any],
        *,
        trust: bool = False,
        trust_hosts: Sequence[str] = (),
        **changes: Any,
    ) -> Run:
        from flipmeter.api import read_study

        with _failing():
            chosen = read_study(study, changes)
            digest = hashlib.sha256(canonical_json(chosen.model_dump(mode="json")).encode())
            place = folder / "runs" / f"{chosen.name}-{digest.hexdigest()[:12]}"
            return chosen.run(
                place,
                store=folder / "replies.sqlite",
                is_quiet=True,
                trust=trust or is_trusted,
                trust_hosts=trust_hosts,
            )

    return run


def _folder(config: pytest.Config, temporary: pytest.TempPathFactory) -> Path:
    """Return where runs stay from one session to the next, if anything does."""
    if config.getoption("--flip-runs"):
        return Path(config.getoption("--flip-runs"))
    if hasattr(config, "cache") and config.cache is not None:
        return Path(config.cache.mkdir("flipmeter"))
    return temporary.mktemp("flipmeter")


@pytest.fixture
def flip_gate(pytestconfig: pytest.Config) -> HoldToGate:
    """Return a function that holds a run to a gate, and fails the test with the table.

    It takes a run or its folder; `gate` is a file or its content, by default that of --flip-gate,
    else every contrast is held to the margin of the study. `against` is an earlier run.
    """

    def hold(
        run: Run | str | Path,
        gate: str | Path | Mapping[str, Any] | None = None,
        *,
        against: Run | str | Path | None = None,
    ) -> Checked:
        __tracebackhide__ = True
        limits = pytestconfig.getoption("--flip-gate") if gate is None else gate
        with _failing():
            done = _opened(run).check(limits, None if against is None else _opened(against))
        _conclude(done, pytestconfig.getoption("--flip-inconclusive"))
        return done

    return hold


def _opened(run: Run | str | Path) -> Run:
    from flipmeter.api import Run

    return run if isinstance(run, Run) else Run(run)


def _conclude(done: Checked, when_inconclusive: str) -> None:
    __tracebackhide__ = True
    if done.word in ("flips", "unreadable"):
        pytest.fail(str(done), pytrace=False)
    if done.word == "inconclusive":
        end = pytest.skip if when_inconclusive == "skip" else pytest.fail
        end(str(done), **({} if end is pytest.skip else {"pytrace": False}))


@contextmanager
def _failing() -> Iterator[None]:
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
