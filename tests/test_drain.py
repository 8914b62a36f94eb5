"""A signal stops the sending: what is under way is heard and stored, the rest asked later."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import flipmeter as fm
from flipmeter import drain
from flipmeter.ask.store import Store
from flipmeter.run.folder import Run
from forked import Forked
from misbehaving import Behaviour, Server, never_ends, rates, serving
from misbehaving import tidy as tidy
from test_faults import asked, performed, receipts, study_at, table

pytestmark = [pytest.mark.usefixtures("tidy"), pytest.mark.long]

COMMAND = "from flipmeter.cli import main; main()"
UNSHIELDED = """
import signal
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
RUN = ("run", "study.yaml", "--store", "replies.sqlite", "--out", "run")
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def late(body: Any) -> Behaviour:
    """Answer after a while, so that some requests are under way at any time."""

    async def behave(request: Any) -> Any:
        await asyncio.sleep(0.2)
        return await rates(body)(request)

    return behave


def start(
    folder: Path, *command: str, script: str = COMMAND, **streams: Any
) -> subprocess.Popen[str]:
    """Start a script that ignores no signal, whatever started the tests (nohup, a shell's &)."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE} | streams
    return Forked(UNSHIELDED + script, *command, cwd=folder, **streams)


def wait_for(server: Server, n_asked: int) -> None:
    while len(server.bodies) < n_asked:
        time.sleep(0.005)


def wait_for_line(run: subprocess.Popen[str], words: str) -> None:
    assert run.stderr is not None
    while words not in (line := run.stderr.readline()):
        assert line, f"it ended before it said {words!r}"


def study_in(folder: Path, url: str) -> Any:
    study = study_at(url, {"seeds": [0], "test_size": 30})
    patient = study.model_dump(mode="json")
    patient["models"][0]["timeout"] = 60  # a slow machine must not ask twice
    (folder / "study.yaml").write_text(yaml.safe_dump(patient))
    return study


@pytest.mark.parametrize("stop", SIGNALS)
def test_a_signal_loses_nothing_and_the_rest_is_asked_once(
    tmp_path: Path, stop: signal.Signals
) -> None:
    with serving(late) as server:
        study = study_in(tmp_path, server.url)
        run = start(tmp_path, *RUN)
        wait_for(server, 40)
        run.send_signal(stop)
        said = run.communicate()[1]
        assert run.returncode == 4, said
        assert f"{stop.name}: no more requests are sent" in said
        assert "run the same command again" in said
        assert sorted(receipts(tmp_path)) == sorted(asked(server))
        assert 40 <= len(server.bodies) < 120
        assert not (tmp_path / "run" / "run.json").exists()
        server.rule = rates
        again = start(tmp_path, *RUN)
        assert (again.communicate()[1], again.returncode) == ("", 0)
        assert set(Counter(asked(server)).values()) == {1}
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "run")) == table(clean)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    def hangs(body: Any) -> Behaviour:
        return rates(body) if len(server.bodies) < 30 else never_ends

    with serving(hangs) as server:
        study = study_in(tmp_path, server.url)
        slow = study.model_dump(mode="json")
        slow["models"][0]["timeout"] = 600
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(slow))
        run = start(tmp_path, *RUN)
        wait_for(server, 40)
        run.send_signal(signal.SIGTERM)
        wait_for_line(run, "no more requests are sent")
        time.sleep(drain.SAME + 0.2)
        assert run.poll() is None
        run.send_signal(signal.SIGTERM)
        assert "stopped immediately" in run.communicate()[1]
        assert run.returncode == 128 + signal.SIGTERM
        with Store(tmp_path / "replies.sqlite") as store:
            assert len(store) == 29


def test_signals_that_come_together_are_one(tmp_path: Path) -> None:
    """A terminal that is closed sends SIGHUP twice, from the shell and from the system."""
    with serving(late) as server:
        study_in(tmp_path, server.url)
        run = start(tmp_path, *RUN)
        wait_for(server, 40)
        run.send_signal(signal.SIGSTOP)  # so that both are there when it looks
        run.send_signal(signal.SIGHUP)
        run.send_signal(signal.SIGTERM)
        run.send_signal(signal.SIGCONT)
        said = run.communicate()[1]
        assert (run.returncode, "stopped immediately" in said) == (4, False)
        assert sorted(receipts(tmp_path)) == sorted(asked(server))


def test_what_is_under_way_is_not_waited_for_without_end(tmp_path: Path) -> None:
    hurry = f"import flipmeter.ask.pool as p; p.GRACE = 0.3; {COMMAND}"
    with serving(lambda body: rates(body) if len(server.bodies) < 30 else never_ends) as server:
        slow = study_in(tmp_path, server.url).model_dump(mode="json")
        slow["models"][0]["timeout"] = 600
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(slow))
        run = start(tmp_path, *RUN, script=hurry)
        wait_for(server, 40)
        run.send_signal(signal.SIGINT)
        run.communicate()
        assert run.returncode == 4


PROGRAM = """
import asyncio, sys
import flipmeter as fm
from flipmeter import drain
study = fm.read_study("study.yaml")
async def main():
    await study.arun("run", store="replies.sqlite")
