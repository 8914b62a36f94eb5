"""Vendors' prefix caches: what is marked, who goes first, what `plan` expects of them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import flipmeter as fm
from flipmeter.ask.endpoints import provider_of
from flipmeter.ask.names import caching_of, params_for
from flipmeter.ask.plan import PrefixCache, plan, price
from flipmeter.ask.replicas import Rota, fleet_of
from flipmeter.ask.response import Trouble
from flipmeter.types import (
    Ask,
    Caching,
    Call,
    Decoding,
    Item,
    Message,
    Model,
    Prompt,
    Request,
    Script,
    View,
)

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
LONG = "A review of a long book. " * 1000
SHORT = "A review. "


def module(name: str) -> Any:
    """A module of the benchmarks."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[name] = found
        spec.loader.exec_module(found)
        return found
    finally:
        sys.path.remove(str(BENCHMARKS))


def request(model: Model, start: str, rest: str, *before: Message) -> Request:
    messages = (*before, Message("user", start + rest))
    script = Script.of(messages, len(start))
    return Request(model.address, script, params_for(model, Decoding(), 0))


def body(model: Model, asked: Request, is_shared: bool = True) -> dict[str, Any]:
    wire = provider_of(model).wires["responses" if model.interface == "responses" else "chat"]
    return dict(json.loads(wire.body("m", asked, caching_of(model), is_shared)))


CLAUDE, GPT_4O, GPT_56 = (
    Model("anthropic/claude-sonnet-4-5"),
    Model("openai/gpt-4o"),
    Model("openai/gpt-5.6"),
)
MARKED = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}


# Marks


def test_the_shared_part_of_a_prompt_is_marked_for_anthropic() -> None:
    sent = body(CLAUDE, request(CLAUDE, LONG, "This one?", Message("system", "Rate.")))
    assert sent["system"] == [{"type": "text", "text": "Rate."}]
    assert sent["messages"][0]["content"] == [MARKED, {"type": "text", "text": "This one?"}]


def test_a_prefix_that_no_cache_would_keep_is_not_marked() -> None:
    for model in (CLAUDE, GPT_4O, GPT_56):
        sent = body(model, request(model, SHORT, "This one?"))
        assert sent["messages"] == [{"role": "user", "content": f"{SHORT}This one?"}]
        assert not [name for name in sent if "cache" in name]


def test_a_shared_system_prompt_is_marked_where_nothing_else_is_shared() -> None:
    sent = body(CLAUDE, request(CLAUDE, "", "This one?", Message("system", LONG)))
    assert sent["system"][0]["cache_control"] == {"type": "ephemeral"}
    sent = body(GPT_56, request(GPT_56, "", "This one?", Message("system", LONG)))
    assert "prompt_cache_breakpoint" in sent["messages"][0]["content"][0]


def test_anthropic_gets_its_mark_behind_the_last_shared_turn_wherever_the_system_prompt_stood() -> (
    None
):
    turns = Message("user", "Rate."), Message("system", LONG)
    sent = body(CLAUDE, request(CLAUDE, "", "This one?", *turns))
    assert sent["system"] == [{"type": "text", "text": LONG}]
    marked = {"type": "text", "text": "Rate.", "cache_control": {"type": "ephemeral"}}
    assert sent["messages"][0]["content"] == [marked]


def test_all_requests_behind_one_head_have_one_key_for_openai() -> None:
    keys = {body(GPT_4O, request(GPT_4O, LONG, rest))["prompt_cache_key"] for rest in "abc"}
    assert len(keys) == 1
    assert body(GPT_4O, request(GPT_4O, f"{LONG}!", "a"))["prompt_cache_key"] not in keys
    assert body(GPT_4O, request(GPT_4O, LONG, "a"))["messages"][0]["content"] == f"{LONG}a"


