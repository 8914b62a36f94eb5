"""The embedded model, for real: weights from the package index, llama.cpp in this process."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fake_endpoint import serve
from flipmeter.ask.family import Backend
from flipmeter.ask.llama import LlamaBackend
from flipmeter.ask.names import identity_of, open_backend, request_for
from flipmeter.ask.store import Store
from flipmeter.data.load import load
from flipmeter.data.sampling import merge, sample
from flipmeter.errors import Problem
from flipmeter.prompt.parsing import parse
from flipmeter.prompt.pointwise import render
from flipmeter.prompt.probes import expand
from flipmeter.run.perform import perform
from flipmeter.study.file import read_study
from flipmeter.types import Decoding, Message, Model, Prompt, Reply, Request, Script, Style

MODEL = Model("local/smollm2-135m")
GREEDY = Decoding(max_tokens=4, stop=("\n",))

pytestmark = [pytest.mark.real, pytest.mark.long]


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaBackend]:
    backend = open_backend(MODEL)
    assert isinstance(backend, LlamaBackend)
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
    """Text and scores, in two orders and from a fresh engine: no difference to the last bit."""
    longer = replace(GREEDY, max_tokens=6, stop=())
    requests = [request_for(MODEL, engine.identity, p, longer, 0) for p in prompts(3)]
    mixed = Random(1).sample(requests, len(requests))
    first, second = ask_each(engine, requests), ask_each(engine, mixed)
    asyncio.run(engine.close())
    third = ask_each(engine, mixed[::-1])
    runs = [
        {key: (reply.text, reply.scores) for key, reply in run.items()}
        for run in (first, second, third)
    ]
    assert None not in [scores for _, scores in runs[0].values()]
    assert runs[0] == runs[1] == runs[2]


# Scores

FIVE = ("very negative", "negative", "neutral", "positive", "very positive")
REVIEW = "Rate each sentence.\n\nSentence: It was dull.\nLabel: {}\n\nSentence: Nice soup.\nLabel:"


def asking(
    answers: tuple[str, ...], decoding: Decoding = GREEDY, text: str | None = None
) -> Request:
    script = Script.of([Message("user", text or REVIEW.format(answers[0]))])
    return request_for(MODEL, "m", Prompt(script, answers, tuple(range(len(answers)))), decoding, 0)


def ask_one(engine: Backend, request: Request) -> Reply:
    return ask_each(engine, [request])[request.key]


def by_force(engine: LlamaBackend, request: Request) -> list[float]:
    """Ask for each token of each way to write a label by itself, and add up."""
    start = engine._tokens(request.script.text)
    shown: dict[tuple[int, ...], dict[int, float]] = {}

    def share(place: tuple[int, ...], token: int) -> float:
        if place not in shown:
            step = engine._complete([*start, *place], {"max_tokens": 1, "n_probs": 5_000})
            top = step["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            shown[place] = {one["id"]: math.exp(one["logprob"]) for one in top}
        return shown[place].get(token, 0.0)

    def whole(way: tuple[int, ...]) -> float:
        return math.prod(share(way[:n], token) for n, token in enumerate(way))

    ways = {
        tuple(engine._tokens(text, add_special=False)): label
        for label in request.answers
        for text in (label, f" {label}")
    }
    totals = dict.fromkeys(request.answers, 0.0)
    for way, label in ways.items():
        longer = {o[: len(way) + 1] for o in ways if o[: len(way)] == way and o != way}
        totals[label] += whole(way) - sum(map(whole, longer))
    return [math.log(total) for total in totals.values()]


@pytest.mark.parametrize("answers", [("1", "2", "10"), FIVE, ("Option_1", "Option_2")])
def test_scores_are_those_of_asking_for_each_token_by_itself(
    engine: LlamaBackend, answers: tuple[str, ...]
) -> None:
    request = asking(answers)
    assert ask_one(engine, request).scores == pytest.approx(by_force(engine, request), abs=0.05)


def test_labels_whose_tokens_are_parts_of_characters_are_scored(engine: LlamaBackend) -> None:
    scores = ask_one(engine, asking(("糟糕", "很好"))).scores
    assert len(engine._tokens("糟糕", add_special=False)) > 2
    assert scores is not None
    assert all(-50 < score < 0 for score in scores)


def test_the_text_is_the_same_with_and_without_scores(engine: Backend) -> None:
    sampled = Decoding(temperature=1.5, seed=7, max_tokens=6)
    for request in (asking(FIVE, replace(GREEDY, max_tokens=6)), asking(FIVE, sampled)):
        plain = replace(request, answers=())
        replies = ask_each(engine, [request, plain])
        assert replies[request.key].text == replies[plain.key].text
        assert (replies[request.key].scores is None, replies[plain.key].scores) == (False, None)


def test_scores_are_those_of_the_model_whatever_is_drawn(engine: Backend) -> None:
    drawn = Decoding(temperature=2.0, top_k=5, repetition_penalty=1.5, seed=3, max_tokens=3)
    cold, hot = asking(FIVE), asking(FIVE, drawn)
    assert ask_one(engine, hot).scores == pytest.approx(ask_one(engine, cold).scores, abs=1e-3)


def test_a_reply_that_shows_nothing_has_the_same_scores(engine: Backend) -> None:
    """The first token is a stop, so that the engine gives no step of the reply."""
    plain, stopped = asking(("1", "2", "3")), asking(("1", "2", "3"), replace(GREEDY, stop=(" ",)))
    assert ask_one(engine, stopped).text == ""
    assert ask_one(engine, stopped).scores == pytest.approx(ask_one(engine, plain).scores, abs=1e-3)


def test_a_prompt_that_goes_on_from_a_reply_does_not_take_it_over(engine: LlamaBackend) -> None:
    """What was said is computed token by token; as part of a prompt it must not be kept so."""
    first = asking(FIVE)
    said = ask_one(engine, first).text
    longer = asking(FIVE, text=f"{first.script.text}{said}\n\nSentence: It was fine.\nLabel:")
    after = ask_one(engine, longer)
    asyncio.run(engine.close())
    assert ask_one(engine, longer).scores == after.scores


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


def test_a_study_on_the_embedded_model_resumes_and_repeats_itself(
    tmp_path: Path, self_tested: Callable[[Path], None]
) -> None:
    self_tested(tmp_path / "r.sqlite")
    study = read_study(
        {
            "models": ["local/smollm2-135m"],
            "datasets": ["reviews"],
            "test_size": 3,
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
