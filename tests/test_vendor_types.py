"""Bodies and answers of every vendor family, validated by the types of the vendor's own SDK.

`make test-vendors` runs this in an environment that has the SDKs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

import strict_vendors
from flipmeter.ask.store import Store
from flipmeter.run.batch import export_batch
from strict_vendors import Vendor, vendor
from test_vendors import FAMILIES, ran, study

claude = pytest.importorskip("anthropic.types")
gemini = pytest.importorskip("google.genai.types")
groq = pytest.importorskip("groq.types.chat")
mistral = pytest.importorskip("mistralai.client.models")
openai = pytest.importorskip("openai.types")
together = pytest.importorskip("together.types.chat")

CHAT_PART = openai.chat.ChatCompletionContentPartTextParam
RESPONSE_PART = openai.responses.ResponseInputTextParam
OLD_SAMPLING = {"temperature", "top_p", "top_k"}
"""Version 2023-06-01 of Anthropic's API takes them; its SDK has no type for them since 1.0."""
BUDGET = {"extra_body": {"reasoning": {"max_tokens": 2000}}}
EFFORT = {"extra_body": {"reasoning_effort": "low"}}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((model, {}) for model in FAMILIES),
    ("openai/gpt-5.4", EFFORT),
    ("openai/gpt-5.4", {"interface": "responses", **EFFORT}),
    ("azure/gpt-5.4", {"interface": "responses", **EFFORT}),
    ("anthropic/claude-sonnet-4-5", BUDGET),
    ("anthropic/claude-opus-4-8", EFFORT),
    ("gemini/gemini-2.5-flash", BUDGET),
    ("gemini/gemini-3-pro", EFFORT),
]
EVERY_SETTING = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop": ["\n\n"], "max_tokens": 40}


def must_be(kind: Any, value: Any) -> None:
    """Require that a value is of a type and has nothing that the type does not know."""
    adapter = TypeAdapter(kind)
    kept = adapter.dump_json(adapter.validate_python(value), by_alias=True, exclude_unset=True)
    assert json.loads(kept) == value


def can_be(kind: Any, value: Any) -> None:
    """Require that an SDK reads a value as a type; it may know less than the value says."""
    TypeAdapter(kind).validate_python(value)


def without_parts(messages: list[dict[str, Any]], kind: Any) -> list[dict[str, Any]]:
    """Messages with one text each; parts are checked one by one, since types read them lazily."""
    plain = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            for part in content:
                must_be(kind, part)
            content = "".join(part["text"] for part in content)
        plain.append({**message, "content": content})
    return plain


def openai_body(body: dict[str, Any]) -> None:
    if "input" in body:
        body = {**body, "input": without_parts(body["input"], RESPONSE_PART)}
    elif "messages" in body:
        body = {**body, "messages": without_parts(body["messages"], CHAT_PART)}
    if "input" in body:
        return must_be(openai.responses.response_create_params.ResponseCreateParamsBase, body)
    return must_be(openai.chat.completion_create_params.CompletionCreateParamsBase, body)


def openai_answer(answer: dict[str, Any]) -> None:
    is_response = answer["object"] == "response"
    can_be(openai.responses.Response if is_response else openai.chat.ChatCompletion, answer)


def anthropic_body(body: dict[str, Any]) -> None:
    told = {name: value for name, value in body.items() if name not in OLD_SAMPLING}
    must_be(claude.message_create_params.MessageCreateParamsBase, told)


def gemini_body(body: dict[str, Any]) -> None:
    parts = {"generationConfig": gemini.GenerationConfig, "systemInstruction": gemini.Content}
    for name, value in body.items():
        for one in value if name == "contents" else [value]:
            must_be(gemini.Content if name == "contents" else parts[name], one)


def together_answer(answer: dict[str, Any]) -> None:
    can_be(together.ChatCompletion, {**answer, "prompt": []})


Check = Callable[[dict[str, Any]], None]
BODIES: dict[str, Check] = {
    "openai": openai_body,
    "azure": openai_body,
    "anthropic": anthropic_body,
    "gemini": gemini_body,
    "mistral": lambda body: must_be(mistral.ChatCompletionRequest, body),
    "groq": lambda body: must_be(groq.completion_create_params.CompletionCreateParams, body),
    "together": lambda body: must_be(
        together.completion_create_params.CompletionCreateParamsBase, body
    ),
}
ANSWERS: dict[str, Check] = {
    "openai": openai_answer,
    "azure": openai_answer,
    "anthropic": lambda answer: can_be(claude.Message, answer),
    "gemini": lambda answer: can_be(gemini.GenerateContentResponse, answer),
    "mistral": lambda answer: can_be(mistral.ChatCompletionResponse, answer),
    "groq": lambda answer: can_be(groq.ChatCompletion, answer),
    "together": together_answer,
}


