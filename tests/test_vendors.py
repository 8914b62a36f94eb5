"""Every vendor family against a local server that refuses what the vendor refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flipmeter as fm
import strict_vendors
from conftest import Cli
from flipmeter.ask.names import params_for
from flipmeter.ask.vendor_wires import AnthropicWire, GeminiWire
from flipmeter.ask.wires import ResponsesWire
from flipmeter.types import Decoding, Message, Model, Request, Script
from strict_vendors import Vendor, vendor

FAMILIES = {
    "openai/gpt-4o": ("OPENAI", "sk-openai-test-key", "/v1"),
    "azure/gpt-4o": ("AZURE", "azure-test-key", "/openai/v1"),
    "anthropic/claude-sonnet-4-5": ("ANTHROPIC", "sk-ant-test-key", "/v1"),
    "anthropic/claude-opus-4-8": ("ANTHROPIC", "sk-ant-test-key", "/v1"),
    "gemini/gemini-2.0-flash": ("GEMINI", "gemini-test-key", "/v1beta"),
    "mistral/mistral-small-latest": ("MISTRAL", "mistral-test-key", "/v1"),
    "groq/llama-3.3-70b": ("GROQ", "groq-test-key", "/openai/v1"),
    "together/meta-llama/Llama-3.3-70B": ("TOGETHER", "together-test-key", "/v1"),
}


@pytest.fixture(params=FAMILIES, ids=str)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(model: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    name, key, path = FAMILIES[model]
    with vendor(getattr(strict_vendors, name.lower())) as found:
        monkeypatch.setenv(f"{name}_API_KEY", key)
        monkeypatch.setenv(f"{name}_BASE_URL", found.url + path)
        yield found


def study(model: Any, **keys: Any) -> fm.Study:
    usual: dict[str, Any] = {
        "models": [model],
        "datasets": ["reviews"],
        "test_size": 5,
        "probes": ["label_order"],
        "repeats": 1,
        "base": {"shots": 1},
    }
    return fm.Study(**usual | keys)


def ran(made: fm.Study, folder: Path) -> fm.Run:
    return made.run(folder / "run", store=folder / "r.sqlite", is_quiet=True)


def test_a_vendor_takes_every_request_and_its_replies_are_read(
    server: Vendor, model: str, tmp_path: Path
) -> None:
    run = ran(study(model), tmp_path)
    assert set(server.statuses) == {200}
    assert set(run.decisions["fault"]) == {""}
    assert run.calls["prompt_tokens"].min() is not None
    assert set(run.calls["completion_tokens"]) == {1}


def test_a_vendor_takes_every_setting_of_a_study(
    server: Vendor, model: str, tmp_path: Path
) -> None:
    decoding = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop": ["\n\n"], "max_tokens": 40}
    run = ran(study(model, decoding=decoding), tmp_path)
    assert set(run.decisions["fault"]) == {""}
    if not model.startswith(("openai/", "azure/")):  # a server behind their addresses may take all
        assert set(server.statuses) == {200}


def test_every_vendor_can_be_examined(server: Vendor, model: str, cli: Cli) -> None:
    code, out, said = cli("try", model, "--json")
    assert (code, said) == (0, "")
    assert set(json.loads(out)["capabilities"]) >= {"completions", "logprobs", "seed"}


def test_a_wrong_key_is_said_with_the_variable(
    server: Vendor, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"{FAMILIES[model][0]}_API_KEY"
    monkeypatch.setenv(variable, "not-the-right-key")
    with pytest.raises(fm.Problem, match=f"the variable {variable} is set but not accepted"):
        ran(study(model), tmp_path)


def test_a_vendors_key_goes_to_no_host_that_a_study_names(
    server: Vendor, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, path = FAMILIES[model]
    monkeypatch.delenv(f"{name}_BASE_URL")
    with pytest.raises(fm.Problem, match=f"{name}_API_KEY"):
        ran(study({"model": model, "base_url": server.url + path}), tmp_path)
    assert server.bodies == []


SCORED = {
    "openai/gpt-4o": True,
    "together/meta-llama/Llama-3.3-70B": True,
    "gemini/gemini-2.0-flash": True,
    "mistral/mistral-small-latest": True,
    "anthropic/claude-sonnet-4-5": False,
    "groq/llama-3.3-70b": False,
}


@pytest.mark.parametrize("model", SCORED, ids=str)
def test_log_probabilities_are_read_where_a_vendor_shows_them(
    server: Vendor, model: str, tmp_path: Path
) -> None:
    run = ran(study(model, scores=True), tmp_path)
    assert set(server.statuses) == {200}
    found = run.decisions["probabilities"].to_list()
    assert all((one is not None) == SCORED[model] for one in found)
    if not SCORED[model]:
        notes = run.environment["fallbacks"][model]
        assert any("log-probabilities are not asked for" in note for note in notes)


# Messages


def request_of(model: Model, *messages: Message, anchor: int = 0, **decoding: Any) -> Request:
    return Request(
        model.address, Script.of(messages, anchor), params_for(model, Decoding(**decoding), 0)
    )


@pytest.mark.parametrize(
    ("name", "extra", "expected"),
    [
        (
            "claude-sonnet-4-5",
            {"reasoning": {"max_tokens": 2000}},
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2032},
        ),
        (
            "claude-opus-4-8",
            {"reasoning_effort": "high"},
            {
                "thinking": {"type": "adaptive"},
                "output_config": {"effort": "high"},
                "max_tokens": 4128,
            },
        ),
        (
            "claude-opus-5",
            {"reasoning_effort": "none"},
            {"thinking": {"type": "disabled"}, "max_tokens": 32},
        ),
    ],
)
def test_reasoning_is_thinking_for_anthropic(
    name: str, extra: dict[str, Any], expected: dict[str, Any]
) -> None:
    told = json.loads(params_for(Model(f"anthropic/{name}", extra=extra), Decoding(), 0))
    assert told == {"interface": "chat", **expected}


def test_thinking_is_not_read_as_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with vendor(strict_vendors.anthropic) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", f"{server.url}/v1")
        entry = {
            "model": "anthropic/claude-sonnet-4-5",
            "extra_body": {"reasoning": {"max_tokens": 1024}},
        }
        run = ran(study(entry), tmp_path)
    assert set(server.statuses) == {200}
    assert set(run.decisions["fault"]) == {""}
    assert set(run.calls["reasoning_tokens"]) == {2}
    assert not any(reply.startswith("[9]") for reply in run.calls["reply"])


@pytest.mark.parametrize(
    ("name", "version", "has_temperature"),
    [
        ("claude-3-5-haiku-20241022", "2023-06-01", True),
        ("claude-sonnet-4-5-20250929", "2023-06-01", True),
        ("claude-opus-4-6", "2023-06-01", True),
        ("claude-opus-4-7", "2026-10-21", False),
        ("claude-sonnet-5", "2026-10-21", False),
        ("claude-fable-5", "2026-10-21", False),
    ],
)
def test_the_version_of_anthropics_api_is_the_one_that_takes_the_fields(
    name: str, version: str, has_temperature: bool
) -> None:
    params = params_for(Model(f"anthropic/{name}"), Decoding(), 0)
    assert AnthropicWire().headers(params) == {"anthropic-version": version}
    assert ("temperature" in json.loads(params)) is has_temperature


def test_a_gemini_body_has_its_own_names_for_everything() -> None:
    model = Model("gemini/gemini-2.5-flash", extra={"reasoning": {"max_tokens": 500}})
    prompt = Message("system", "Rate."), Message("user", "This one?")
    asked = request_of(model, *prompt, top_p=0.5, stop=("\n",))
    body = json.loads(GeminiWire().body("gemini-2.5-flash", asked))
    assert body == {
        "systemInstruction": {"parts": [{"text": "Rate."}]},
        "contents": [{"role": "user", "parts": [{"text": "This one?"}]}],
        "generationConfig": {
            "maxOutputTokens": 532,
            "temperature": 0.0,
            "topP": 0.5,
            "stopSequences": ["\n"],
            "thinkingConfig": {"thinkingBudget": 500},
        },
    }


@pytest.mark.parametrize(
    ("answer", "text", "finish"),
    [
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "", "content_filter"),
        ({"candidates": [{"finishReason": "SAFETY"}]}, "", "content_filter"),
        ({"candidates": [{"finishReason": "MAX_TOKENS", "content": {}}]}, "", "length"),
        (
            {
                "candidates": [
                    {
                        "finishReason": "STOP",
                        "content": {"parts": [{"text": "so", "thought": True}, {"text": "2"}]},
                    }
                ]
            },
            "2",
            "stop",
        ),
    ],
)
def test_a_gemini_answer_is_read(answer: dict[str, Any], text: str, finish: str) -> None:
    assert GeminiWire().flaw(answer) == ""
    reply = GeminiWire().reply(answer, 0.0)
    assert (reply.text, reply.finish) == (text, finish)


CLAUDE, GEMINI, RESPONSES = AnthropicWire(), GeminiWire(), ResponsesWire()
PARTS = {"content": {"parts": [{"text": "1"}]}, "finishReason": "STOP"}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "1"}]}
READ: list[tuple[Any, dict[str, Any]]] = [
    (CLAUDE, {"content": []}),
    (CLAUDE, {"content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "1"}]}),
    (GEMINI, {"candidates": [PARTS]}),
    (GEMINI, {"candidates": [{"finishReason": "SAFETY"}]}),
    (GEMINI, {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}),
    (GEMINI, {"promptFeedback": {"blockReason": "SAFETY"}}),
    (RESPONSES, {"output": [{"type": "reasoning", "summary": []}, MESSAGE]}),
    (RESPONSES, {"output": [{**MESSAGE, "content": [{"type": "refusal", "refusal": "no"}]}]}),
]
SPOILED: list[tuple[Any, dict[str, Any]]] = [
    (CLAUDE, {}),
    (CLAUDE, {"content": "1"}),
    (CLAUDE, {"content": ["1"]}),
    (CLAUDE, {"content": [{"type": 7, "text": "1"}]}),
    (CLAUDE, {"content": [{"type": "text", "text": 1}]}),
    (CLAUDE, {"content": [{"type": "text"}]}),
    (GEMINI, {"candidates": [7]}),
    (GEMINI, {"candidates": [{"content": "1"}]}),
    (GEMINI, {"candidates": [{"content": {"parts": "1"}}]}),
    (GEMINI, {"candidates": [{"content": {"parts": [{"text": 1}]}}]}),
    (GEMINI, {"candidates": [{"index": 0}]}),
    (RESPONSES, {"output": ["1"]}),
    (RESPONSES, {"output": [{"type": "message", "content": "1"}]}),
    (RESPONSES, {"output": [{"type": "message", "content": [{"type": "output_text"}]}]}),
]


def test_a_first_token_that_cannot_be_read_shows_no_alternatives() -> None:
    top = {"candidates": [{"token": "1", "logProbability": -0.1}]}
    shown = {"chosenCandidates": [{"token": None, "logProbability": -0.1}], "topCandidates": [top]}
    assert GEMINI.n_alternatives({"candidates": [{"logprobsResult": shown}]}) is None


def title(one: object) -> str:
    """An answer as it is, a wire by its kind: the address of an object differs by process."""
    return str(one)[:60] if isinstance(one, dict) else type(one).__name__


@pytest.mark.parametrize(("wire", "answer"), READ, ids=title)
def test_an_answer_that_says_little_is_read(wire: Any, answer: dict[str, Any]) -> None:
    assert wire.flaw(answer) == ""
    wire.reply(answer, 0.0)


@pytest.mark.parametrize(("wire", "answer"), SPOILED, ids=title)
def test_an_answer_that_cannot_be_read_is_asked_for_again(
    wire: Any, answer: dict[str, Any]
) -> None:
    trouble = wire.trouble(200, answer, json.dumps(answer).encode())
    assert trouble is not None
    assert trouble.status == 200  # which may pass, and is not stored


def test_tokens_of_anthropics_cache_are_tokens_of_the_prompt() -> None:
    answer = {
        "content": [{"type": "text", "text": "2"}],
        "stop_reason": "max_tokens",
        "usage": {
            "input_tokens": 5,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "output_tokens": 7,
        },
    }
    reply = AnthropicWire().reply(answer, 0.0)
    assert (reply.usage.prompt, reply.usage.cached, reply.usage.completion) == (125, 100, 7)
    assert reply.finish == "length"


def test_an_interface_that_a_vendor_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(fm.Problem, match="has no interface 'responses'; known: chat"):
        params_for(Model("anthropic/claude-opus-5", interface="responses"), Decoding(), 0)


def test_azure_has_no_address_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_API_KEY", "azure-test-key")
    monkeypatch.delenv("AZURE_BASE_URL", raising=False)
    with pytest.raises(fm.Problem, match="set base_url in the study or AZURE_BASE_URL"):
        ran(study("azure/gpt-4o"), tmp_path)


def test_litellm_is_asked_through_its_proxy() -> None:
    with pytest.raises(fm.Problem, match="http/openai/gpt-4o with its base_url"):
        params_for(Model("litellm/openai/gpt-4o"), Decoding(), 0)
