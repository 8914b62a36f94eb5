"""A store that is lost, or takes no more, while a run asks: no answered request is paid twice."""

from __future__ import annotations

import asyncio
import json
import shutil
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

from flipmeter.ask.store import Store
from flipmeter.choose.card import Card, write_card
from flipmeter.errors import Incomplete
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.study.entries import ModelEntry
from full_disk import NO_DISK
from misbehaving import MODEL, Behaviour, Server, rates, serving
from misbehaving import tidy as tidy
from test_classify import TEXTS, labelled, write_csv
from test_classify import card as card
from test_drain import COMMAND, late, start, study_in, wait_for
from test_faults import asked, performed, table

pytestmark = [pytest.mark.usefixtures("tidy"), pytest.mark.long]

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


def later(body: Any) -> Behaviour:
    """Answer so late that other processes have time to start."""

    async def behave(request: Any) -> Any:
        await asyncio.sleep(1)
        return await rates(body)(request)

    return behave


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


def replace_by_a_link(folder: Path) -> None:
    (folder / STORE).rename(folder / "other.sqlite")
    (folder / STORE).symlink_to(folder / "other.sqlite")


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
        assert f"{STORE} was removed, renamed or overwritten" in said
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


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_beside_it_changes_nothing(tmp_path: Path, stop: signal.Signals) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        run = start(tmp_path, *RUN)
        wait_for(server, 40)
        run.send_signal(stop)
        shutil.rmtree(tmp_path / ".flipmeter")
        said = run.communicate()[1]
        assert (run.returncode, "Traceback" in said) == (4, False), said
        paid_once(server, tmp_path, *RUN)


def test_three_processes_on_one_store_rescue_what_each_has_heard(tmp_path: Path) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        server.rule = later
        runs = [start(tmp_path, *RUN[:-1], f"runs/{name}") for name in "abc"]
        wait_for(server, 16)
        with Store(tmp_path / STORE) as store:
            while {*store.read("SELECT count(*) FROM owners")} != {(3,)}:
                time.sleep(0.01)
        shutil.rmtree(tmp_path / ".flipmeter")
        said = [run.communicate()[1] for run in runs]
        assert [run.returncode for run in runs] == [4, 4, 4], said
        paid_once(server, tmp_path, *RUN)


@pytest.mark.parametrize("kilobytes", [64, 100, 300, 500, 1000])
def test_a_file_that_may_not_grow_loses_no_reply(tmp_path: Path, kilobytes: int) -> None:
    limit = (kilobytes * 1024,) * 2
    small = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, {limit}); {COMMAND}"
    with serving() as server:
        study = study_in(tmp_path, server.url).model_copy(update={"test_size": 120})
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(study.model_dump(mode="json")))
        run = start(tmp_path, *RUN, script=small)
        said = run.communicate()[1]
        assert (run.returncode, "Traceback" in said) == (4 if server.bodies else 2, False), said
        paid_once(server, tmp_path, *RUN)


def test_a_store_that_is_overwritten_while_it_is_in_use_is_rescued(tmp_path: Path) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        stop_by(server, tmp_path, lambda folder: (folder / STORE).write_bytes(b""), *RUN)
        shutil.rmtree(tmp_path / ".flipmeter")
        paid_once(server, tmp_path, *RUN)


def test_a_store_in_whose_place_a_link_is_put_is_rescued(tmp_path: Path) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        stop_by(server, tmp_path, replace_by_a_link, *RUN)
        (tmp_path / STORE).unlink()
        paid_once(server, tmp_path, *RUN)