if sys.argv[1] == "arun":
    asyncio.run(main())
else:
    study.run("run", store="replies.sqlite")
"""


@pytest.mark.parametrize("how", ["run", "arun"])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_program_drains_too(tmp_path: Path, how: str, stop: signal.Signals) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        program = start(tmp_path, how, script=PROGRAM)
        wait_for(server, 40)
        program.send_signal(stop)
        said = program.communicate()[1]
        assert program.returncode != 0
        assert "KeyboardInterrupt" in said or "Stopped" in said
        assert sorted(receipts(tmp_path)) == sorted(asked(server))
        assert len(server.bodies) < 120


def test_a_cancelled_run_stores_what_is_under_way_and_stops(tmp_path: Path) -> None:
    async def go() -> None:
        study = fm.read_study(tmp_path / "study.yaml")
        running = asyncio.create_task(
            study.arun(tmp_path / "run", store=tmp_path / "replies.sqlite")
        )
        await asyncio.to_thread(wait_for, server, 40)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    with serving(late) as server:
        study_in(tmp_path, server.url)
        asyncio.run(go())
        assert sorted(receipts(tmp_path)) == sorted(asked(server))
        assert len(server.bodies) < 120


def test_handlers_of_the_program_stay_its_own(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    study = fm.Study(
        models=["sim/honest"], datasets=["reviews"], test_size=5, probes=["label_order"]
    )
    study.run(tmp_path / "run", store=tmp_path / "replies.sqlite")
    assert [signal.getsignal(number) for number in SIGNALS] == before


EMBEDDED = """
name: embedded
models: [local/smollm2-135m]
datasets: [reviews]
test_size: 40
probes: [label_order]
base: {shots: 1}
"""


@pytest.mark.real
def test_the_embedded_engine_drains(tmp_path: Path, self_tested: Callable[[Path], None]) -> None:
    (tmp_path / "study.yaml").write_text(EMBEDDED)
    path = tmp_path / "replies.sqlite"
    self_tested(path)
    run = start(tmp_path, *RUN)
    n_stored = 0
    while n_stored < 3 and run.poll() is None:
        time.sleep(0.05)
        if path.exists():
            with Store(path) as store:
                n_stored = len(store)
    os.kill(run.pid, signal.SIGTERM)
    said = run.communicate()[1]
    assert (run.returncode, "new replies are stored" in said) == (4, True)
    with Store(path) as store:
        assert next(store.read("SELECT count(*) FROM leases")) == (0,)


HOOK = """
import os, signal, sys
awaited = sys.argv.pop(1)
class Hook:
    def find_spec(self, name, *_):
        if name == awaited:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Hook())
from flipmeter.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["flipmeter.cli", "typer", "flipmeter.cli.report", "polars"])
def test_an_interrupt_while_modules_are_loaded_leaves_no_traceback(
    module: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOOK, module, "report", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