@pytest.mark.parametrize("interface", ["chat", "responses"])
def test_newer_models_of_openai_have_a_breakpoint_at_the_head(interface: Any) -> None:
    model = Model("openai/gpt-5.6", interface=interface)
    sent = body(model, request(model, LONG, "This one?"))
    (turn,) = sent["messages" if interface == "chat" else "input"]
    kind = "text" if interface == "chat" else "input_text"
    assert turn["content"] == [
        {"type": kind, "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}},
        {"type": kind, "text": "This one?"},
    ]
    assert sent["prompt_cache_options"] == {"mode": "explicit"}


def test_a_prompt_that_nobody_shares_is_not_written_to_the_cache() -> None:
    alone = request(GPT_56, LONG, "This one?")
    sent = body(GPT_56, alone, is_shared=False)
    assert sent["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_breakpoint" not in json.dumps(sent)
    assert "cache_control" not in json.dumps(body(CLAUDE, request(CLAUDE, LONG, "x"), False))


@pytest.mark.parametrize("model", [CLAUDE, GPT_56], ids=lambda model: model.address)
def test_the_text_of_a_prompt_does_not_depend_on_who_else_is_asked(model: Model) -> None:
    asked = request(model, LONG, "This one?")

    def blocks(is_shared: bool) -> list[str]:
        content = body(model, asked, is_shared)["messages"][0]["content"]
        return [block["text"] for block in content]

    assert blocks(True) == blocks(False) == [LONG, "This one?"]


def test_marks_are_in_no_key() -> None:
    asked = request(GPT_56, LONG, "This one?")
    body(GPT_56, asked)
    assert "cache" not in asked.params


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("anthropic/claude-sonnet-4-5", 1024),
        ("anthropic/claude-opus-4-6", 4096),
        ("anthropic/claude-opus-5", 512),
        ("openai/gpt-4.1", 1024),
        ("openai/gpt-3.5-turbo", None),
        ("gemini/gemini-2.5-pro", 2048),
        ("gemini/gemini-3-pro", 4096),
        ("gemini/gemini-2.0-flash", None),
        ("vllm/any", None),
        ("sim/honest", None),
    ],
)
def test_what_a_vendor_keeps_is_known_by_the_name_of_a_model(name: str, least: int | None) -> None:
    found = caching_of(Model(name))
    assert (found.least if found else None) == least


# Who goes first


class Client:
    """A client of a vendor that keeps heads."""

    concurrency, is_reproducible, identity = 8, False, "m"

    def __init__(self, caching: Caching) -> None:
        self.now = 0.0
        self.cache = PrefixCache(caching, lambda: self.now)


def rota(client: Any, *requests: Request) -> Rota:
    client.cache.expect(requests)
    return Rota(requests, fleet_of(client))


def drawn(found: Rota) -> list[str]:
    """What is given out before anything is answered."""
    texts = []
    while one := found.next(0):
        texts.append(one.script.rest)
    return texts


def test_the_first_behind_a_long_head_goes_alone_and_others_follow_its_answer() -> None:
    client = Client(Caching(1024))
    asked = [request(CLAUDE, LONG, rest) for rest in "abc"]
    other = [request(CLAUDE, f"{LONG}!", rest) for rest in "xy"]
    short = [request(CLAUDE, SHORT, rest) for rest in "12"]
    found = rota(client, *asked, *other, *short)
    assert drawn(found) == ["a", "x", "1", "2"]
    client.cache.answered(asked[0].script.head)
    found.done(asked[0])
    assert drawn(found) == ["b", "c"]
    found.put_off(other[0])  # whatever becomes of it, the others are not kept waiting
    assert set(drawn(found)) == {"x", "y"}


def test_what_waits_for_an_answer_is_no_reason_to_put_a_failed_request_off() -> None:
    client = Client(Caching(1024))
    asked = [request(CLAUDE, LONG, rest) for rest in "ab"]
    found = rota(client, *asked)
    assert drawn(found) == ["a"]
    found.n_tried[asked[0].key] += 1
    assert not found.has_others(asked[0])  # it would be taken and put off without end


def test_a_head_that_was_used_lately_is_warm_and_one_that_was_not_is_cold() -> None:
    client = Client(Caching(1024, seconds=300.0))
    asked = [request(CLAUDE, LONG, rest) for rest in "abcd"]
    head = asked[0].script.head
    client.cache.expect(asked)
    assert client.cache.is_cold(head)
    client.cache.answered(head)
    client.now = 299.0
    assert not client.cache.is_cold(head)
    client.now = 301.0
    assert client.cache.is_cold(head)