@pytest.mark.parametrize("command", ["try", "classify"])
def test_every_verb_that_asks_is_rescued(tmp_path: Path, card: Card, command: str) -> None:
    with serving(late) as server:
        study_in(tmp_path, server.url)
        model = ModelEntry(model=f"http/{MODEL}", base_url=server.url, timeout=60)
        remote = card.model_copy(update={"model": model, "selected": None})
        write_card(remote, tmp_path / "rater.yaml")
        write_csv(tmp_path / "t.csv", [f"{number}: {TEXTS[0]}" for number in range(150)])
        options = {
            "try": ("study.yaml", "--limit", "20"),
            "classify": ("rater.yaml", "t.csv", "--text", "body", "--out", "out.csv"),
        }
        stop_by(server, tmp_path, remove(".flipmeter"), command, *options[command])
        paid_once(server, tmp_path, command, *options[command])
        if command == "classify":
            assert len(labelled(tmp_path / "out.csv")) == 150


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_run_folder_that_goes_away_costs_nothing(tmp_path: Path, is_renamed: bool) -> None:
    with serving(late) as server:
        study = study_in(tmp_path, server.url)
        run = start(tmp_path, *RUN)
        wait_for(server, 50)
        while not (tmp_path / "runs" / "one").exists():
            time.sleep(0.01)
        if is_renamed:
            (tmp_path / "runs").rename(tmp_path / "old")
        else:
            shutil.rmtree(tmp_path / "runs")
        said = run.communicate()[1]
        assert (run.returncode in (0, 4), "Traceback" in said) == (True, False), said
        paid_once(server, tmp_path, *RUN)
        clean = performed(study, tmp_path / "clean")
    assert table(Run(tmp_path / "runs" / "one")) == table(clean)


def test_a_program_gets_an_error_that_says_where_its_replies_are(tmp_path: Path) -> None:
    def losing(body: Any) -> Any:
        if len(server.bodies) == 50:
            rename_folder(tmp_path)
        return rates(body)

    with serving(losing) as server:
        study = study_in(tmp_path, server.url)
        with (
            pytest.raises(Incomplete, match="replies are saved in"),
            Store(tmp_path / STORE) as one,
        ):
            perform(study, tmp_path / "run", one, Terms(anyway=True))
        with Store(tmp_path / STORE) as other:
            assert len(other) == len(server.bodies)


# Rescue files of somebody else


@pytest.fixture
def rescued(tmp_path: Path) -> Path:
    """A rescue file with replies, whose store is gone."""
    with serving(late) as server:
        study_in(tmp_path, server.url)
        stop_by(server, tmp_path, remove(".flipmeter"), *RUN, n_before=20)
    return saved(tmp_path)[0]


def changed(path: Path, **values: Any) -> None:
    first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(first) | values) + "\n", *rest]))


@pytest.mark.parametrize(
    "values",
    [
        {"key": "../x"},
        {"prompt_tokens": 2**70},
        {"seconds": "soon"},
        {"scores": [[1]]},
        {"answered_by": "\ud800"},
    ],
)
def test_a_rescue_file_that_is_none_is_refused_by_name(
    rescued: Path, values: dict[str, Any]
) -> None:
    changed(rescued, **values)
    run = start(rescued.parent, *RUN)
    said = run.communicate()[1]
    assert (run.returncode, "Traceback" in said, f"{rescued}, line 1" in said) == (2, False, True)
    assert rescued.exists()


def test_a_rescue_file_that_is_a_link_is_left_alone(rescued: Path, tmp_path: Path) -> None:
    other = rescued.rename(tmp_path / "other.jsonl")
    rescued.symlink_to(other)
    with Store(tmp_path / STORE) as store:
        assert len(store) == 0
    assert other.exists()


def test_a_rescue_file_that_cannot_be_removed_is_taken_in_and_stays(
    rescued: Path, tmp_path: Path
) -> None:
    """A folder without permission to write, or a file that another program holds."""
    count = f"from flipmeter.ask.store import Store\nwith Store({str(STORE)!r}) as s: print(len(s))"
    held = f'mount --bind "$1" "$1" || exit {NO_DISK}; "$2" -c "$3" && "$2" -c "$3"'
    line = ["unshare", "-rm", "sh", "-c", held, "sh", str(rescued), sys.executable, count]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode == NO_DISK or "unshare" in done.stderr:
        pytest.skip("nothing can be mounted here")
    n_saved = len(rescued.read_text().splitlines())
    assert (done.stdout, done.stderr) == (2 * f"{n_saved}\n", "")


def test_a_rescue_file_can_be_merged_into_any_store(rescued: Path, tmp_path: Path) -> None:
    merging = start(tmp_path, "cache", "merge", str(rescued), "--into", "other.sqlite")
    assert (merging.communicate()[1], merging.returncode) == ("", 0)
    with Store(tmp_path / "other.sqlite") as store:
        assert len(store) == len(rescued.read_text().splitlines())
