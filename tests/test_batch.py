"""Batch files: out as vendors want them, back in parts, and the tables of a live run after."""

from __future__ import annotations

import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipmeter.ask.batch import BatchEntry, read_batch, read_results, write_batch
from flipmeter.ask.store import Store
from flipmeter.ask.wires import ChatWire
from flipmeter.errors import Problem
from flipmeter.pipelines.pipeline import Asked, Heard, Traits, pipelines, unheard
from flipmeter.run.batch import Exported, export_batch, import_batch
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.study.file import Study, read_study
from flipmeter.types import Ask, Decision, Mode, Request
from misbehaving import KEY, MODEL, Server, answer, fails, question, rates, serving

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "replies.sqlite") as store:
        yield store


def study(server: Server, **changes: Any) -> Study:
    content = {
        "name": "batched",
        "models": [{"model": f"http/{MODEL}", "base_url": server.url, "name": "acme"}],
        "datasets": ["reviews"],
        "test_size": 15,
        "probes": ["label_order"],
        "repeat_views": ["base"],
        "base": {"shots": 1},
    }
    return read_study({**content, **changes})


def handed_in(url: str, files: Sequence[Path]) -> list[dict[str, Any]]:
    """Do what a vendor does with batch files, at a real address, in an order of its own."""
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    random.Random(5).shuffle(lines)
    results = []
    for number, line in enumerate(lines):
        assert (line["method"], set(line)) == ("POST", {"custom_id", "method", "url", "body"})
        status, body = _posted(url.removesuffix("/v1") + line["url"], line["body"])
        response = {"status_code": status, "request_id": f"r{number}", "body": body}
        results.append({"id": f"b{number}", "custom_id": line["custom_id"], "response": response})
    return [result | {"error": None} for result in results]


def _posted(url: str, body: Any) -> tuple[int, Any]:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def inputs(folder: Path, done: Exported) -> list[Path]:
    return [folder / file.name for file in done.files]


def tables(run: Run) -> list[Any]:
    kept = run.decisions.drop("seconds"), run.calls.drop("seconds"), run.estimates
    return [table.to_dicts() for table in kept]


