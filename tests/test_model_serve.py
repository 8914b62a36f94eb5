"""Backends behind an OpenAI-compatible address, asked over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import pytest

from flipmeter.model.backends.backend import Backend, Retry
from flipmeter.model.backends.sim.sim import REFUSAL, SimRater, SimSpec, sim_spec
from flipmeter.model.names import open_backend, request_for
from flipmeter.model.serve import run_forever, serve
from flipmeter.types import (
    Decoding,
    Interface,
    Message,
    Model,
    Problem,
    Prompt,
    Reply,
    Request,
    Script,
    Usage,
)

NAMES = ("low", "medium", "high", "critical")
TABLE = {"The disk is full.": 3.1, "A typo.": 1.2}
PROMPT = (
    "Please perform Triage task.\n"
    "Given the ticket, assign a label from [1: critical, 2: high, 3: medium, 4: low].\n"
    "Return label only without any other text.\n\n"
    "Ticket: A typo.\nLabel: 4\n\n"
    "Ticket: The disk is full.\nLabel:"
)
CHAT = {"model": "honest", "messages": [{"role": "user", "content": PROMPT}], "temperature": 0}

Answer = tuple[int, dict[str, Any]]
Send = Callable[..., Awaitable[Answer]]


def sim(spec: SimSpec) -> SimRater:
    return SimRater(spec, TABLE, NAMES)


class Recorder:
    """A backend that keeps what it is asked, and how many ask at once."""

    identity = "recorder@1"
    concurrency = 2
    is_reproducible = True

    def __init__(self, reply: Reply | Exception | None = None) -> None:
        self.reply = reply or Reply("2", "stop", usage=Usage(7, 5, 3, 2))
        self.requests: list[Request] = []
        self.now = self.most = 0

    async def ask(self, request: Request) -> Reply:
        self.requests.append(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    async def close(self) -> None: ...


def served(
    backends: Mapping[str, Backend], talk: Callable[[Send], Awaitable[Any]], **options: Any
) -> Any:
    """Serve while `talk` sends requests by path, body and headers."""

    async def run() -> Any:
        async with serve(backends, **options) as url, aiohttp.ClientSession() as session:

            async def send(path: str, body: object = None, **headers: str) -> Answer:
                root = url.removesuffix("/v1") if path.startswith("/") else url + "/"
                method = "GET" if body is None else "POST"
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                async with session.request(method, root + path, data=data, headers=headers) as got:
                    return got.status, await got.json()

            return await talk(send)

    return asyncio.run(run())


def one(backends: Mapping[str, Backend], path: str, body: object = None, **options: Any) -> Answer:
    answer: Answer = served(backends, lambda send: send(path, body), **options)
    return answer


HONEST = {"honest": sim(sim_spec("sim/honest"))}


@pytest.mark.parametrize("prefix", ["", "/v1", "/api/v1"])
def test_a_chat_is_answered_in_the_form_that_clients_read(prefix: str) -> None:
    status, answer = one(HONEST, f"{prefix}/chat/completions", CHAT)
    choice = answer["choices"][0]
    assert (status, answer["model"], answer["object"]) == (200, "honest", "chat.completion")
    assert choice["message"]["content"] == "2"
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert answer["usage"]["prompt_tokens"] > 20


def test_a_raw_text_is_answered_too() -> None:
    status, answer = one(HONEST, "completions", {"model": "honest", "prompt": PROMPT})
    assert (status, answer["choices"][0]["text"]) == (200, "2")


def test_hidden_tokens_are_in_the_usage() -> None:
    backends = {"honest": sim(sim_spec("sim/honest?hidden=12"))}
    usage = one(backends, "chat/completions", CHAT)[1]["usage"]
    assert usage["completion_tokens"] == 13
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 12}


def test_a_body_becomes_a_request() -> None:
    backend = Recorder()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "developer", "content": "c"}, {"role": "user", "content": parts}]
    one({"m": backend}, "chat/completions", {"model": "m", "messages": messages, "top_k": 1})
    (request,) = backend.requests
    assert [(message.role, message.content) for message in request.script.messages] == [
        ("system", "c"),
        ("user", "ab"),
    ]
    assert (request.model, request.params) == ("recorder@1", '{"interface":"chat","top_k":1}')


# Responses

ASKED = {"model": "honest", "input": PROMPT, "store": False, "max_output_tokens": 16}


@pytest.mark.parametrize("told", [PROMPT, CHAT["messages"]], ids=["text", "messages"])
def test_a_response_is_answered_in_the_form_that_clients_read(told: object) -> None:
    status, answer = one(HONEST, "responses", {**ASKED, "input": told})
    assert (status, answer["object"], answer["status"]) == (200, "response", "completed")
    (message,) = answer["output"]
    assert (message["role"], message["content"][0]["text"]) == ("assistant", "2")
    assert answer["usage"]["input_tokens"] > 20
    assert answer["usage"]["output_tokens"] == 1


def test_a_body_of_the_responses_api_becomes_a_request() -> None:
    backend = Recorder()
    body = {
        "model": "m",
        "instructions": "c",
        "input": [{"type": "message", "role": "user", "content": [{"text": "a"}, {"text": "b"}]}],
        "max_output_tokens": 20,
        "temperature": 0,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "prompt_cache_key": "k",
        "store": False,
        "tools": [],
    }
    assert one({"m": backend}, "responses", body)[0] == 200
    (request,) = backend.requests
    assert [(one.role, one.content) for one in request.script.messages] == [
        ("system", "c"),
        ("user", "ab"),
    ]
    assert json.loads(request.params) == {
        "interface": "chat",
        "max_tokens": 20,
        "temperature": 0,
        "reasoning": {"effort": "low"},
    }


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [("stop", "completed", None), ("length", "incomplete", "max_output_tokens")],
)
def test_a_response_that_was_cut_says_so(finish: str, status: str, reason: str | None) -> None:
    answer = one({"honest": Recorder(Reply("2", finish))}, "responses", ASKED)[1]
    assert answer["status"] == status
    assert (answer["incomplete_details"] or {}).get("reason") == reason


def test_a_refusal_is_a_part_of_its_own() -> None:
    answer = one({"honest": Recorder(Reply("No.", "refusal"))}, "responses", ASKED)[1]
    assert answer["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"input": []}, "needs 'input'"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "messages only"),
        ({"tools": [{"type": "web_search"}]}, "'tools' is not supported"),
        ({"previous_response_id": "resp_1"}, "'previous_response_id' is not supported"),
        ({"text": {"format": {"type": "json_schema"}}}, "plain text only"),
        ({"stream": True}, "'stream' is not supported"),
        ({"include": 5}, "'include' must be a list"),
        ({"max_output_tokens": "many"}, "whole number of 1 or more; got 'many'"),
        ({"max_output_tokens": -5}, "whole number of 1 or more; got -5"),
        ({"temperature": "hot"}, "'temperature' must be a number of 0 or more; got 'hot'"),
    ],
)
def test_what_a_response_cannot_be_asked_for_is_refused(more: dict[str, Any], message: str) -> None:
    status, answer = one(HONEST, "responses", {**ASKED, **more})
    assert (status, message in answer["error"]["message"]) == (400, True)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_the_limit_of_a_chat_has_two_names(name: str) -> None:
    backend = Recorder()
    body = {**CHAT, "model": "m", "max_tokens": None, name: 7, "stop": None, "user": "u"}
    assert one({"m": backend}, "chat/completions", body)[0] == 200
    told = {"interface": "chat", "max_tokens": 7, "temperature": 0}
    assert json.loads(backend.requests[0].params) == told


def test_any_name_goes_to_the_catch_all() -> None:
    status, answer = one({"*": Recorder()}, "chat/completions", {**CHAT, "model": "who/ever"})
    assert (status, answer["model"]) == (200, "who/ever")


def test_an_unknown_model_is_told_the_names_there_are() -> None:
    status, answer = one({**HONEST, "other": Recorder()}, "chat/completions", CHAT | {"model": "x"})
    assert status == 404
    assert answer["error"]["message"] == "no model 'x'; known: honest, other"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{not json", "not JSON"),
        (b"[1]", "must be a JSON object"),
        ({"messages": []}, "needs 'messages'"),
        ({"messages": [{"role": "user", "content": "x"}]}, "needs 'model'"),
        ({**CHAT, "messages": [{"role": "wizard", "content": "x"}]}, "needs a role"),
        ({**CHAT, "messages": [{"role": "user", "content": 3}]}, "must be text"),
        ({**CHAT, "stream": True}, "'stream' is not supported"),
        ({**CHAT, "n": 2}, "'n' must be 1"),
        (json.dumps({**CHAT, "temperature": float("nan")}).encode(), "not finite"),
    ],
)
def test_a_malformed_body_is_refused_with_the_reason(body: object, message: str) -> None:
    status, answer = one(HONEST, "chat/completions", body)
    assert status == 400
    assert message in answer["error"]["message"]


def test_a_path_that_is_not_there_is_an_error_in_the_same_form() -> None:
    status, answer = one(HONEST, "embeddings", {})
    assert (status, answer["error"]["message"]) == (404, "POST /v1/embeddings: Not Found")


def test_a_key_is_asked_for_everywhere_but_at_the_door() -> None:
    async def talk(send: Send) -> list[int]:
        tries = [
            send("models"),
            send("models", Authorization="Bearer guess"),
            send("models", Authorization="Bearer s3cret"),
            send("/health"),
        ]
        return [(await attempt)[0] for attempt in tries]

    assert served(HONEST, talk, api_key="s3cret") == [401, 401, 200, 200]


def test_the_models_are_listed_without_the_catch_all() -> None:
    answer = one({**HONEST, "*": Recorder()}, "models")[1]
    assert [row["id"] for row in answer["data"]] == ["honest"]


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Reply(error="no"), 400),
        (Problem("no"), 400),
        (Retry("no", after=3), 503),
        (RuntimeError("no"), 500),
    ],
)
def test_a_failure_is_worth_another_try_only_if_it_may_pass(
    failure: Reply | Exception, status: int
) -> None:
    got, answer = one({"honest": Recorder(failure)}, "chat/completions", CHAT)
    assert got == status
    assert answer["error"]["message"].endswith("no")


def test_a_refusal_is_a_reply_and_not_an_error() -> None:
    backends = {"honest": sim(sim_spec("sim/refusing?refuse=1"))}
    status, answer = one(backends, "chat/completions", CHAT)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, REFUSAL)


def replies(n: int, **extra: object) -> list[str]:
    async def talk(send: Send) -> list[str]:
        answers = [await send("chat/completions", {**CHAT, **extra}) for _ in range(n)]
        return [answer["choices"][0]["message"]["content"] for _, answer in answers]

    found: list[str] = served({"honest": sim(SimSpec("noisy", sharpness=0, noise=1))}, talk)
    return found


def test_every_request_draws_fresh_noise() -> None:
    assert len(set(replies(60))) == 4


def test_a_seed_in_the_body_fixes_the_noise() -> None:
    assert len(set(replies(10, seed=5))) == 1
    assert len({replies(1, seed=seed)[0] for seed in range(12)}) > 1


def test_requests_beyond_the_concurrency_of_a_backend_wait() -> None:
    backend = Recorder()

    async def talk(send: Send) -> None:
        await asyncio.gather(*(send("chat/completions", CHAT) for _ in range(8)))

    served({"honest": backend}, talk)
    assert (len(backend.requests), backend.most) == (8, 2)


def test_a_delay_holds_answers_back_but_not_each_other() -> None:
    async def talk(send: Send) -> float:
        start = asyncio.get_running_loop().time()
        await asyncio.gather(*(send("chat/completions", CHAT) for _ in range(20)))
        return asyncio.get_running_loop().time() - start

    assert 0.2 <= served(HONEST, talk, delay=0.2) < 2


def test_a_port_that_is_taken_is_a_problem() -> None:
    async def clash() -> None:
        async with serve({}) as url:
            port = int(url.removesuffix("/v1").rpartition(":")[2])
            with pytest.raises(Problem, match=f"cannot listen on 127.0.0.1:{port}"):
                await run_forever({}, port=port)

    asyncio.run(clash())


def test_a_server_runs_until_it_is_cancelled() -> None:
    async def run() -> str:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(run_forever({}, port=0, on_ready=ready.set_result))
        url = await ready
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return url

    assert asyncio.run(run()).startswith("http://127.0.0.1:")


# Log-probabilities

ANSWERS = ("1", "2", "3", "4")
TILTED = sim(sim_spec("sim/first-slot"))


@pytest.mark.parametrize("interface", ["chat", "completions", "responses"])
def test_scores_over_http_are_those_of_the_backend(interface: Interface) -> None:
    prompt = Prompt(Script.of([Message("user", PROMPT)]), ANSWERS, (4, 3, 2, 1))

    async def both() -> list[Reply]:
        async with serve({"m": TILTED}) as url:
            model = Model("http/m", base_url=url, interface=interface)
            client = open_backend(model)
            there = request_for(model, client.identity, prompt, Decoding(), 0, scored=True)
            here = Request(TILTED.identity, prompt.script, answers=ANSWERS)
            try:
                return [await client.ask(there), await TILTED.ask(here)]
            finally:
                await client.close()

    over_http, direct = asyncio.run(both())
    assert over_http.text == direct.text
    assert over_http.scores == pytest.approx(direct.scores)


def test_a_number_of_alternatives_that_is_none_is_refused() -> None:
    body = {**CHAT, "logprobs": True, "top_logprobs": "many"}
    status, answer = one(HONEST, "chat/completions", body)
    assert (status, "'many' alternatives" in answer["error"]["message"]) == (400, True)


def test_a_backend_that_shows_no_tokens_has_no_log_probabilities() -> None:
    answer = one({"m": Recorder()}, "chat/completions", {**CHAT, "model": "m", "logprobs": True})[1]
    assert answer["choices"][0]["logprobs"] is None