BATCH_ANSWERS: dict[str, dict[str, Any]] = {
    "openai": {
        "POST /v1/files": openai.FileObject,
        r"POST /v1/batches|GET /v1/batches/\S+": openai.Batch,
        r"GET /v1/files/\S+/content": dict[str, Any],  # the SDK has no type for a line
    },
    "anthropic": {
        r"GET \S+/results": claude.messages.MessageBatchIndividualResponse,
        r"POST /v1/messages/batches|GET /v1/messages/batches/\S+": claude.messages.MessageBatch,
    },
}


def asked(
    model: str, entry: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch, **keys: Any
) -> Vendor:
    """A vendor's server that was asked by a study."""
    family = model.partition("/")[0]
    _, key, path = next(one for name, one in FAMILIES.items() if name.startswith(family))
    with vendor(getattr(strict_vendors, family)) as server:
        patch.setenv(f"{family.upper()}_API_KEY", key)
        patch.setenv(f"{family.upper()}_BASE_URL", server.url + path)
        ran(study({"model": model, **entry}, **keys), folder)
    assert server.taken
    return server


@pytest.mark.parametrize("keys", [{}, {"decoding": EVERY_SETTING}, {"scores": True}], ids=str)
@pytest.mark.parametrize(("model", "entry"), CASES, ids=str)
def test_a_vendors_sdk_knows_every_field_that_is_sent_and_reads_what_is_answered(
    model: str,
    entry: dict[str, Any],
    keys: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = asked(model, entry, tmp_path, monkeypatch, **keys)
    family = model.partition("/")[0]
    for body in server.taken:
        BODIES[family](body)
    for answer, status in zip(server.answers, server.statuses, strict=True):
        if status == 200:
            ANSWERS[family](answer)


# Marks for prefix caches

MARKED = {
    "anthropic/claude-sonnet-4-5": "cache_control",
    "openai/gpt-4o": "prompt_cache_key",
    "openai/gpt-5.6": "prompt_cache_breakpoint",
    "azure/gpt-5.6": "prompt_cache_breakpoint",
}


@pytest.mark.parametrize(
    ("model", "interface"),
    [
        *((model, "chat") for model in MARKED),
        *((model, "responses") for model in MARKED if not model.startswith("anthropic")),
    ],
)
def test_a_vendors_sdk_knows_the_marks_for_its_prefix_cache(
    model: str, interface: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = model.partition("/")[0]
    head = "A review tells of a book, and a number of how it was liked. " * 200
    prompt = tmp_path / "long.txt"
    prompt.write_text(f"{head}\nAnswer with one of [{{{{ labels }}}}].\n{{{{ text }}}}")
    long = {"base": {"prompt": str(prompt)}}
    server = asked(model, {"interface": interface}, tmp_path, monkeypatch, **long)
    assert set(server.statuses) == {200}
    for body in server.taken:
        BODIES[family](body)
        assert MARKED[model] in json.dumps(body)


# Batches


@pytest.mark.parametrize("model", [name for name in FAMILIES if not name.startswith("azure")])
def test_a_vendors_sdk_knows_the_lines_of_its_batch_files(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = model.partition("/")[0]
    monkeypatch.setenv(f"{family.upper()}_API_KEY", "a-key-that-goes-nowhere")
    with Store() as store:
        (file,) = export_batch(study(model), tmp_path / "b", store).files
    text = (tmp_path / "b" / file.name).read_text()
    if family == "anthropic":
        content = json.loads(text)
        for row in content["requests"]:
            anthropic_body(row["params"])
            row["params"] = {k: v for k, v in row["params"].items() if k not in OLD_SAMPLING}
            must_be(claude.messages.batch_create_params.Request, row)
        return can_be(claude.messages.batch_create_params.BatchCreateParams, content)
    for row in map(json.loads, text.splitlines()):
        BODIES[family](row["request" if family == "gemini" else "body"])
        if family == "mistral":
            must_be(mistral.BatchRequest, row)
    return None


FOREIGN: dict[str, dict[str, Any]] = {
    "openai": {"random_seed": 1},
    "azure": {"top_k": 3},
    "anthropic": {"max_completion_tokens": 5},
    "gemini": {"max_tokens": 5},
    "mistral": {"seed": 1},
    "groq": {"random_seed": 1},
    "together": {"logprobs": "all"},
}


@pytest.mark.parametrize("model", [*FAMILIES], ids=str)
def test_a_field_of_another_vendor_is_found(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = model.partition("/")[0]
    body = asked(model, {}, tmp_path, monkeypatch).taken[0]
    with pytest.raises((AssertionError, ValidationError, KeyError)):
        BODIES[family]({**body, **FOREIGN[family]})
