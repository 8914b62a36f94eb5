"""The pytest plugin, run by a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

# A pytest inside this one forgets what it imported, and numpy cannot be imported twice.
import flipmeter.choose.select  # noqa: F401
from flipmeter.api import read_study

pytest_plugins = ["pytester"]

STUDY = """
name: gated
models: ["sim/first-slot?strength={strength}"]
datasets: [reviews]
test_size: 60
probes: [label_order]
base: {{shots: 1}}
"""
TEST = """
def test_the_rater_is_stable(flipmeter_run, flip_gate):
    done = flip_gate(flipmeter_run("study.yaml"){arguments})
    assert done.word == "stable"
"""
IS_INSTALLED = any(point.name == "flipmeter" for point in entry_points(group="pytest11"))
PLUGIN = () if IS_INSTALLED else ("-p", "flipmeter.pytest_plugin")


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    write(pytester)
    return pytester


def write(pytester: pytest.Pytester, strength: float = 0.0, arguments: str = "") -> None:
    pytester.makefile(".yaml", study=STUDY.format(strength=strength))
    pytester.makepyfile(TEST.format(arguments=arguments))


def outcome(project: pytest.Pytester, *options: str) -> tuple[dict[str, int], str]:
    result = project.runpytest_inprocess(*PLUGIN, "-q", "-rs", *options)
    return result.parseoutcomes(), result.stdout.str()


def test_a_stable_rater_passes(project: pytest.Pytester) -> None:
    assert outcome(project)[0] == {"passed": 1}


def test_a_rater_that_flips_fails_with_the_table(project: pytest.Pytester) -> None:
    write(project, strength=6)
    found, out = outcome(project)
    assert found == {"failed": 1}
    assert "gated: flips" in out
    assert "flips P1 < 10.0 %" in out
    assert "Traceback" not in out


def test_too_little_evidence_fails_or_skips_as_told(project: pytest.Pytester) -> None:
    project.makefile(".yaml", gate="flips: {P1: 0.01}")
    assert outcome(project, "--flip-gate", "gate.yaml")[0] == {"failed": 1}
    found, out = outcome(project, "--flip-gate", "gate.yaml", "--flip-inconclusive", "skip")
    assert found == {"skipped": 1}
    assert "settle" in out


def test_the_gate_of_a_test_wins_over_that_of_the_command_line(project: pytest.Pytester) -> None:
    project.makefile(".yaml", gate="flips: {P1: 0.01}")
    write(project, arguments=', {"flips": {"P1": 0.2}}')
    assert outcome(project, "--flip-gate", "gate.yaml")[0] == {"passed": 1}


@pytest.mark.parametrize(
    ("gate", "options", "wanted"),
    [
        ("study: study.yaml\nflips: {P1: 0.10}", (), {"passed": 1}),
        ("study: study.yaml\naccuracy: 0.99", (), {"failed": 1}),
        ("study: demo\nflips: {P1: 0.10}", ("--flip-study", "study.yaml"), {"passed": 1}),
        ("flips: {P1: 0.10}", (), {"failed": 1}),
        ("flips: nonsense", (), {"failed": 1}),
    ],
)
def test_a_gate_is_tested_without_a_fixture(
    pytester: pytest.Pytester, gate: str, options: tuple[str, ...], wanted: dict[str, int]
) -> None:
    pytester.makefile(".yaml", study=STUDY.format(strength=0.0), gate=gate)
    found, out = outcome(pytester, "--flip-gate", "gate.yaml", *options)
    assert found == wanted
    assert "Traceback" not in out
    if gate == "flips: {P1: 0.10}":
        assert "gate.yaml names nothing to test; add `study: study.yaml`" in " ".join(out.split())


def test_a_gate_beside_its_run_is_tested_from_elsewhere(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("ci")
    (folder / "study.yaml").write_text(STUDY.format(strength=6.0))
    read_study(folder / "study.yaml").run(folder / "run", store=folder / "replies.sqlite")
    (folder / "gate.yaml").write_text("run: run\nflips: {P1: 0.10}\n")
    found, out = outcome(pytester, "--flip-gate", "ci/gate.yaml")
    assert found == {"failed": 1}
    assert "flips P1 < 10.0 %" in out


def test_a_second_session_asks_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_it(flipmeter_run, flip_gate):
            run = flipmeter_run("study.yaml", test_size=30)
            print("asked", run.environment["asked"]["asked"], run.decisions["item"].n_unique())
            flip_gate(run.folder, {"flips": 0.3, "drift": {"flips": 0.2}}, against=run)
        """
    )
    assert "asked 100 30" in outcome(project, "-s")[1]  # 2 views of 30, 20 of each repeated
    assert "asked 0 30" in outcome(project, "-s")[1]
    assert "asked 100 30" in outcome(project, "-s", "--flip-runs", "elsewhere")[1]
    assert (project.path / "elsewhere" / "replies.sqlite").is_file()
    assert outcome(project, "-p", "no:cacheprovider")[0] == {"passed": 1}


def test_a_mistake_is_a_failure_in_one_line(project: pytest.Pytester) -> None:
    write(project, arguments=', {"flip": 0.1}')
    found, out = outcome(project)
    assert found == {"failed": 1}
    assert "flipmeter: the gate: no key named 'flip'; did you mean 'flips'" in out


def test_the_plugin_is_light() -> None:
    code = (
        "import sys, flipmeter.pytest_plugin; "
        "print({'polars', 'numpy', 'scipy', 'pydantic', 'yaml', 'rich'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_public_names_are_there_when_they_are_used() -> None:
    code = "import flipmeter; print(all(getattr(flipmeter, name) for name in flipmeter.__all__))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_the_cache_of_pytest_may_not_lead_elsewhere(project: pytest.Pytester) -> None:
    elsewhere = project.path / "elsewhere"
    elsewhere.mkdir()
    (project.path / ".pytest_cache").mkdir()
    (project.path / ".pytest_cache" / "d").symlink_to(elsewhere)
    found, out = outcome(project)
    assert found == {"errors": 1}
    assert "is a symbolic link" in out
    assert [path for path in elsewhere.rglob("*") if path.is_file()] == []
