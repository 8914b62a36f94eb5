"""A store that is lost or takes no more while a run asks: nothing that was answered is paid twice."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import flipmeter as fm
from flipmeter.base.problem import Incomplete
from flipmeter.model import Store
from flipmeter.run.record.folder import Run
from misbehaving import Server, rates, serving
from misbehaving import tidy as tidy
from test_drain import COMMAND, late, start, study_in, wait_for
from test_faults import asked, performed, table

pytestmark = pytest.mark.usefixtures("tidy")

RUN = ("run", "study.yaml", "--anyway", "--out", "runs/one")
STORE = Path(".flipmeter", "replies.sqlite")
Harm = Callable[[Path], object]


def stop_by(server: Server, folder: Path, harm: Harm, *command: str, n_before: int = 50) -> str:
    """Harm the store of a command in the middle of its work; return what it says."""
    n_earlier = len(server.bodies)
    run = start(folder, *command)
    wait_for(server, n_earlier + n_before)
    harm(folder)
    said = run.communicate()[1]
    assert (run.returncode, "Traceback" in said) == (4, False), said
    return said


def saved(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*-rescue-*"))


def paid_once(server: Server, folder: Path, *command: str) -> str:
    """Run a command to its end: it asks what was not answered, and takes in what was saved."""
    server.rule = rates
    again = start(folder, *command)
    said = again.communicate()[1]
    assert again.returncode in (0, 1, 3), said
    assert set(Counter(asked(server)).values()) == {1}
    assert saved(folder) == []
    return said


def remove(path: str) -> Harm:
    return lambda folder: shutil.rmtree(folder / path)


def remove_file(name: str) -> Harm:
    return lambda folder: (folder / STORE).with_name(name).unlink()


def rename_folder(folder: Path) -> None:
    (folder / ".flipmeter").rename(folder / "elsewhere")


def rename_file(folder: Path) -> None:
    (folder / STORE).rename(folder / STORE.with_name("old.sqlite"))


def replace_by_a_backup(folder: Path) -> None:
    with Store(folder / "backup.sqlite"):
        pass
    (folder / "backup.sqlite").replace(folder / STORE)


def replace_by_another_folder(folder: Path) -> None:
    rename_folder(folder)
    (folder / ".flipmeter").mkdir()


LOSSES = [
    remove(".flipmeter"),
    remove_file("replies.sqlite"),
    remove_file("replies.sqlite-wal"),
    rename_folder,
    rename_file,
    replace_by_a_backup,
    replace_by_another_folder,
]
NAMES = ["rm-rf", "rm", "rm-wal", "mv-folder", "mv", "backup", "other-folder"]


@pytest.mark.parametrize("harm", LOSSES, ids=NAMES)
def test_a_store_that_is_lost_stops_the_run_and_nothing_is_paid_twice(
    tmp_path: Path, harm: Harm
) -> None:
    with serving(late) as server:
        study = study_in(tmp_path, server.url)
        said = stop_by(server, tmp_path, harm, *RUN)
        assert f"{STORE} was removed, renamed or replaced" in said
        n_asked = len(server.bodies)
        assert 50 <= n_asked < 120
        assert f"{n_asked:,} replies are saved in {saved(tmp_path)[0]}" in said
        assert not (tmp_path / "runs" / "one").exists()
        assert f"{saved(tmp_path)[0].name} holds replies" in paid_once(server, tmp_path, *RUN)
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "runs" / "one")) == table(clean)


def test_a_run_that_was_continued_keeps_what_it_had_before(tmp_path: Path) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        for _ in range(2):
            stop_by(server, tmp_path, remove(".flipmeter"), *RUN, n_before=20)
        assert len(server.bodies) < 120
        paid_once(server, tmp_path, *RUN)


@pytest.mark.parametrize("kilobytes", [300, 500, 1000])
def test_a_file_that_may_not_grow_loses_no_reply(tmp_path: Path, kilobytes: int) -> None:
    limit = (kilobytes * 1024,) * 2
    small = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, {limit}); {COMMAND}"
    with serving() as server:
        study = study_in(tmp_path, server.url).model_copy(update={"test_size": 120})
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
        run = start(tmp_path, *RUN, script=small)
        said = run.communicate()[1]
        assert (run.returncode, "Traceback" in said) == (4, False), said
        paid_once(server, tmp_path, *RUN)


def test_a_store_that_is_overwritten_while_it_is_in_use_is_rescued(tmp_path: Path) -> None:
    def overwrite(folder: Path) -> None:
        (folder / STORE).write_bytes(b"")

    with serving(late) as server:
        study_in(tmp_path, server.url)
        stop_by(server, tmp_path, overwrite, *RUN)
        shutil.rmtree(tmp_path / ".flipmeter")
        paid_once(server, tmp_path, *RUN)
