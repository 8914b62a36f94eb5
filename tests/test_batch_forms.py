"""Batch files in every vendor's form: written as it takes them, read as it writes results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strict_vendors
from flipmeter.ask.batch import FORMS, MANIFEST, batch_files, forms_in, read_batch, read_results
from flipmeter.ask.store import Store
from flipmeter.errors import Problem
from flipmeter.run.batch import export_batch, import_batch
from flipmeter.run.perform import perform
from flipmeter.study.file import Study, read_study

Answer = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
KEYS = {
    "openai": {"authorization": "Bearer sk-openai-test-key"},
    "azure": {"api-key": "azure-test-key"},
    "anthropic": {"x-api-key": "sk-ant-test-key", "anthropic-version": "2023-06-01"},
    "gemini": {"x-goog-api-key": "gemini-test-key"},
    "mistral": {"authorization": "Bearer mistral-test-key"},
    "groq": {"authorization": "Bearer groq-test-key"},
    "together": {"authorization": "Bearer together-test-key"},
}
PATHS = {
    "openai": "/v1/chat/completions",
    "azure": "/openai/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gemini-2.0-flash:generateContent",
    "mistral": "/v1/chat/completions",
    "groq": "/openai/v1/chat/completions",
    "together": "/v1/chat/completions",
}
MODELS = {
    "openai": "openai/gpt-4o",
    "azure": "azure/gpt-4o",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-2.0-flash",
    "mistral": "mistral/mistral-small-latest",
    "groq": "groq/llama-3.3-70b",
    "together": "together/meta-llama/Llama-3.3-70B",
    "vllm": "vllm/triage-7b",
}
LINES = {
    "openai": {"custom_id", "method", "url", "body"},
    "azure": {"custom_id", "method", "url", "body"},
    "groq": {"custom_id", "method", "url", "body"},
    "vllm": {"custom_id", "method", "url", "body"},
    "mistral": {"custom_id", "body"},
    "together": {"custom_id", "body"},
    "anthropic": {"custom_id", "params"},
    "gemini": {"key", "request"},
}
SHAPED = {"anthropic": "anthropic", "gemini": "gemini"}


def study(family: str) -> Study:
    content = {"name": "b", "models": [MODELS[family]], "datasets": ["reviews"], "test_size": 5}
    return read_study(
        {**content, "probes": ["label_order"], "repeats": 1, "base": {"shots": 1}, "scores": False}
    )


@pytest.fixture(params=MODELS)
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AZURE_BASE_URL", "https://acme.openai.azure.com/openai/v1")
    monkeypatch.setenv(f"{request.param.upper()}_API_KEY", "a-key-that-goes-nowhere")
    return str(request.param)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The requests of a batch as a vendor finds them."""
    (file,) = batch_files(folder)
    text = (folder / file.name).read_text(encoding="utf-8")
    if file.form == "anthropic":
        content = json.loads(text)
        assert set(content) == {"requests"}
        return list(content["requests"])
    return [json.loads(line) for line in text.splitlines()]


