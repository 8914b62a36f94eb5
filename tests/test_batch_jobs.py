"""Batches at vendors: submitted once, fetched whole, and nothing paid twice or lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flipmeter.base.run_sync import wait_for
from flipmeter.model import Store
from flipmeter.model.batch import jobs as jobs_module
from flipmeter.model.batch.files import JOBS, MANIFEST
from flipmeter.model.batch.jobs import fetch, status, submit
from flipmeter.model.batch.journal import Journal
from flipmeter.run.batch import export_batch, import_batch
from flipmeter.run.perform import perform
from flipmeter.study.file import Study, read_study
from flipmeter.types import Problem
from strict_batches import Batches, batches

Cli = Callable[..., tuple[int, str, str]]
VENDORS = {
    "openai": ("openai/gpt-4o", "sk-openai-test-key"),
    "anthropic": ("anthropic/claude-sonnet-4-5", "sk-ant-test-key"),
}
CREATE = {"openai": r"POST /v1/batches", "anthropic": r"POST /v1/messages/batches"}
RESULTS = {"openai": r"/content", "anthropic": r"/results"}


def study(model: str) -> Study:
    return read_study(
        {
            "name": "batched",
            "models": [model],
            "datasets": ["reviews"],
            "test_size": 6,
            "probes": ["label_order"],
            "repeats": 1,
            "base": {"shots": 1},
        }
    )


@pytest.fixture(params=VENDORS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Batches]:
    kind = request.param
    with batches(kind, VENDORS[kind][1]) as known:
        monkeypatch.setenv(f"{kind.upper()}_BASE_URL", known.url)
        monkeypatch.setenv(f"{kind.upper()}_API_KEY", known.key)
        monkeypatch.setattr(jobs_module, "SETTLING", 0.0)
        yield known


@pytest.fixture
def folder(server: Batches, tmp_path: Path) -> Path:
    with Store(tmp_path / "r.sqlite") as store:
        export_batch(study(VENDORS[server.kind][0]), tmp_path / "batch", store)
    return tmp_path / "batch"


def created(server: Batches) -> int:
    return sum(f"{method} {path}" == CREATE[server.kind] for method, path in server.calls)


def test_a_batch_is_submitted_fetched_and_a_run_asks_nothing(
    server: Batches, folder: Path, tmp_path: Path
) -> None:
    (sent,) = wait_for(submit(folder))
    assert sent.is_new
    assert sent.job.id == server.jobs[0]["id"]
    (looked,) = wait_for(status(folder))
    assert looked.state.is_ended
    assert looked.state.n_done == 12
    (got,) = wait_for(fetch(folder))
    assert got.job.is_fetched
    with Store(tmp_path / "r.sqlite") as store:
        found = import_batch([folder], store)
        assert (found.n_new, found.n_left, found.errors) == (12, 0, ())
        run = perform(study(VENDORS[server.kind][0]), tmp_path / "run", store)
    assert run.environment["asked"]["asked"] == 0
    assert set(run.decisions["fault"]) == {""}


def test_a_file_is_submitted_once_however_often_it_is_asked_for(
    server: Batches, folder: Path
) -> None:
    wait_for(submit(folder))
    (again,) = wait_for(submit(folder))
    assert not again.is_new
    assert (created(server), server.n_paid) == (1, 12)


def test_an_answer_that_was_lost_is_looked_for_and_not_paid_again(
    server: Batches, folder: Path
) -> None:
    server.faults = [(CREATE[server.kind], "lost")]
    with pytest.raises(Problem, match=r"it is unknown whether .* was submitted"):
        wait_for(submit(folder))
    (found,) = wait_for(submit(folder))
    assert found.job.id == server.jobs[0]["id"]
    assert (created(server), server.n_paid) == (1, 12)


@pytest.mark.parametrize("fault", ["dropped", "broken"])
def test_what_never_arrived_is_submitted_at_the_next_call(
    server: Batches, folder: Path, fault: Any
) -> None:
    server.faults = [(CREATE[server.kind], fault)]
    with pytest.raises(Problem, match="unknown whether"):
        wait_for(submit(folder))
    (sent,) = wait_for(submit(folder))
    assert sent.is_new
    assert server.n_paid == 12


def test_a_process_that_dies_before_it_writes_the_id_finds_it_again(
    server: Batches, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Journal.note

    def dies(self: Journal, name: str, event: Any, **about: str) -> None:
        if event == "submitted":
            raise KeyboardInterrupt
        real(self, name, event, **about)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "note", dies)
        with pytest.raises(KeyboardInterrupt):
            wait_for(submit(folder))
    journal = folder / JOBS
    journal.write_bytes(journal.read_bytes() + b'{"file": "x", "eve')  # and its last line is torn
    (found,) = wait_for(submit(folder))
    assert found.job.id == server.jobs[0]["id"]
    assert server.n_paid == 12
    assert wait_for(status(folder))[0].state.is_ended


def test_what_was_just_sent_is_waited_for(
    server: Batches, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.faults = [(CREATE[server.kind], "dropped")]
    with pytest.raises(Problem):
        wait_for(submit(folder))
    monkeypatch.setattr(jobs_module, "SETTLING", 60.0)
    with pytest.raises(Problem, match="again in"):
        wait_for(submit(folder))
    assert server.n_paid == 0


def test_a_crowded_vendor_is_given_the_pause_it_asks_for(server: Batches, folder: Path) -> None:
    server.faults = [(CREATE[server.kind], "crowded"), (RESULTS[server.kind], "crowded")]
    wait_for(submit(folder))
    assert server.n_paid == 12
    assert wait_for(fetch(folder))[0].job.is_fetched
    assert server.faults == []


def test_a_refusal_is_final_and_can_be_submitted_later(server: Batches, folder: Path) -> None:
    server.faults = [(CREATE[server.kind], "echo")]
    with pytest.raises(Problem, match="bad key") as told:
        wait_for(submit(folder))
    assert server.key not in str(told.value)
    assert server.key not in (folder / JOBS).read_text()
    assert wait_for(submit(folder))[0].is_new
    assert server.n_paid == 12


@pytest.mark.parametrize("call", ["create", "results"])
def test_a_redirect_is_not_followed(server: Batches, folder: Path, call: str) -> None:
    if call == "create":
        server.faults = [(CREATE[server.kind], "redirect")]
        with pytest.raises(Problem, match=r"moved to http://192\.0\.2\.1"):
            wait_for(submit(folder))
    else:
        wait_for(submit(folder))
        server.faults = [(RESULTS[server.kind], "redirect")]
        with pytest.raises(Problem, match=r"moved to http://192\.0\.2\.1"):
            wait_for(fetch(folder))


def test_results_that_break_off_are_fetched_again(server: Batches, folder: Path) -> None:
    wait_for(submit(folder))
    server.faults = [(RESULTS[server.kind], "torn")] * jobs_module.DOWNLOADS
    with pytest.raises(Problem, match="nothing is lost"):
        wait_for(fetch(folder))
    assert not list(folder.glob("results-*"))
    server.faults = [(RESULTS[server.kind], "torn")]
    assert wait_for(fetch(folder))[0].job.is_fetched


def test_a_key_that_stands_in_the_results_is_not_kept(server: Batches, folder: Path) -> None:
    label = '"text": "' if server.kind == "anthropic" else '"content": "'

    def echoed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(json.loads(json.dumps(rows).replace(label, f"{label}{server.key} ")))

    server.spoil = echoed
    wait_for(submit(folder))
    wait_for(fetch(folder))
    (results,) = folder.glob("results-*")
    assert server.key not in results.read_text()
    assert "[key]" in results.read_text()


def _twice(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    other = json.loads(json.dumps(rows[0]).replace("very_negative", "other").replace('"1"', '"2"'))
    return [*rows, other]


def _unknown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*rows, {**rows[0], "custom_id": "f" * 64}]


def _foreign(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"key": row["custom_id"], "response": {"candidates": []}} for row in rows]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_twice, "answered twice and differently"),
        (_unknown, "not in this batch"),
        (_foreign, "has the format of Gemini's batches"),
        (lambda rows: [*rows, "a text"], "not a JSON object"),
    ],
)
def test_results_that_cannot_be_right_are_refused_and_nothing_is_kept(
    server: Batches, folder: Path, spoil: Any, said: str
) -> None:
    server.spoil = spoil
    wait_for(submit(folder))
    with pytest.raises(Problem, match=said):
        wait_for(fetch(folder))
    assert not list(folder.glob("results-*"))
    assert not Journal(folder).jobs[next(iter(Journal(folder).jobs))].is_fetched


def test_a_job_that_is_not_done_is_waited_for(server: Batches, folder: Path, cli: Cli) -> None:
    wait_for(submit(folder))
    server.jobs[0]["status"] = "in_progress"
    code, out, _ = cli("batch", "fetch", str(folder))
    assert (code, "in_progress" in out) == (4, True)
    server.jobs[0]["status"] = "completed" if server.kind == "openai" else "ended"
    code, out, _ = cli("batch", "fetch", str(folder))
    assert (code, "12 new replies" in out) == (0, True)
    code, out, _ = cli("batch", "fetch", str(folder))
    assert (code, "12 already stored" in out) == (0, True)


def test_a_key_goes_to_no_host_that_a_manifest_names(
    server: Batches, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(f"{server.kind.upper()}_BASE_URL")
    with pytest.raises(Problem, match="is not sent to"):
        wait_for(submit(folder))
    assert server.calls == []


def test_a_manifest_names_no_file_outside_its_folder(server: Batches, folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][0]["name"] = "../../etc/passwd"
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Problem, match="not in its folder"):
        wait_for(submit(folder))


@pytest.mark.parametrize("which", [MANIFEST, JOBS, "requests"])
@pytest.mark.parametrize("harm", ["pipe", "link"])
def test_a_pipe_or_link_in_a_batch_folder_is_not_read(
    server: Batches, folder: Path, tmp_path: Path, which: str, harm: str
) -> None:
    name = json.loads((folder / MANIFEST).read_text())["files"][0]["name"]
    place = folder / (name if which == "requests" else which)
    if place.exists():
        place.rename(tmp_path / "elsewhere")
    else:
        (tmp_path / "elsewhere").write_text("")
    if harm == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Problem):
        wait_for(submit(folder))
    assert server.n_paid == 0


def test_a_file_that_was_changed_is_not_submitted(server: Batches, folder: Path) -> None:
    name = json.loads((folder / MANIFEST).read_text())["files"][0]["name"]
    (folder / name).write_text("{}\n")
    with pytest.raises(Problem, match="was changed since it was written"):
        wait_for(submit(folder))
    assert server.n_paid == 0


def test_two_jobs_that_may_be_it_are_named_and_one_can_be_adopted(
    folder: Path, server: Batches, cli: Cli
) -> None:
    server.faults = [(CREATE[server.kind], "lost")]
    with pytest.raises(Problem):
        wait_for(submit(folder))
    server.jobs.append({**server.jobs[0], "id": server.jobs[0]["id"] + "0"})
    code, _, said = cli("batch", "submit", str(folder))
    assert code == 2
    assert server.jobs[0]["id"] in said
    assert "--adopt" in said
    code, out, _ = cli("batch", "submit", str(folder), "--adopt", server.jobs[0]["id"])
    assert (code, "submitted before" in out) == (0, True)


def test_other_jobs_of_the_account_are_told_apart(server: Batches, folder: Path) -> None:
    wait_for(submit(folder))
    for number in range(5):  # several pages of them
        other = {**server.jobs[0], "id": f"other_{number}", "n": 3, "metadata": {}}
        server.jobs.insert(0, other)
    (folder / JOBS).unlink()
    journal = Journal(folder)
    name = json.loads((folder / MANIFEST).read_text())["files"][0]["name"]
    journal.note(name, "submitting")
    (found,) = wait_for(submit(folder))
    assert not found.job.id.startswith("other")


def test_only_one_process_submits(server: Batches, folder: Path) -> None:
    from flipmeter.base.files.lock import lock

    held = lock(folder)
    assert held is not None
    with pytest.raises(Problem, match="another process"):
        wait_for(submit(folder))


def test_files_of_other_vendors_are_handed_in_by_hand(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "gemini-test-key")
    with Store() as store:
        export_batch(study("gemini/gemini-2.0-flash"), tmp_path / "b", store)
    code, _, said = cli("batch", "submit", str(tmp_path / "b"))
    assert code == 2
    assert "is for Gemini" in said
    assert "batch import" in said
