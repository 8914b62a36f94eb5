"""The HTTP backend against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import ssl
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flipmeter.ask.family import Backend
from flipmeter.ask.http import Endpoint, HttpBackend
from flipmeter.ask.limits import FIRST_PERMITS
from flipmeter.ask.names import params_for, request_for
from flipmeter.ask.wires import ChatWire
from flipmeter.errors import Problem, Retry, Unreachable
from flipmeter.types import Decoding, Model, Prompt, Reply, Request, Usage
from misbehaving import (
    KEY,
    MODEL,
    Behaviour,
    Server,
    answer,
    breaks_off,
    client,
    fails,
    floods,
    garbles,
    good,
    misbehaving,
    never_ends,
    question,
    resets,
    says,
    serving,
)
from misbehaving import tidy as tidy

MONDAY = "Mon, 05 Jan 2026 10:00:00 GMT"
HALF_A_MINUTE_LATER = "Mon, 05 Jan 2026 10:00:30 GMT"
FILTERED = {"message": {"content": "I"}, "finish_reason": "content_filter"}
REFUSED = {"message": {"content": None, "refusal": "I will not."}, "finish_reason": "stop"}
BROKEN_CHOICE = {"message": {"content": "par"}, "error": {"code": 502, "message": "gone"}}


pytestmark = pytest.mark.usefixtures("tidy")


async def exchange(behaviour: Behaviour, request: Request, **fields: Any) -> tuple[Reply, Server]:
    async with misbehaving(behaviour) as server, client(server.url, **fields) as backend:
        return await backend.ask(request), server


def reply_to(behaviour: Behaviour, request: Request | None = None, **fields: Any) -> Reply:
    return asyncio.run(exchange(behaviour, request or question(), **fields))[0]


def sent(request: Request) -> tuple[str, dict[str, Any]]:
    _, server = asyncio.run(exchange(says({"choices": [{"text": "2"}]}), request))
    return server.paths[0], server.bodies[0]


def retry_after(behaviour: Behaviour, **fields: Any) -> Retry:
    with pytest.raises(Retry) as caught:
        reply_to(behaviour, **fields)
    return caught.value


def problem_with(behaviour: Behaviour) -> str:
    with pytest.raises(Problem) as caught:
        reply_to(behaviour)
    return str(caught.value)


# What a good answer is read as


def test_a_reply_holds_what_the_answer_says() -> None:
    named = answer("4", model="acme/rater-0925", provider="Acme", system_fingerprint="fp_1")
    reply = reply_to(says(named))
    assert (reply.text, reply.finish, reply.error) == ("4", "stop", "")
    assert (reply.model, reply.provider, reply.fingerprint) == ("acme/rater-0925", "Acme", "fp_1")


def test_hidden_and_cached_tokens_are_read_from_the_usage() -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 40,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 38},
    }
    assert reply_to(says(answer(usage=usage))).usage == Usage(90, 64, 40, 38)


@pytest.mark.parametrize(
    "usage", [None, [], "many", {"prompt_tokens": "many", "completion_tokens": 10**30}]
)
def test_a_usage_that_makes_no_sense_is_unknown(usage: object) -> None:
    assert reply_to(says(answer(usage=usage))).usage == Usage()


def test_null_content_is_an_empty_reply() -> None:
    reply = reply_to(says(answer(None)))
    assert (reply.text, reply.finish, reply.error) == ("", "stop", "")


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "very "}, {"type": "image"}, {"type": "text", "text": "bad"}]
    assert reply_to(says(answer(parts))).text == "very bad"


def test_a_filtered_answer_says_so() -> None:
    reply = reply_to(says(answer(choices=[FILTERED])))
    assert (reply.text, reply.finish) == ("I", "content_filter")


def test_a_refusal_is_the_reply() -> None:
    reply = reply_to(says(answer(choices=[REFUSED])))
    assert (reply.text, reply.finish) == ("I will not.", "refusal")


def test_half_an_emoji_does_not_break_the_store() -> None:
    reply = reply_to(says(b'{"choices": [{"message": {"content": "2 \\ud83d"}}]}'))
    assert reply.text.encode().decode() == "2 \ufffd"


def test_a_name_with_a_control_character_is_put_on_one_line() -> None:
    assert reply_to(says(answer(model="a\x1fb\nc"))).model == "abc"


# What is sent


def test_a_chat_is_sent_with_its_decoding() -> None:
    path, body = sent(question("Why?", '{"interface":"chat","max_tokens":8,"temperature":0}'))
    assert path == "/v1/chat/completions"
    assert body.pop("messages") == [{"role": "user", "content": "Why?"}]
    assert body == {"model": MODEL, "max_tokens": 8, "temperature": 0}


def test_the_completions_interface_sends_and_reads_text() -> None:
    request = question("Label:", '{"interface":"completions"}')
    assert sent(request) == ("/v1/completions", {"model": MODEL, "prompt": "Label:"})
    assert reply_to(says({"choices": [{"text": " 3"}]}), request).text == " 3"


def test_extra_fields_are_sent_as_they_are() -> None:
    extra = {"reasoning": {"effort": "low"}, "provider": {"order": ["Acme"]}}
    params = params_for(Model(f"http/{MODEL}", extra=extra), Decoding(), 0)
    body = sent(question(params=params))[1]
    assert {name: body[name] for name in extra} == extra
    assert "interface" not in body


# What may pass


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 529])
def test_a_failure_that_may_pass_is_worth_another_try(status: int) -> None:
    assert f"HTTP {status}" in str(retry_after(fails(status, "upstream is busy")))
    assert "upstream is busy" in str(retry_after(fails(status, "upstream is busy")))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry_After": "7"}, 7),
        ({"Retry_After": "1.5"}, 1.5),
        ({"Retry_After": "-3"}, 0),
        ({"Retry_After_Ms": "250", "Retry_After": "1"}, 0.25),
        ({"Retry_After": HALF_A_MINUTE_LATER, "Date": MONDAY}, 30),
        ({"Retry_After": MONDAY, "Date": HALF_A_MINUTE_LATER}, 0),
        ({"Retry_After": "inf"}, 0),
        ({"Retry_After": "soon"}, 0),
        ({}, 0),
    ],
)
def test_too_many_requests_say_how_long_to_wait(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(fails(429, **headers)).after == seconds


def test_a_date_counts_from_now_where_the_answer_has_none() -> None:
    after = retry_after(fails(503, Retry_After="Fri, 01 Jan 2100 00:00:00 GMT")).after
    assert after is not None
    assert after > 365 * 24 * 3600


def test_a_server_error_tells_no_pause() -> None:
    assert retry_after(fails(503)).after is None
    for date in ("Mon, 01 Jan 2020 00:00:00 +99999999999999", "Mon, 01 Jan 99999999999999 00:00"):
        assert retry_after(fails(503, Retry_After=date)).after is None
    assert retry_after(fails(503, Retry_After="3")).after == 3


@pytest.mark.parametrize("behaviour", [resets, breaks_off, garbles])
def test_a_broken_connection_is_worth_another_try(behaviour: Behaviour) -> None:
    assert str(retry_after(behaviour)).startswith("http://127.0.0.1")


def test_an_answer_that_never_ends_is_given_up_in_time() -> None:
    assert "within 0.2 s" in str(retry_after(never_ends, timeout=0.2))


def wait_for(server: Server) -> None:
    while not server.bodies:
        time.sleep(0.001)


def stand_still() -> None:
    time.sleep(2.5)


def test_an_answer_that_came_while_the_client_stood_still_is_heard() -> None:
    """As after Ctrl-Z, a laptop asleep, or a wait for the store: it is paid for, and there."""

    async def ask(server: Server) -> Reply:
        async with client(server.url, timeout=1.0) as backend:
            asking = asyncio.create_task(backend.ask(question()))
            await asyncio.to_thread(wait_for, server)
            stand_still()
            return await asking

    with serving(lambda _: says(answer("4" * 10**6))) as server:
        assert len(asyncio.run(ask(server)).text) == 10**6
        assert len(server.bodies) == 1


def test_an_answer_without_measure_is_cut() -> None:
    assert "longer than" in str(retry_after(floods))


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b"", "not a JSON object: an empty answer"),
        (b"<html>Bad gateway</html>", "not a JSON object: <html>Bad gateway"),
        (json.dumps(answer()).encode()[:-9], "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b"\xff\xfe\xfa", "not a JSON object"),
        ([answer()], "not a JSON object"),
        ({"choices": []}, "no choices"),
        ({"choices": None}, "no choices"),
        ({"choices": "2"}, "no choices"),
        ({"choices": [None]}, "no choices"),
        ({"choices": [{"index": 0}]}, "no message"),
        ({"choices": [{"message": "2"}]}, "no message"),
        (answer({"text": "2"}), "not text"),
        (answer(choices=[{"message": {"content": "2"}, "finish_reason": "error"}]), "broke off"),
    ],
)
def test_a_malformed_answer_is_worth_another_try(body: object, flaw: str) -> None:
    assert flaw in str(retry_after(says(body)))


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 502, "message": "gone"}},
        {"error": {"code": "upstream", "message": "gone"}},
        {"error": "gone"},
        answer(error={"message": "gone"}),
        answer(choices=[BROKEN_CHOICE]),
    ],
)
def test_an_error_inside_a_good_answer_is_an_error(body: object) -> None:
    assert str(retry_after(says(body))).endswith("gone")


def test_an_error_inside_a_good_answer_counts_by_its_code() -> None:
    assert retry_after(says({"error": {"code": 429, "message": "slow down"}})).after == 0
    assert "HTTP_API_KEY" in problem_with(says({"error": {"code": 401, "message": "who?"}}))
    assert "too long" in reply_to(says({"error": {"code": 400, "message": "too long"}})).error


# What is final


def test_an_overflow_of_the_context_is_a_named_error() -> None:
    reply = reply_to(fails(400, "maximum context length is 8192 tokens", "context_length_exceeded"))
    assert reply.error.startswith("HTTP 400 from http://127.0.0.1")
    assert reply.error.endswith(": maximum context length is 8192 tokens")


@pytest.mark.parametrize("body", [b"too big", {"message": "too big"}, {"detail": "too big"}])
def test_an_error_is_named_whatever_its_form(body: object) -> None:
    assert reply_to(says(body, 413)).error.endswith(": too big")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": "content_filter", "message": "flagged"}),
        (403, {"code": 403, "message": "flagged", "metadata": {"flagged_input": "How"}}),
    ],
)
def test_a_moderated_prompt_is_refused_and_stops_nothing(status: int, error: object) -> None:
    reply = reply_to(says({"error": error}, status))
    assert (reply.text, reply.finish, reply.error) == ("flagged", "content_filter", "")


# What the user must mend


def test_a_wrong_key_is_a_problem_that_names_the_variable() -> None:
    said = problem_with(fails(401, "no such key"))
    assert said.endswith("no such key; the variable HTTP_API_KEY is set but not accepted")


def test_a_missing_key_is_a_problem_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HTTP_API_KEY")
    assert problem_with(fails(401)).endswith("the variable HTTP_API_KEY is not set")


@pytest.mark.parametrize(
    "behaviour",
    [fails(404), fails(400, code="model_not_found"), fails(400, "x is not a valid model ID")],
)
def test_an_unknown_model_is_a_problem_that_names_it(behaviour: Behaviour) -> None:
    assert f"is '{MODEL}' the name the endpoint knows?" in problem_with(behaviour)


@pytest.mark.parametrize(
    "behaviour",
    [
        fails(402),
        fails(429, code="insufficient_quota"),
        fails(400, "Your credit balance is too low to access the Anthropic API."),
    ],
)
def test_an_empty_account_is_a_problem_and_not_a_pause(behaviour: Behaviour) -> None:
    assert "top up the account of the key in HTTP_API_KEY" in problem_with(behaviour)


def test_a_redirect_is_not_followed() -> None:
    said = problem_with(fails(302, Location="https://example.org/login"))
    assert said.endswith("it has moved to https://example.org/login: set base_url")


@pytest.mark.parametrize("host", ["a..b", "h:99999", "x" * 64 + ".invalid"])
def test_an_address_that_is_none_is_a_problem(host: str) -> None:
    backend = HttpBackend(Endpoint(f"http://{host}", MODEL), "acme")
    with pytest.raises(Problem, match="is not an address"):
        asyncio.run(closing(backend))


async def closing(backend: HttpBackend) -> Reply:
    try:
        return await backend.ask(question())
    finally:
        await backend.close()


def test_a_key_with_a_line_break_is_a_problem_that_hides_it() -> None:
    backend = HttpBackend(Endpoint("http://127.0.0.1", MODEL, "one\ntwo", "ACME_API_KEY"), "acme")
    with pytest.raises(Problem, match="the key in ACME_API_KEY contains") as caught:
        asyncio.run(closing(backend))
    assert "two" not in str(caught.value)


def test_space_around_a_key_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_API_KEY", " abc\n")

    async def show(request: web.Request) -> web.StreamResponse:
        return web.json_response(answer(request.headers["Authorization"]))

    assert reply_to(show).text == "Bearer abc"


def test_a_certificate_that_is_not_trusted_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="a certificate that is not trusted"):
        asyncio.run(ask_securely(self_signed(tmp_path)))


def self_signed(folder: Path) -> ssl.SSLContext:
    openssl = shutil.which("openssl") or pytest.skip("openssl makes the certificate")
    pem = folder / "both.pem"
    made = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    parts = subprocess.run([*made, "-keyout", "-"], check=True, capture_output=True).stdout
    pem.write_bytes(parts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


async def ask_securely(context: ssl.SSLContext) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", ssl=context)
    port = server.sockets[0].getsockname()[1]
    async with server, client(f"https://127.0.0.1:{port}") as backend:
        await backend.ask(question())


# The key


def echoing(status: int, **headers: str) -> Behaviour:
    """Answer with the key of the client in every place there is."""
    choice = {"message": {"content": f"2 {KEY}"}, "finish_reason": KEY}
    named = {"model": KEY, "provider": KEY, "system_fingerprint": KEY}
    error = {} if status == 200 else {"error": {"message": f"bad key {KEY}", "code": KEY}}
    return says({"choices": [choice], **named, **error}, status, **headers)


def everything_about(error: BaseException) -> str:
    """Return all that a log could show of an error and of those behind it."""
    shown = "".join(traceback.format_exception(error))
    behind = error.__cause__ or error.__context__
    return shown + repr(error) + (everything_about(behind) if behind else "")


@pytest.mark.parametrize(
    "behaviour",
    [
        echoing(401),
        echoing(404),
        echoing(429),
        echoing(500),
        echoing(302, Location=f"http://127.0.0.1/?key={KEY}"),
        says(f"<html>{KEY * 9}</html>".encode()),
        says(json.dumps({"error": KEY}).replace("/", "\\/").encode()),
        garbles,
        resets,
        breaks_off,
    ],
)
def test_no_error_shows_the_key(behaviour: Behaviour) -> None:
    with pytest.raises((Problem, Retry)) as caught:
        reply_to(behaviour)
    shown = everything_about(caught.value)
    assert KEY not in shown
    assert KEY.replace("/", "\\/") not in shown


@pytest.mark.parametrize("status", [200, 400])
def test_no_reply_shows_the_key(status: int) -> None:
    reply = reply_to(echoing(status))
    assert KEY not in repr(reply)
    assert "[key]" in reply.text + reply.error


def test_no_representation_shows_the_key() -> None:
    endpoint = Endpoint("http://127.0.0.1", MODEL, KEY, "ACME_API_KEY")
    backend = HttpBackend(endpoint, "acme")
    assert KEY not in f"{endpoint} {endpoint!r} {backend} {backend!r} {backend.identity}"


def test_a_key_that_is_no_secret_leaves_replies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_API_KEY", "2")
    assert reply_to(good()).text == "2"


# The session


def test_a_closed_backend_can_be_closed_and_asked_again() -> None:
    async def run() -> list[str]:
        async with misbehaving() as server, client(server.url) as backend:
            first = await backend.ask(question("one"))
            await backend.close()
            await backend.close()
            return [first.text, (await backend.ask(question("two"))).text]

    assert asyncio.run(run()) == ["one", "two"]


def test_a_server_is_unreachable_only_until_its_first_answer() -> None:
    async def run() -> list[type[Exception]]:
        async with misbehaving(fails(500)) as server, client(server.url) as backend:
            await server.stop()
            failures = [await failure_of(backend)]
            await server.restart()
            failures.append(await failure_of(backend))
            await server.stop()
            return [*failures, await failure_of(backend)]

    assert asyncio.run(run()) == [Unreachable, Retry, Retry]


async def failure_of(backend: Backend) -> type[Exception]:
    with pytest.raises(Retry) as caught:
        await backend.ask(question())
    return caught.type


def test_a_limit_is_learnt_unless_it_is_set() -> None:
    endpoint = Endpoint("http://127.0.0.1", MODEL)
    learnt = HttpBackend(endpoint, "acme", concurrency=64)
    fixed = HttpBackend(endpoint, "acme", concurrency=64, is_adaptive=False)
    assert (learnt.limiter.permits, fixed.limiter.permits) == (FIRST_PERMITS, 64)


# Scores

SCORED = question("Label:", "{}", answers=("1", "2", "3"))


def tops(**shares: float) -> list[dict[str, Any]]:
    return [{"token": token[1:], "logprob": math.log(p)} for token, p in shares.items()]


def chat_row(token: str, **shares: float) -> dict[str, Any]:
    return {
        "token": token,
        "logprob": math.log(shares[f"n{token}"]),
        "top_logprobs": tops(**shares),
    }


def scored(logprobs: object, **choice: Any) -> tuple[float, ...] | None:
    fields = {"message": {"content": "2"}, "logprobs": logprobs, "finish_reason": "stop", **choice}
    reply = reply_to(says(answer(choices=[fields])), SCORED)
    assert reply.text == "2"
    return reply.scores and tuple(round(math.exp(score), 6) for score in reply.scores)


def test_scores_are_read_from_a_chat() -> None:
    content = [chat_row("2", n2=0.5, n1=0.3, n3=0.2)]
    assert scored({"content": content}) == (0.3, 0.5, 0.2)


def test_scores_are_read_from_raw_text() -> None:
    top = {"2": math.log(0.5), "1": math.log(0.3), " 3": math.log(0.2)}
    rows = {"tokens": ["2"], "token_logprobs": [math.log(0.5)], "top_logprobs": [top]}
    assert scored(rows, message=None, text="2") == (0.3, 0.5, 0.2)


def test_a_token_shown_without_alternatives_bounds_the_others() -> None:
    rows = {"tokens": ["2"], "token_logprobs": [math.log(0.9)], "top_logprobs": None}
    assert scored(rows) == (0.05, 0.9, 0.05)


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        "many",
        {},
        {"content": None},
        {"content": [None]},
        {"content": [{"token": "2"}]},
        {"content": [{"token": 2, "logprob": -1}]},
        {"content": [{"token": "2", "logprob": "high"}]},
        {"content": [{"token": "2", "logprob": -(10**400)}]},
        {"content": [{"token": "2", "logprob": -math.inf}]},
        {"content": [{"token": "2", "logprob": math.nan}]},
        {"tokens": ["2"], "token_logprobs": [None], "top_logprobs": [[]]},
        {"tokens": 3, "token_logprobs": 4, "top_logprobs": 5},
    ],
)
def test_log_probabilities_that_are_promised_and_absent_are_no_scores(logprobs: object) -> None:
    assert scored(logprobs) is None


@pytest.mark.parametrize(
    "logprobs",
    [
        {"content": [{"token": "2", "logprob": -1, "top_logprobs": 5}]},
        {"tokens": ["2"], "token_logprobs": [-1], "top_logprobs": [5]},
    ],
)
def test_alternatives_that_are_no_list_are_none(logprobs: object) -> None:
    assert ChatWire().n_alternatives({"choices": [{"logprobs": logprobs}]}) == 0


def test_scores_that_nobody_asked_for_are_not_read() -> None:
    fields = {"message": {"content": "2"}, "logprobs": {"content": [chat_row("2", n2=0.5)]}}
    assert reply_to(says(answer(choices=[fields]))).scores is None


@pytest.mark.parametrize(
    ("address", "interface", "fields"),
    [
        ("http/x", "chat", {"logprobs": True, "top_logprobs": 20}),
        ("openai/x", "chat", {"logprobs": True, "top_logprobs": 20}),
        ("vllm/x", "completions", {"logprobs": 20}),
        ("openai/x", "completions", {"logprobs": 5}),
    ],
)
def test_log_probabilities_are_asked_for_where_they_are_wanted(
    address: str, interface: Any, fields: dict[str, Any]
) -> None:
    model = Model(address, base_url="http://h", interface=interface)
    prompt = Prompt(SCORED.script, ("1", "2"), (1, 2))
    plain = request_for(model, "m", prompt, Decoding(), 0)
    wanted = request_for(model, "m", prompt, Decoding(), 0, scored=True)
    assert (plain.answers, wanted.answers) == ((), ("1", "2"))
    assert json.loads(wanted.params) == json.loads(plain.params) | fields


def test_an_engine_in_this_process_is_always_scored_and_never_told_so() -> None:
    model = Model("sim/honest", extra={"logprobs": True, "user": "me"})
    prompt = Prompt(SCORED.script, ("1", "2"), (1, 2))
    requests = [request_for(model, "m", prompt, Decoding(), 0, scored=s) for s in (False, True)]
    assert requests[0] == requests[1]
    assert requests[0].answers == ("1", "2")
    assert "logprobs" not in requests[0].params


def test_equal_prompts_are_one_request_whatever_their_slots_mean() -> None:
    prompts = [Prompt(SCORED.script, order, (1, 2)) for order in (("a", "b"), ("b", "a"))]
    keys = {request_for(Model("sim/honest"), "m", one, Decoding(), 0).key for one in prompts}
    assert len(keys) == 1