def answered(family: str, row: dict[str, Any]) -> dict[str, Any]:
    """What a vendor makes of a request of a batch, by the rules of its live API."""
    rules = "openai" if family == "vllm" else family
    ask = getattr(strict_vendors, rules)
    if family == "anthropic":
        status, said = ask(PATHS[family], KEYS[family], row["params"])
        assert status == 200
        return {"custom_id": row["custom_id"], "result": {"type": "succeeded", "message": said}}
    if family == "gemini":
        status, said = ask(PATHS[family], KEYS[family], row["request"])
        assert status == 200
        return {"key": row["key"], "response": said}
    status, said = ask(PATHS[rules], KEYS[rules], row["body"])
    assert status == 200
    response = {"status_code": status, "request_id": "r", "body": said}
    return {"id": "x", "custom_id": row["custom_id"], "response": response, "error": None}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_every_vendor_takes_its_file_and_its_results_are_read(family: str, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    with Store() as store:
        assert export_batch(study(family), folder, store).n_requests == 10
        rows = rows_of(folder)
        assert [set(row) for row in rows] == [LINES[family]] * 10
        written(folder / "output.jsonl", [answered(family, row) for row in rows])
        found = import_batch([folder], store)
        assert (found.n_new, found.n_left, found.errors) == (10, 0, ())
        run = perform(study(family), tmp_path / "run", store)
    assert run.environment["asked"]["asked"] == 0
    assert set(run.decisions["fault"]) == {""}
    assert run.calls["completion_tokens"].to_list() == [1] * 10


@pytest.mark.parametrize("other", ["openai", "anthropic", "gemini"])
def test_results_of_another_vendor_are_refused_by_name(
    family: str, other: str, tmp_path: Path
) -> None:
    if SHAPED.get(family, "openai") == other:
        return
    with Store() as store:
        export_batch(study(family), tmp_path / "b", store)
        keys = list(read_batch(tmp_path / "b"))
        theirs: dict[str, Callable[[str], dict[str, Any]]] = {
            "openai": lambda key: {"custom_id": key, "response": {"status_code": 200, "body": {}}},
            "anthropic": lambda key: {"custom_id": key, "result": {"type": "succeeded"}},
            "gemini": lambda key: {"key": key, "response": {}},
        }
        file = written(tmp_path / "out.jsonl", [theirs[other](key) for key in keys])
        named = {"openai": "OpenAI's", "anthropic": "Anthropic's", "gemini": "Gemini's"}[other]
        with pytest.raises(Problem, match=named) as told:
            import_batch([file], store, tmp_path / "b")
        assert f"written for {FORMS[family].vendor}" in str(told.value)
        assert store.among(keys) == set()


def test_the_file_to_hand_in_is_no_result(family: str, tmp_path: Path) -> None:
    with Store() as store:
        export_batch(study(family), tmp_path / "b", store)
        file = written(tmp_path / "same.jsonl", rows_of(tmp_path / "b"))
        with pytest.raises(Problem, match="is a request, not a result"):
            import_batch([file], store, tmp_path / "b")


ENDS = [
    ({"type": "errored", "error": {"type": "error", "error": {"message": "too long"}}}, "too long"),
    ({"type": "errored", "error": {"type": "api_error", "message": "oh no"}}, "oh no"),
    ({"type": "expired"}, "expired before its turn"),
    ({"type": "canceled"}, "canceled before it was asked"),
    ({"type": "succeeded"}, "no message"),
    ("torn", "no message"),
]


@pytest.mark.parametrize(("result", "said"), ENDS, ids=str)
def test_what_anthropic_did_not_answer_is_an_error_and_not_kept(
    result: Any, said: str, tmp_path: Path
) -> None:
    with Store() as store:
        export_batch(study("anthropic"), tmp_path / "b", store)
        key = next(iter(read_batch(tmp_path / "b")))
        written(tmp_path / "b" / "out.jsonl", [{"custom_id": key, "result": result}])
        found = import_batch([tmp_path / "b"], store)
        assert said in found.errors[0]
        assert (found.n_new, found.n_left) == (0, 10)


def test_what_gemini_did_not_answer_is_an_error_and_not_kept(tmp_path: Path) -> None:
    with Store() as store:
        export_batch(study("gemini"), tmp_path / "b", store)
        keys = list(read_batch(tmp_path / "b"))
        error = {"key": keys[0], "error": {"code": 13, "message": "internal"}}
        written(tmp_path / "b" / "out.jsonl", [error, {"key": keys[1], "response": {}}])
        found = import_batch([tmp_path / "b"], store)
        assert len(found.errors) == 2
        assert "internal" in found.errors[0]


def test_a_manifest_of_an_older_version_is_read_as_openais(tmp_path: Path) -> None:
    with Store() as store:
        export_batch(study("openai"), tmp_path / "b", store)
        rows = [answered("openai", row) for row in rows_of(tmp_path / "b")]
        manifest = json.loads((tmp_path / "b" / MANIFEST).read_text())
        for file in manifest["files"]:
            del file["form"]
        (tmp_path / "b" / MANIFEST).write_text(json.dumps(manifest))
        written(tmp_path / "b" / "out.jsonl", rows)
        assert import_batch([tmp_path / "b"], store).n_new == 10


def test_a_form_that_nobody_knows_is_named(tmp_path: Path) -> None:
    with Store() as store:
        export_batch(study("openai"), tmp_path / "b", store)
    manifest = json.loads((tmp_path / "b" / MANIFEST).read_text())
    manifest["files"][0]["form"] = "acme"
    (tmp_path / "b" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(Problem, match="no batch format 'acme'"):
        forms_in(tmp_path / "b")


def test_two_vendors_in_one_batch_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    content = study("openai").model_dump(exclude_defaults=True)
    both = read_study({**content, "models": [MODELS["openai"], MODELS["anthropic"]]})
    with Store() as store:
        export_batch(both, tmp_path / "b", store)
        assert {file.form for file in batch_files(tmp_path / "b")} == {"openai", "anthropic"}
        known, forms = read_batch(tmp_path / "b"), forms_in(tmp_path / "b")
        claude = [key for key, one in known.items() if one.model.startswith("anthropic")]
        body = {"choices": [{"message": {"content": "1"}, "finish_reason": "stop"}]}
        wrong = {"custom_id": claude[0], "response": {"status_code": 200, "body": body}}
        found = read_results([written(tmp_path / "o.jsonl", [wrong])], known, forms)
    assert found.replies == {}
    assert "no message" in found.errors[claude[0]]