def test_a_run_after_a_batch_is_a_live_run(server: Server, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    done = export_batch(study(server), folder, store)
    assert done.n_requests == 15 * 3  # base, its repeat, reversed
    write(folder / "output.jsonl", handed_in(server.url, inputs(folder, done)))
    found = import_batch([folder], store)
    assert (found.n_new, found.n_known, found.errors, found.n_left) == (45, 0, (), 0)
    run = perform(study(server), tmp_path / "run", store)
    assert run.environment["asked"]["asked"] == 0
    live = perform(study(server), tmp_path / "live", Store())
    assert live.environment["asked"]["asked"] == 45
    assert tables(run) == tables(live)
    assert not export_batch(study(server), tmp_path / "more", store).files
    assert not (tmp_path / "more").exists()


def test_parts_come_on_different_days(server: Server, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    rows = handed_in(server.url, inputs(folder, export_batch(study(server), folder, store)))
    first, second = write(tmp_path / "1.jsonl", rows[:20]), write(tmp_path / "2.jsonl", rows[15:])
    assert import_batch([first], store, folder).n_left == 25
    again = import_batch([second, first], store, folder)  # five of them came twice
    assert (again.n_new, again.n_known, again.n_left) == (25, 20, 0)


def test_what_a_batch_did_not_bring_is_asked_by_the_run(
    server: Server, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "batch"
    rows = handed_in(server.url, inputs(folder, export_batch(study(server), folder, store)))
    write(folder / "output.jsonl", rows[:40])
    expired = {"custom_id": rows[40]["custom_id"], "response": None}
    expired |= {"error": {"code": "batch_expired", "message": "could not be done in time"}}
    broken = rows[41] | {"response": {"status_code": 500, "body": {"error": {"message": "oh"}}}}
    write(folder / "errors.jsonl", [expired, broken])
    found = import_batch([folder], store)
    assert found.errors == ("could not be done in time", "HTTP 500 in the batch: oh")
    assert found.n_left == 5
    run = perform(study(server), tmp_path / "run", store)
    assert run.environment["asked"]["asked"] == 5
    assert tables(run) == tables(perform(study(server), tmp_path / "live", Store()))


def test_a_prompt_that_is_refused_is_answered_for_good_as_in_a_live_run(tmp_path: Path) -> None:
    filtered = fails(400, "not this one", "content_filter")

    def rule(body: Any) -> Any:
        return filtered if len(body["messages"][-1]["content"]) % 4 == 0 else rates(body)

    with serving(rule) as server, Store() as store:
        folder = tmp_path / "batch"
        rows = handed_in(server.url, inputs(folder, export_batch(study(server), folder, store)))
        n_refused = sum(row["response"]["status_code"] == 400 for row in rows)
        write(folder / "output.jsonl", rows)
        assert import_batch([folder], store).n_left == 0
        run = perform(study(server), tmp_path / "run", store)
        assert 0 < n_refused == run.calls.filter(finish="content_filter").height
        assert tables(run) == tables(perform(study(server), tmp_path / "live", Store()))


def test_a_pipeline_that_asks_in_rounds_is_exported_round_by_round(
    server: Server, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twice:
        """Ask about every item, and once more where the first answer is a low class."""

        traits = Traits("asks again")

        def asks(self, panel: Asked, heard: Heard) -> list[Ask]:
            first = [Ask(item, panel.view) for item in panel.items]
            turned = replace(panel.view, label_order=panel.view.label_order[::-1])
            low = [Ask(a.item, turned) for a in first if a in heard and heard[a].rank < 3]
            return [ask for ask in first if ask not in heard] or unheard(low, heard)

        def settle(self, panel: Asked, heard: Heard) -> list[Decision]:
            return [Decision(heard[Ask(item, panel.view)].rank) for item in panel.items]

    def opened(mode: Mode) -> Any:
        return Twice()

    monkeypatch.setitem(pipelines._parts, "twice", opened)
    monkeypatch.setitem(pipelines._packages, "twice", "flipmeter")
    asked = study(server, pipeline="twice", probes=["placement"], repeats=1)
    rounds = []
    for number in range(4):
        folder = tmp_path / f"batch{number}"
        done = export_batch(asked, folder, store)
        if not done.files:
            break
        rounds.append((done.round, done.n_requests))
        write(folder / "out.jsonl", handed_in(server.url, inputs(folder, done)))
        import_batch([folder], store)
    assert [number for number, _ in rounds] == [1, 2]
    assert rounds[0][1] == 45
    assert rounds[1][1] < 45
    assert perform(asked, tmp_path / "run", store).environment["asked"]["asked"] == 0


# Files


def test_files_are_cut_by_number_and_by_size(tmp_path: Path) -> None:
    requests = [BatchEntry("m", question(f"How bad is {k}?")) for k in range(7)]
    by_number = write_batch(tmp_path / "a", requests, {}, most_requests=3)
    assert [file.n_requests for file in by_number] == [3, 3, 1]
    size = by_number[0].n_bytes
    by_size = write_batch(tmp_path / "b", requests, {}, most_bytes=size - 1)
    assert [file.n_requests for file in by_size] == [2, 2, 2, 1]
    assert all((tmp_path / "b" / file.name).stat().st_size < size for file in by_size)
    together = b"".join((tmp_path / "b" / file.name).read_bytes() for file in by_size)
    assert together == b"".join((tmp_path / "a" / file.name).read_bytes() for file in by_number)


def test_models_and_addresses_get_files_of_their_own(tmp_path: Path) -> None:
    raw = question("x", '{"interface":"completions"}')
    files = write_batch(
        tmp_path,
        [BatchEntry("org/a", question("x")), BatchEntry("b", question("y")), BatchEntry("b", raw)],
        {},
    )
    assert [(file.model, file.url) for file in files] == [
        ("org/a", "/v1/chat/completions"),
        ("b", "/v1/chat/completions"),
        ("b", "/v1/completions"),
    ]
    assert len({file.name for file in files}) == 3
    assert read_batch(tmp_path) == {r.key: r for r in (question("x"), question("y"), raw)}


def test_a_batch_holds_no_secret(
    server: Server, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_API_KEY", KEY)
    export_batch(study(server), tmp_path / "batch", store)
    assert all(KEY not in path.read_text() for path in (tmp_path / "batch").iterdir())


def test_a_result_is_read_as_the_live_client_reads_it(tmp_path: Path) -> None:
    asked = question("Rate it.", answers=("1", "2"))
    write_batch(tmp_path, [BatchEntry("m", asked)], {})
    step = {"token": "2", "logprob": -0.1, "top_logprobs": [{"token": "1", "logprob": -2.5}]}
    body = answer("2", usage={"prompt_tokens": 9}, system_fingerprint="fp")
    body["choices"][0]["logprobs"] = {"content": [step]}
    row = {"custom_id": asked.key, "response": {"status_code": 200, "body": body}}
    found = read_results([write(tmp_path / "out.jsonl", [row])], read_batch(tmp_path))
    assert found.replies == {asked.key: ChatWire().reply(body, 0.0, asked.answers)}
    assert found.replies[asked.key].scores == (-2.5, -0.1)


@pytest.fixture
def batch(tmp_path: Path) -> tuple[Path, list[Request]]:
    requests = [question(f"How bad is {k}?") for k in range(3)]
    write_batch(tmp_path / "batch", [BatchEntry("m", request) for request in requests], {})
    return tmp_path / "batch", requests


def result(key: str, content: str = "2") -> dict[str, Any]:
    return {"custom_id": key, "response": {"status_code": 200, "body": answer(content)}}


def test_unknown_and_torn_ids_are_refused_by_name_and_nothing_is_kept(
    batch: tuple[Path, list[Request]], store: Store
) -> None:
    folder, (first, second, _) = batch
    out = write(folder / "out.jsonl", [result(first.key), result("who"), result("what")])
    with pytest.raises(Problem, match=r"'who' \(.*line 2\); 'what' .*not in this batch"):
        import_batch([out], store)
    write(out, [result(first.key), result(second.key, "1"), result(second.key, "3")])
    with pytest.raises(Problem, match=f"'{second.key}' .*line 3.*answered twice and differently"):
        import_batch([out], store)
    assert len(store) == 0


def test_the_same_reply_twice_counts_once_and_wins_over_an_error(
    batch: tuple[Path, list[Request]], store: Store
) -> None:
    folder, (first, *_) = batch
    failed = {"custom_id": first.key, "response": None, "error": {"message": "no"}}
    write(folder / "out.jsonl", [failed, result(first.key), result(first.key), failed])
    found = import_batch([folder], store)
    assert (found.n_new, found.errors, found.n_left) == (1, (), 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"custom_id": "a', "line 1 is not JSON"),
        ("[1]", "line 1 is not a JSON object"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_damaged_file_is_named(
    batch: tuple[Path, list[Request]], store: Store, content: str, message: str
) -> None:
    path = batch[0] / "out.jsonl"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(Problem, match=r"out\.jsonl") as raised:
        import_batch([path], store)
    assert message in str(raised.value)


def test_a_changed_request_is_noticed(batch: tuple[Path, list[Request]], store: Store) -> None:
    kept = batch[0] / "requests.jsonl"
    kept.write_text(kept.read_text().replace("is 1?", "is 9?"))
    with pytest.raises(Problem, match=r"requests\.jsonl, line \d was changed"):
        import_batch([write(batch[0] / "out.jsonl", [])], store)


# The verbs


def test_the_verbs_lead_from_one_to_the_next(cli: Cli, server: Server, tmp_path: Path) -> None:
    settings = study(server).model_dump_json(exclude_defaults=True)
    (tmp_path / "s.yaml").write_text(settings)
    code, out, _ = cli(
        "batch", "export", "s.yaml", "--out", "b", "--limit", "10", "--max-requests", "20"
    )
    assert (code, "next: flipmeter batch import b" in out) == (0, True)
    files = sorted(Path("b").glob("acme*.jsonl"))
    assert [len(file.read_text().splitlines()) for file in files] == [20, 10]
    assert cli("batch", "import", "b")[0] == 2  # no results yet
    assert cli("batch", "export", "s.yaml", "--out", "b")[0] == 2  # a batch is there already
    write(Path("out.jsonl"), handed_in(server.url, files))
    code, out, _ = cli("batch", "import", "out.jsonl", "--batch", "b")
    assert (code, "30 new replies" in out) == (0, True)
    assert cli("run", "s.yaml", "--limit", "10")[0] == 0
    assert Run(Path("runs/batched")).environment["asked"]["asked"] == 0
    code, out, _ = cli("batch", "export", "s.yaml", "--out", "c", "--limit", "10")
    assert (code, "all replies are stored" in out) == (0, True)


def test_models_in_this_process_need_no_batch(cli: Cli) -> None:
    code, _, err = cli("batch", "export", "demo", "-m", "sim/honest", "--out", "b")
    assert (code, "needs no batch" in err) == (2, True)
    both = ("-m", "sim/honest", "-m", "vllm/x")
    code, _, err = cli("batch", "export", "demo", *both, "--out", "b", "--limit", "3")
    assert (code, "sim/honest runs in this process" in err) == (0, True)


def test_what_is_not_known_of_an_endpoint_is_said(
    server: Server, store: Store, tmp_path: Path
) -> None:
    done = export_batch(
        study(server, decoding={"seed": 1, "temperature": 1}), tmp_path / "b", store
    )
    assert any("has seed is not known" in note for note in done.notes)


def test_models_of_one_name_at_two_endpoints_have_files_of_their_own(tmp_path: Path) -> None:
    there = [replace(question("x"), model=name) for name in ("m at A", "m at B", "org/m at A")]
    files = write_batch(tmp_path, map(BatchEntry, ("org-m", "org-m", "org/m"), there), {})
    assert len({file.name for file in files}) == 3
    for file, request in zip(files, there, strict=True):
        (line,) = (tmp_path / file.name).read_text(encoding="utf-8").splitlines()
        assert (file.identity, json.loads(line)["custom_id"]) == (request.model, request.key)


def test_results_that_are_not_there_are_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="nowhere does not exist"):
        import_batch([tmp_path / "nowhere"], store)


def test_the_next_command_can_be_pasted(cli: Cli, server: Server, tmp_path: Path) -> None:
    (tmp_path / "my study.yaml").write_text(json.dumps(study(server).model_dump(mode="json")))
    code, out, _ = cli("batch", "export", "my study.yaml", "--out", "my batch", "--limit", "5")
    assert (code, "flipmeter batch import 'my batch'" in out) == (0, True)


def test_a_folder_that_cannot_be_written_to_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(Problem, match=r"cannot write the batch into .*file"):
        write_batch(tmp_path / "file", [BatchEntry("m", question("x"))], {})
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("torn", [{}, {"key": "k"}, {"before": [1]}, {"key": ["k"], "head": 9}])
def test_requests_that_were_torn_are_named(
    batch: tuple[Path, list[Request]], store: Store, place: int, torn: Mapping[str, Any]
) -> None:
    folder, _ = batch
    lines = (folder / "requests.jsonl").read_text().splitlines()
    lines[place] = json.dumps(torn)
    (folder / "requests.jsonl").write_text("\n".join(lines))
    (folder / "out.jsonl").touch()
    with pytest.raises(Problem, match=r"requests\.jsonl, line \d was changed"):
        import_batch([folder], store)


@pytest.mark.parametrize("torn", ["{}", "[]", '{"files": [1]}', '{"files": [{}]}', "{"])
def test_a_manifest_that_was_torn_is_named(
    batch: tuple[Path, list[Request]], store: Store, torn: str
) -> None:
    folder, _ = batch
    (folder / "manifest.json").write_text(torn)
    with pytest.raises(Problem, match=r"manifest\.json is damaged"):
        import_batch([folder], store)
