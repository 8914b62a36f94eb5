"""The embedded model, for real: weights from the package index, llama.cpp in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from flipmeter.data import load, merge, sample
from flipmeter.model import Backend, Store, open_backend, request_for, serve
from flipmeter.model.names import identity_of
from flipmeter.parse import parse
from flipmeter.probe import expand
from flipmeter.prompt import render
from flipmeter.runs import perform
from flipmeter.study import read_study
from flipmeter.types import Decoding, Message, Model, Problem, Prompt, Reply, Request, Script, Style

MODEL = Model("local/smollm2-135m")
GREEDY = Decoding(max_tokens=4, stop=("\n",))

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("llama")]


@pytest.fixture(scope="module")
def engine() -> Iterator[Backend]:
    backend = open_backend(MODEL)
    yield backend
    asyncio.run(backend.close())


def prompts(n_items: int, shots: int = 1) -> list[Prompt]:
    """Short prompts behind several shared prefixes."""
    drawn = sample(merge(load("reviews"), 3), test_size=n_items, shots=shots, seed=0)
    task = merge(load("reviews"), 3).task
    style = Style(label_format="natural_language", shots=shots)
    views = expand(["label_order"], 3)
    return [render(task, style, view, drawn.demos, item) for view in views for item in drawn.test]


def ask_each(engine: Backend, requests: list[Request]) -> dict[str, Reply]:
    async def go() -> dict[str, Reply]:
        return {request.key: await engine.ask(request) for request in requests}

    return asyncio.run(go())


def test_it_answers_with_labels(engine: Backend) -> None:
    asked = prompts(6)
    requests = [request_for(MODEL, engine.identity, prompt, GREEDY, 0) for prompt in asked]
    replies = ask_each(engine, requests)
    answers = [parse(replies[r.key], p) for r, p in zip(requests, asked, strict=True)]
    assert sum(answer.fault is None for answer in answers) >= 10


def test_no_reply_depends_on_what_was_asked_before(engine: Backend) -> None:
    """Greedy text of twelve tokens, in two orders and from a fresh engine: no difference at all."""
    longer = replace(GREEDY, max_tokens=12, stop=())
    requests = [request_for(MODEL, engine.identity, p, longer, 0) for p in prompts(6)]
    mixed = Random(1).sample(requests, len(requests))
    first, second = ask_each(engine, requests), ask_each(engine, mixed)
    asyncio.run(engine.close())
    third = ask_each(engine, mixed[::-1])
    texts = [{key: reply.text for key, reply in run.items()} for run in (first, second, third)]
    assert texts[0] == texts[1] == texts[2]


def test_a_shared_prefix_is_computed_once(engine: Backend) -> None:
    requests = [request_for(MODEL, engine.identity, p, GREEDY, 0) for p in prompts(3, shots=2)[:3]]
    replies = list(ask_each(engine, requests).values())
    for reply in replies[1:]:
        assert (reply.usage.cached or 0) > (reply.usage.prompt or 0) / 2


def test_the_chat_template_of_the_weights_is_used(engine: Backend) -> None:
    prompt = Prompt(Script.of([Message("user", "Say the word blue.")]), ("1", "2"), (1, 2))
    chat, raw = (
        request_for(replace(MODEL, interface=kind), engine.identity, prompt, GREEDY, 0)
        for kind in ("chat", "completions")
    )
    replies = ask_each(engine, [chat, raw])
    longer, shorter = replies[chat.key].usage.prompt, replies[raw.key].usage.prompt
    assert (longer or 0) > (shorter or 0) + 5


def test_a_prompt_longer_than_the_context_is_a_named_error(engine: Backend) -> None:
    prompt = Prompt(Script.of([Message("user", "far too long " * 9_000)]), ("1", "2"), (1, 2))
    reply = ask_each(engine, [request := request_for(MODEL, engine.identity, prompt, GREEDY, 0)])
    assert "llama.cpp" in reply[request.key].error


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"not a model")
    backend = open_backend(Model(f"llamacpp/{tmp_path / 'no.gguf'}"))
    request = Request(backend.identity, Script.of([Message("user", "x")]))
    with pytest.raises(Problem, match="is it a GGUF file"):
        ask_each(backend, [request])


def test_a_missing_model_file_is_named() -> None:
    with pytest.raises(Problem, match=r"no model file .*nowhere\.gguf"):
        identity_of(Model("llamacpp/nowhere.gguf"))


def test_a_study_on_the_embedded_model_resumes_and_repeats_itself(tmp_path: Path) -> None:
    study = read_study(
        {
            "models": ["local/smollm2-135m"],
            "datasets": ["reviews"],
            "test_size": 6,
            "probes": ["label_order"],
            "base": {"label_format": "natural_language", "cardinality": 3, "shots": 1},
            "decoding": {"max_tokens": 4},
        }
    )
    with Store(tmp_path / "r.sqlite") as store:
        first = perform(study, tmp_path / "a", store)
        again = perform(study, tmp_path / "b", store)
    assert again.environment["asked"]["asked"] == 0
    assert again.decisions.equals(first.decisions)
    noise = first.estimates.filter(metric="noise", policy="complete").to_dicts()[0]
    assert (noise["value"], "by construction" in noise["note"]) == (0.0, True)


def test_the_embedded_model_behind_http_gives_the_same_labels(
    engine: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = prompts(2)[:2]
    requests = [request_for(MODEL, engine.identity, prompt, GREEDY, 0) for prompt in asked]
    direct = [reply.text for reply in ask_each(engine, requests).values()]

    async def go() -> list[str]:
        async with serve({"*": engine}) as url:
            monkeypatch.setenv("HTTP_BASE_URL", url)
            model = Model("http/any", interface="completions")
            client = open_backend(model)
            mine = [request_for(model, client.identity, prompt, GREEDY, 0) for prompt in asked]
            try:
                return [(await client.ask(request)).text for request in mine]
            finally:
                await client.close()

    assert asyncio.run(go()) == direct


def test_the_params_of_a_request_hold_no_default_that_was_not_asked_for() -> None:
    request = request_for(MODEL, "m", prompts(1)[0], GREEDY, 0)
    assert json.loads(request.params) == {
        "interface": "completions",
        "max_tokens": 4,
        "stop": ["\n"],
        "temperature": 0.0,
    }
