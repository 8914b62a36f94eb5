"""A stream that cannot be written to goes silent: what is asked, stored and said stays as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

import forked
from flipmeter.run.folder import Run
from forked import CONSOLE, Forked
from misbehaving import Server, rates, serving
from misbehaving import tidy as tidy
from test_drain import PROGRAM, late, start, wait_for
from test_faults import asked, performed, receipts, study_at, table

pytestmark = [pytest.mark.usefixtures("tidy"), pytest.mark.long]

FLIPMETER = str(Path(sys.executable).with_name("flipmeter"))
RUN = (FLIPMETER, "run", "study.yaml", "--store", "replies.sqlite", "--out", "run")
FULL = "/dev/full"

IN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Make the terminal that is given the one that ends what runs in it."""


def open_study(folder: Path, url: str, n_items: int = 30) -> Any:
    """A study that has 64 requests open as soon as the endpoint has shown that it takes them."""
    study = study_at(url, {"seeds": [0], "test_size": n_items})
    patient = study.model_dump(mode="json")
    patient["models"][0] |= {"timeout": 60, "concurrency": 64}
    (folder / "study.yaml").write_text(yaml.safe_dump(patient))
    return study


def in_terminal(folder: Path, *command: str, hang_up: str = "SIG_DFL") -> tuple[Any, int]:
    """Start a command as the leader of a terminal; the terminal is open as long as the number."""
    ours, theirs = os.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", IN_TERMINAL, hang_up, *command],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    return run, ours


def in_shell(folder: Path, redirection: str, *command: str) -> subprocess.CompletedProcess[str]:
    line = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def assert_all_is_stored(folder: Path, server: Server) -> None:
    assert sorted(receipts(folder)) == sorted(asked(server))


def test_a_terminal_that_is_closed_ends_the_asking_and_loses_nothing(tmp_path: Path) -> None:
    with serving(late) as server:
        open_study(tmp_path, server.url, 60)
        run, terminal = in_terminal(tmp_path, *RUN)
        wait_for(server, 150)
        os.close(terminal)
        assert run.wait() == 4
        assert len(server.bodies) < 420
        assert_all_is_stored(tmp_path, server)


def test_a_run_told_to_outlive_its_terminal_goes_on_to_its_end(tmp_path: Path) -> None:
    with serving(late) as server:
        study = open_study(tmp_path, server.url)
        run, terminal = in_terminal(tmp_path, *RUN, hang_up="SIG_IGN")
        wait_for(server, 40)
        os.close(terminal)
        assert run.wait() == 0
        server.rule = rates
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "run")) == table(clean)


def test_a_program_outlives_its_terminal_too(tmp_path: Path) -> None:
    with serving(late) as server:
        open_study(tmp_path, server.url)
        program = (sys.executable, "-c", PROGRAM, "run")
        run, terminal = in_terminal(tmp_path, *program, hang_up="SIG_IGN")
        wait_for(server, 40)
        os.close(terminal)
        assert run.wait() == 0
        assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_pipe_whose_reader_dies_first_leaves_the_signal_its_work(
    tmp_path: Path, end: signal.Signals
) -> None:
    with serving(late) as server:
        open_study(tmp_path, server.url, 60)
        tee = subprocess.Popen(["tee", "log"], cwd=tmp_path, stdin=subprocess.PIPE)
        run = start(tmp_path, *RUN[1:], stdout=tee.stdin, stderr=tee.stdin)
        wait_for(server, 150)
        tee.kill()
        tee.communicate()
        run.send_signal(end)
        assert run.wait() == 4
        assert_all_is_stored(tmp_path, server)


