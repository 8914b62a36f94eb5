"""Things that several tests need: a small task, a few items, the folder of the real data."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flipmeter.ask import capabilities as self_test
from flipmeter.ask.capabilities import learn_reproducible
from flipmeter.ask.store import Store
from flipmeter.cli import main
from flipmeter.cli.list import REGISTRIES
from flipmeter.pipelines.pipeline import open_pipeline
from flipmeter.prompt.levels import factors
from flipmeter.types import Item, Model, Scale, Task

# A machine that is shared is slow at times: no test may fail for that.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Workers of xdist have a width of 80 columns, which a pipe of a user has not.
os.environ.pop("COLUMNS", None)

# A disk takes milliseconds to confirm a write, and no test cuts the power.
os.fsync = lambda fd: None

# Tests run side by side: threads of two engines would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]

Cli = Callable[..., tuple[int, str, str]]

FIVE = ("very negative", "negative", "neutral", "positive", "very positive")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no worker is left alone with one."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def no_consent(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust nothing, whatever the user who runs the tests trusts."""
    monkeypatch.delenv("FLIPMETER_TRUST", raising=False)
    monkeypatch.setenv("FLIPMETER_CONFIG", str(tmp_path_factory.getbasetemp() / "no-config"))


@pytest.fixture(autouse=True, scope="session")
def untested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Know of no engine's self-test, and leave none for the user who runs the tests."""
    nowhere = tmp_path_factory.getbasetemp() / "no-self-tests"
    nowhere.write_bytes(b"")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(self_test, "cache_folder", lambda: nowhere)
        yield


@pytest.fixture
def trusted(no_consent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consent to run whatever code a test names."""
    monkeypatch.setenv("FLIPMETER_TRUST", "1")


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registries that forget at the end of a test what it registered."""
    for registry in (*REGISTRIES.values(), *factors.values()):
        monkeypatch.setattr(registry, "_parts", dict(registry.items()))
        monkeypatch.setattr(registry, "_packages", dict(registry._packages))
    yield
    open_pipeline.cache_clear()


@pytest.fixture(scope="session")
def self_tested(untested: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Write stores that know the outcome of the embedded engine's self-test, which is run once."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    tested = shared / "self-test" / "replies.sqlite"
    with (shared / "self-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not tested.parent.exists():
            made = tmp_path_factory.mktemp("made")
            with Store(made / tested.name) as store:
                asyncio.run(learn_reproducible(Model("local/smollm2-135m"), store))
            made.rename(tested.parent)

    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tested, path)

    return write


@pytest.fixture
def task() -> Task:
    return Task(Scale(FIVE))


@pytest.fixture
def demos() -> tuple[Item, ...]:
    """One demonstration per class, not in the order of the classes."""
    texts = {4: "Nice enough.", 1: "Dreadful.", 3: "It exists.", 5: "A wonder.", 2: "Rather dull."}
    return tuple(
        Item(f"d{rank}", {"text": text}, rank, role="demo") for rank, text in texts.items()
    )


@pytest.fixture
def query() -> Item:
    return Item("q1", {"text": "The soup was worth the wait."}, 4)


@pytest.fixture
def shared_data() -> Path:
    """The folder with the paper's datasets; they may not be redistributed, so it may be absent."""
    folder = Path(os.environ.get("FLIPMETER_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "sst5" / "test.txt").is_file():
        pytest.skip("the paper's datasets are not here; name their folder in FLIPMETER_DATA")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes a text into a file of the test's own folder."""

    def put(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return put


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["flipmeter", *arguments])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call
