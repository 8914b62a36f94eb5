"""Models that want other fields than OpenAI's first API had: by their names, and by their words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import flipmeter as fm
from conftest import Cli
from flipmeter.ask.dialect import corrected, correction_in, with_correction
from flipmeter.ask.names import identity_of, params_for
from flipmeter.ask.response import Trouble
from flipmeter.ask.store import Store
from flipmeter.ask.wires import ChatWire
from flipmeter.types import Decoding, Model
from strict_vendors import Answer, Vendor, chat, openai, openai_error, vendor

KEY = "sk-openai-test-key"


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    with vendor(openai) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


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


def sent(model: str, decoding: Decoding | None = None, **settings: Any) -> dict[str, Any]:
    """The fields of a body for a model, with the interface."""
    told: dict[str, Any] = json.loads(
        params_for(Model(model, **settings), decoding or Decoding(), 0)
    )
    return told


# By name


def test_the_first_model_of_the_readme_can_be_asked(endpoint: Vendor, tmp_path: Path) -> None:
    run = study("openai/gpt-5.4").run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    assert set(run.decisions["fault"]) == {""}
    assert set(endpoint.statuses) == {200}
    assert all("temperature" not in body and "max_tokens" not in body for body in endpoint.bodies)
    assert {body["max_completion_tokens"] for body in endpoint.bodies} == {32}


@pytest.mark.parametrize(
    "model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "gpt-3.5-turbo", "ft:gpt-4o:acme"]
)
def test_a_model_that_takes_the_usual_fields_gets_them(model: str) -> None:
    usual = {"interface": "chat", "max_tokens": 32, "temperature": 0.0}
    assert sent(f"openai/{model}") == usual == sent(f"openrouter/openai/{model}")


@pytest.mark.parametrize(
    "model", ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5-nano", "gpt-5.2-pro"]
)
def test_a_model_that_always_reasons_has_room_for_it_and_no_temperature(model: str) -> None:
    decoding = Decoding(temperature=0.7, top_p=0.9, stop=("\n",), max_tokens=20)
    assert sent(f"openai/{model}", decoding) == {
        "interface": "chat",
        "max_completion_tokens": 20 + 4096,
    }


def test_the_limit_of_a_model_entry_is_sent_as_it_is() -> None:
    assert sent("openai/o3", max_tokens=9000)["max_completion_tokens"] == 9000


@pytest.mark.parametrize("model", ["gpt-5.1", "gpt-5.4", "gpt-5.4-mini", "gpt-6"])
def test_a_model_that_is_told_not_to_reason_takes_a_temperature(model: str) -> None:
    quiet = {"reasoning_effort": "none"}
    assert sent(f"openai/{model}", extra=quiet)["temperature"] == 0.0
    assert "temperature" not in sent(f"openai/{model}")
    assert "temperature" not in sent(f"openai/{model}", extra={"reasoning_effort": "low"})


def test_an_effort_makes_room_for_reasoning() -> None:
    spoken = sent("openai/gpt-5.4", extra={"reasoning_effort": "high"})
    assert spoken["max_completion_tokens"] == 32 + 4096
    assert spoken["reasoning_effort"] == "high"


@pytest.mark.parametrize(("model", "is_told"), [("openai/gpt-5.4", True), ("openai/o3", False)])
def test_only_a_model_that_may_be_quiet_is_said_to_take_log_probabilities(
    endpoint: Vendor, model: str, is_told: bool, tmp_path: Path
) -> None:
    made = study(model, scores=True)
    run = made.run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    (note,) = [one for one in run.environment["fallbacks"][model] if "log-prob" in one]
    assert ("`reasoning_effort: none`" in note) == is_told


def test_null_leaves_a_field_out() -> None:
    spoken = sent("http/any", base_url="http://127.0.0.1", extra={"temperature": None, "x": None})
    assert spoken == {"interface": "chat", "max_tokens": 32}


def test_what_is_not_sent_is_said_under_the_tables(endpoint: Vendor, tmp_path: Path) -> None:
    run = study("openai/gpt-5.4").run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    assert run.environment["fallbacks"]["openai/gpt-5.4"] == [
        "temperature is not sent: 'gpt-5.4' refuses it unless it is set not to reason "
        "(`reasoning_effort: none`)"
    ]


# The Responses API


def test_the_responses_interface_is_asked_in_its_own_words(
    endpoint: Vendor, tmp_path: Path
) -> None:
    model = {
        "model": "openai/gpt-5.4",
        "interface": "responses",
        "extra_body": {"reasoning_effort": "low"},
    }
    run = study(model).run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    assert set(endpoint.paths) <= {"/v1/responses"}
    body = endpoint.taken[-1]
    assert body["max_output_tokens"] == 32 + 4096
    assert body["reasoning"] == {"effort": "low"}
    assert body["store"] is False
    assert [turn["role"] for turn in body["input"]] == ["user"]
    assert set(run.decisions["fault"]) == {""}
    assert run.calls["reasoning_tokens"].to_list() == [2] * run.calls.height


def test_the_responses_interface_shows_log_probabilities_where_a_model_does_not_reason(
    endpoint: Vendor, tmp_path: Path
) -> None:
    model = {
        "model": "openai/gpt-5.4",
        "interface": "responses",
        "extra_body": {"reasoning_effort": "none"},
    }
    run = study(model, scores=True).run(
        tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True
    )
    first = run.decisions["probabilities"].to_list()[0]
    assert first is not None
    assert max(first) > 0.9
    assert endpoint.taken[-1]["include"] == ["message.output_text.logprobs"]


def test_a_short_limit_is_raised_to_what_the_responses_interface_takes() -> None:
    model = Model("openai/gpt-4o", interface="responses")
    assert json.loads(params_for(model, Decoding(max_tokens=5), 0))["max_output_tokens"] == 16


# By the words of the endpoint


def proxy(path: str, headers: Any, body: dict[str, Any]) -> Answer:
    """A server with a model of a name that says nothing, which refuses what gpt-5 refuses."""
    status, said = openai(path, {"authorization": f"Bearer {KEY}"}, body | {"model": "gpt-5.4"})
    return status, said


@pytest.fixture
def unknown() -> Iterator[Vendor]:
    with vendor(proxy) as server:
        yield server


def test_a_refused_body_is_corrected_in_the_endpoints_own_words(
    unknown: Vendor, tmp_path: Path
) -> None:
    model = {"model": "http/house-model", "base_url": f"{unknown.url}/v1", "concurrency": 1}
    store = tmp_path / "r.sqlite"
    run = study(model).run(tmp_path / "run", store=store, is_quiet=True)
    assert unknown.statuses[:3] == [400, 400, 200]
    assert set(unknown.statuses[3:]) == {200}
    assert unknown.taken[0]["max_completion_tokens"] == 32
    assert run.environment["fallbacks"]["http/house-model"] == [
        "max_tokens is sent as max_completion_tokens; temperature is not sent: the endpoint said so"
    ]


def test_what_was_learned_is_in_the_keys_and_asked_for_no_more(
    unknown: Vendor, tmp_path: Path
) -> None:
    model = {"model": "http/house-model", "base_url": f"{unknown.url}/v1", "concurrency": 1}
    store = tmp_path / "r.sqlite"
    first = study(model).run(tmp_path / "first", store=store, is_quiet=True)
    n_asked = len(unknown.bodies)
    preview = study(model).plan(store=store, is_offline=True)
    assert (preview.cost.distinct, preview.cost.stored) == (10, 10)
    again = study(model).run(tmp_path / "again", store=store, is_quiet=True)
    assert len(unknown.bodies) == n_asked
    assert again.calls["key"].to_list() == first.calls["key"].to_list()
    with Store(store) as replies:
        texts = [text for (text,) in replies.read("SELECT text FROM texts")]
    spoken = [text for text in texts if "max_completion_tokens" in text]
    assert len(spoken) == 1
    assert "temperature" not in spoken[0]
    assert not any('max_tokens\\":' in text for text in texts)


def test_keys_of_an_endpoint_that_refuses_nothing_stay_as_they_are(
    endpoint: Vendor, tmp_path: Path
) -> None:
    run = study("openai/gpt-4o").run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    assert endpoint.taken[0] == {
        "model": "gpt-4o",
        "max_tokens": 32,
        "temperature": 0.0,
        "messages": endpoint.taken[0]["messages"],
    }
    assert not run.environment["fallbacks"]


def test_examine_learns_the_dialect_and_a_run_uses_it(
    unknown: Vendor, tmp_path: Path, cli: Cli
) -> None:
    model = {"model": "http/house-model", "base_url": f"{unknown.url}/v1", "concurrency": 1}
    code, out, _ = cli("try", "http/house-model", "--base-url", f"{unknown.url}/v1", "--json")
    assert code == 0
    assert json.loads(out)["capabilities"]["dialect"]["how"] == (
        "max_tokens is sent as max_completion_tokens; temperature is not sent"
    )
    n_asked = len(unknown.bodies)
    study(model).run(tmp_path / "run", store=".flipmeter/replies.sqlite", is_quiet=True)
    assert set(unknown.statuses[n_asked:]) == {200}


def test_a_complaint_about_something_else_is_the_users_to_repair(tmp_path: Path) -> None:
    def refusing(path: str, headers: Any, body: dict[str, Any]) -> Answer:
        return openai_error("Invalid value for 'messages': unsupported content", "messages", None)

    with vendor(refusing) as server:
        model = {"model": "http/house-model", "base_url": f"{server.url}/v1", "concurrency": 1}
        with pytest.raises(fm.Problem, match="refused the first 3 requests"):
            study(model).run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
        assert len(server.bodies) == 3


def test_a_field_of_the_study_itself_is_not_taken_out(tmp_path: Path) -> None:
    def refusing(path: str, headers: Any, body: dict[str, Any]) -> Answer:
        return openai_error("Unknown parameter: 'provider'.", "provider", "unknown_parameter")

    with vendor(refusing) as server:
        model = {
            "model": "http/house-model",
            "base_url": f"{server.url}/v1",
            "extra_body": {"provider": {"order": ["acme"]}},
        }
        with pytest.raises(fm.Problem, match="Unknown parameter: 'provider'"):
            study(model).run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)


def test_what_one_setting_taught_is_not_held_against_another(tmp_path: Path) -> None:
    """A model that takes a temperature only where it does not reason, asked in both ways."""

    def by_effort(path: str, headers: Any, body: dict[str, Any]) -> Answer:
        if body["reasoning_effort"] != "none" and "temperature" in body:
            return openai_error("'temperature' is not supported", "temperature", None)
        return 200, chat(body)

    with vendor(by_effort) as server:
        models = [
            {
                "model": "http/house-model",
                "name": effort,
                "base_url": f"{server.url}/v1",
                "extra_body": {"reasoning_effort": effort},
            }
            for effort in ("low", "none")
        ]
        store = tmp_path / "r.sqlite"
        study(models[0], models=models).run(tmp_path / "run", store=store, is_quiet=True)
        quiet = [body for body in server.taken if body["reasoning_effort"] == "none"]
        assert sum("temperature" in body for body in quiet) == 10
        n_asked = len(server.bodies)
        study(models[0], models=models).run(tmp_path / "again", store=store, is_quiet=True)
        assert len(server.bodies) == n_asked


def test_an_endpoint_that_sends_a_field_back_and_forth_is_not_asked_forever(
    tmp_path: Path,
) -> None:
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}

    def refusing(path: str, headers: Any, body: dict[str, Any]) -> Answer:
        (name,) = body.keys() & other.keys()
        status = 400 if len(server.bodies) < 50 else 500
        return openai_error(f"'{name}' is not supported; use '{other[name]}' instead", name, None,
                            status)  # fmt: skip

    with vendor(refusing) as server:
        model = {"model": "http/house-model", "base_url": f"{server.url}/v1", "concurrency": 1}
        with pytest.raises(fm.Problem, match="refused the first 3 requests"):
            study(model).run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
        assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        (("temperature", None), {"max_tokens": "max_completion_tokens", "temperature": None}),
        (("max_completion_tokens", "max_output_tokens"), {"max_tokens": "max_output_tokens"}),
        (("max_completion_tokens", "max_tokens"), {"max_tokens": "max_completion_tokens"}),
        (("max_tokens", "limit"), {"max_tokens": "max_completion_tokens"}),
    ],
)
def test_corrections_follow_a_field_through_its_names(correction: Any, expected: Any) -> None:
    known = (("max_tokens", "max_completion_tokens"),)
    assert dict(with_correction(known, correction)) == expected


BODY = {"max_tokens": 5, "temperature": 0.0, "top_k": 3, "seed": 1, "interface": "chat"}


@pytest.mark.parametrize(
    ("message", "param", "expected"),
    [
        ("Unsupported parameter: 'max_tokens' is not supported with this model. Use "
         "'max_completion_tokens' instead.", "max_tokens", ("max_tokens", "max_completion_tokens")),
        ("Unsupported value: 'temperature' does not support 0 with this model. Only the default (1)"
         " value is supported.", "temperature", ("temperature", None)),
        ("`temperature` is deprecated for this model.", "", ("temperature", None)),
        ("temperature: Extra inputs are not permitted", "", ("temperature", None)),
        ("property 'top_k' is unsupported", "", ("top_k", None)),
        ("Extra inputs are not permitted", "seed", ("seed", None)),
        ("Unrecognized request argument supplied: top_k", "", ("top_k", None)),
        ("temperature must be at most 2", "temperature", None),
        ("The temperature outside is not supported by our cooling", "", ("temperature", None)),
        ("max_tokens is too large: not supported", "max_tokens", None),
        ("model not supported", "", None),
    ],
)  # fmt: skip
def test_a_complaint_names_the_field(message: str, param: str, expected: Any) -> None:
    assert correction_in(Trouble(400, message, param=param), BODY) == expected
    assert correction_in(Trouble(500, message, param=param), BODY) is None


def test_corrections_keep_the_values() -> None:
    taught = (("max_tokens", "max_completion_tokens"), ("temperature", None))
    assert corrected(BODY, taught) == {
        "max_completion_tokens": 5,
        "top_k": 3,
        "seed": 1,
        "interface": "chat",
    }


def test_the_identity_of_a_model_does_not_depend_on_what_was_learned() -> None:
    taught = Model("openai/gpt-9", corrections=(("temperature", None),))
    assert identity_of(taught) == identity_of(Model("openai/gpt-9"))


def test_a_rerun_on_the_same_store_writes_the_same_tables(unknown: Vendor, tmp_path: Path) -> None:
    model = {"model": "http/house-model", "base_url": f"{unknown.url}/v1"}
    for name in ("first", "again"):
        study(model).run(tmp_path / name, store=tmp_path / "r.sqlite", is_quiet=True)
    tables = [
        pl.read_parquet(next((tmp_path / name).glob("g-*/calls.parquet")))
        for name in ("first", "again")
    ]
    assert tables[0].equals(tables[1])


# Errors inside errors


def test_the_error_of_the_provider_behind_a_router_is_read(tmp_path: Path) -> None:
    said = "Unsupported value: 'temperature' does not support 0 with this model."
    raw = json.dumps({"error": {"message": said, "param": "temperature"}})
    about = {"raw": raw, "provider_name": "Azure"}
    error = {"message": "Provider returned error", "code": 400, "metadata": about}
    trouble = ChatWire().trouble(400, {"error": error}, b"")
    assert trouble is not None
    assert trouble.message == f"Provider returned error: {said}"
    assert correction_in(trouble, BODY) == ("temperature", None)
    for told in ("upstream is down", "", "{}", 3, None):
        error["metadata"] = {"raw": told}
        trouble = ChatWire().trouble(400, {"error": error}, b"")
        assert trouble is not None
        assert "Provider returned error" in trouble.message


def test_the_text_of_an_error_page_is_read_without_its_tags() -> None:
    page = (
        f"<!DOCTYPE html><html><head><style>{'body{margin:0}' * 30}</style></head><body><h1>Bad "
        "Request</h1><p>&#39;max_tokens&#39; is not supported. Use &#39;max_completion_tokens&#39; "
        "instead.</p></body></html>"
    )
    trouble = ChatWire().trouble(400, {}, page.encode())
    assert trouble is not None
    assert trouble.message.startswith("Bad Request 'max_tokens' is not supported.")
    assert correction_in(trouble, BODY) == ("max_tokens", "max_completion_tokens")


def test_a_deployment_that_spends_its_limit_on_reasoning_is_told_of_it(tmp_path: Path) -> None:
    def spent(path: str, headers: Any, body: dict[str, Any]) -> Answer:
        answer = chat(body)
        answer["choices"][0] |= {"message": {"content": ""}, "finish_reason": "length"}
        return 200, answer

    with vendor(spent) as server:
        model = {"model": "http/house-model", "base_url": f"{server.url}/v1"}
        with pytest.raises(fm.Problem, match="raise `max_tokens` in the model's entry"):
            study(model).run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