def test_a_pipe_that_nobody_reads_does_not_hold_up_a_signal(tmp_path: Path) -> None:
    """A pager that waits, or a `tee` that is stopped: the pipe is full and stays so."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    with serving(late) as server:
        open_study(tmp_path, server.url, 60)
        run = start(tmp_path, *RUN[1:], stderr=writer)
        wait_for(server, 150)
        run.send_signal(signal.SIGINT)
        assert run.wait() == 4
        assert_all_is_stored(tmp_path, server)
    os.close(reader)
    os.close(writer)


REDIRECTIONS = {
    "2>&-": "no stderr",
    ">&-": "no stdout",
    "<&- >&- 2>&-": "no streams",
    f"2>{FULL}": "stderr on a full disk",
    f">{FULL}": "stdout on a full disk",
    f">{FULL} 2>&1": "both on a full disk",
    "2</dev/null": "stderr cannot be written to",
    "1</dev/null": "stdout cannot be written to",
}


@pytest.mark.parametrize("redirection", REDIRECTIONS, ids=REDIRECTIONS.values())
def test_a_run_goes_on_to_its_end_whatever_its_streams_are(
    tmp_path: Path, redirection: str
) -> None:
    with serving() as server:
        study = open_study(tmp_path, server.url, 10)
        done = in_shell(tmp_path, redirection, *RUN, "--json")
        assert (done.returncode, "Traceback" in done.stderr) == (0, False)
        clean = performed(study, tmp_path / "clean")
        assert set(Counter(asked(server)).values()) == {2}
    assert table(Run(tmp_path / "run")) == table(clean)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in written if b"flipmeter: " in path.read_bytes()] == []


def test_a_signal_drains_a_run_whose_log_is_on_a_full_disk(tmp_path: Path) -> None:
    with serving(late) as server, Path(FULL).open("w") as full:
        open_study(tmp_path, server.url, 60)
        run = start(tmp_path, *RUN[1:], stdout=full, stderr=full)
        wait_for(server, 150)
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 4
        assert_all_is_stored(tmp_path, server)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a simulated rater."""
    folder = tmp_path_factory.mktemp("measured")
    study = {"models": ["sim/honest"], "datasets": ["reviews"], "test_size": 20}
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    forked.run(*RUN[1:], cwd=folder)
    return folder


@pytest.mark.parametrize("options", [("list", "models"), ("list", "--json"), ("--help",)])
def test_a_reader_that_has_enough_ends_a_list_quietly(tmp_path: Path, options: Any) -> None:
    run = subprocess.Popen(
        [FLIPMETER, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.close()
    assert (run.stderr.read(), run.wait()) == ("", 0)
    run.stderr.close()


@pytest.mark.parametrize(
    "command",
    [
        ("measure", "run", "--json"),
        ("measure", "run"),
        ("measure", "run", "--csv"),
        ("report", "run", "--json"),
        ("list", "models"),
        ("try", "study.yaml", "--dry"),
        ("--version",),
        ("--help",),
    ],
    ids=" ".join,
)
def test_a_result_that_could_not_be_written_is_no_success(measured: Path, command: Any) -> None:
    with (
        Path(FULL).open("w") as full,
        Forked(CONSOLE, *command, cwd=measured, stdout=full, stderr=subprocess.PIPE) as run,
    ):
        said = run.communicate()[1]
    assert run.returncode == 4
    assert said.splitlines()[-1] == (
        "flipmeter: the output could not be written (No space left on device)"
    )


@pytest.mark.parametrize("redirection", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_stream_that_is_not_there_changes_no_output(measured: Path, redirection: str) -> None:
    command = (FLIPMETER, "measure", "run", "--json")
    whole, without = (
        forked.run(*command[1:], cwd=measured),
        in_shell(measured, redirection, *command),
    )
    assert (without.returncode, without.stdout) == (whole.returncode, whole.stdout)
    assert json.loads(without.stdout)


def test_a_crash_is_no_verdict(tmp_path: Path) -> None:
    """Exit 1 says that the rater flips; Python ends with it after any error."""
    (tmp_path / "polars.py").write_text("raise RuntimeError('broken installation')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [FLIPMETER, "measure", "run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "broken installation" in done.stderr) == (4, True)