def test_a_head_of_one_request_is_not_worth_a_mark_until_another_comes() -> None:
    client = Client(Caching(1024, "cache_control"))
    (one, two) = (request(CLAUDE, LONG, rest) for rest in "ab")
    client.cache.expect([one])
    assert not client.cache.is_shared(one.script.head)
    client.cache.expect([two])
    assert client.cache.is_shared(one.script.head)


def test_a_mark_that_an_endpoint_refuses_is_left_out_from_then_on() -> None:
    cache = PrefixCache(Caching(1024, "key"))
    assert not cache.is_refused_by(Trouble(400, "Unknown parameter: 'top_k'"))
    assert cache.told is not None
    assert cache.is_refused_by(Trouble(400, "Unknown parameter: 'prompt_cache_key'"))
    assert cache.told is None


# What a plan expects


def call(asked: Request) -> Call:
    ask = Ask(Item("1", {"text": "x"}), View("base", (1, 2)))
    return Call(0, ask, Prompt(asked.script, ("1", "2"), (1, 2)), asked)


def test_a_plan_expects_the_first_to_write_and_the_rest_to_read() -> None:
    asked = [request(CLAUDE, LONG, rest) for rest in "abcd"]
    made = plan(call(one) for one in asked)
    kept = {CLAUDE.address: Caching(1024, "cache_control", 0.1, 1.25)}
    cost = price(made, caching=kept)[CLAUDE.address]
    size = len(asked[0].script.head.text)
    assert (cost.characters_written, cost.characters_cached) == (size, 3 * size)
    stored = {one.key for one in asked[1:]}
    alone = price(made, stored, kept)[CLAUDE.address]
    assert (alone.characters_written, alone.characters_cached) == (0, 0)


def test_openai_reads_in_steps() -> None:
    head = request(GPT_4O, "x" * 5000, "a").script.head
    assert Caching(1024, step=128).characters_read(head) == 4608  # 9 x 128 tokens of 1,250


# A vendor that bills


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "openai/gpt-5.6"])
def test_a_vendor_bills_what_the_plan_expected(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    billing, bench = module("billing"), module("prefix_cache")
    stem = billing.VENDORS[model][0]
    for variable in (f"{stem}_BASE_URL", f"{stem}_API_KEY"):
        monkeypatch.setenv(variable, "")  # taken back after the test
    bench.table(tmp_path / "texts.csv", 140)
    expected, bill = bench.asked(model, "as asked", tmp_path, 8, 12)
    assert bill.n_requests == 80
    assert expected == pytest.approx(bill.saved, abs=0.02)
    assert bill.saved > 0.7


def test_the_plan_says_what_the_cache_is_expected_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = module("prefix_cache")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-key")
    bench.table(tmp_path / "texts.csv", 140)
    made = bench.study("anthropic/claude-sonnet-4-5", tmp_path / "texts.csv", 8, 12)
    seen = made.plan(store=tmp_path / "r.sqlite", is_offline=True)
    assert "of the prompt tokens expected from it, saves about $" in str(seen)
    short = fm.Study(
        models=["anthropic/claude-sonnet-4-5"], datasets=["reviews"], base={"shots": 1}, repeats=1
    )
    seen = short.plan(store=tmp_path / "r.sqlite", is_offline=True)
    assert "the vendor caches only prefixes of 1,024 tokens or more" in str(seen)


def test_a_server_that_takes_no_mark_is_asked_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import strict_vendors

    bench = module("prefix_cache")

    def old(path: str, headers: Any, sent: dict[str, Any]) -> strict_vendors.Answer:
        if "prompt_cache_key" in sent:
            message = "Unrecognized request argument supplied: prompt_cache_key"
            return strict_vendors.openai_error(message, None, None)
        return strict_vendors.openai(path, headers, sent)

    with strict_vendors.vendor(old) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-test-key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        bench.table(tmp_path / "texts.csv", 140)
        made = bench.study("openai/gpt-4o", tmp_path / "texts.csv", 8, 12)
        run = made.run(tmp_path / "run", store=tmp_path / "r.sqlite", is_quiet=True)
    assert set(run.decisions["fault"]) == {""}
    assert 0 < server.statuses.count(400) <= 5  # no more than were under way
