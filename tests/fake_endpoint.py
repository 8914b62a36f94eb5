"""Any backend behind an OpenAI-compatible address on loopback: chat, completions and responses.

python tests/fake_endpoint.py MODEL    serve a model until killed; prints the base URL
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web

from flipmeter.ask.dialect import LIMITS
from flipmeter.ask.family import Backend
from flipmeter.ask.label_scores import Step
from flipmeter.ask.names import open_backend
from flipmeter.ask.response import without_secrets
from flipmeter.data.load import load
from flipmeter.errors import Problem, Retry
from flipmeter.study.grid import world
from flipmeter.types import Interface, Message, Model, Reply, Request, Script, canonical_json
from read_prompts import reading

ANY_MODEL = "*"
PREFIXES = ("", "/v1", "/api/v1")
LARGEST_BODY = 32 * 2**20
ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
NOT_ASKED = {
    *("store", "metadata", "user", "safety_identifier", "service_tier", "truncation", "background"),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "parallel_tool_calls"),
}
"""Fields about an account or a cache: they change no reply."""
SHOWN = "message.output_text.logprobs"
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}


@dataclass(frozen=True)
class Spoken(Reply):
    """A reply, as one token if its log-probability is asked for."""

    steps: tuple[Step, ...] = ()


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@asynccontextmanager
async def serve(
    backends: Mapping[str, Backend],
    *,
    delay: float = 0.0,
) -> AsyncIterator[str]:
    """Serve backends by model name ("*" is any other name) and give the base URL.

    Every answer is held back for `delay` seconds, as a far endpoint would.
    The backends stay open: who made them closes them.
    """
    front = Front(backends, delay=delay)
    runner = web.AppRunner(front.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


class Front:
    """The routes, with one queue per backend."""

    def __init__(self, backends: Mapping[str, Backend], *, delay: float = 0.0) -> None:
        self._backends = dict(backends)
        self._turns = {
            name: asyncio.Semaphore(max(1, backend.concurrency))
            for name, backend in self._backends.items()
        }
        self._delay = delay
        # A body has no repeat index: every request counts as another repeat, also after a restart.
        self._repeats = itertools.count(int.from_bytes(os.urandom(6), "big"))

    def application(self) -> web.Application:
        """The server's routes, with and without a version before them."""
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self._guard])
        for prefix in PREFIXES:
            app.router.add_post(f"{prefix}/chat/completions", self._chat)
            app.router.add_post(f"{prefix}/completions", self._completions)
            app.router.add_post(f"{prefix}/responses", self._responses)
            app.router.add_get(f"{prefix}/models", self._models)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Any]
    ) -> web.StreamResponse:
        """Put whatever goes wrong into the form that clients expect."""
        try:
            response: web.StreamResponse = await handler(request)
        except Refused as refused:
            return _error(refused.status, str(refused))
        except web.HTTPException as error:
            return _error(error.status, f"{request.method} {request.path}: {error.reason}")
        except Problem as problem:
            return _error(400, str(problem))
        except Retry as retry:
            return _error(503, str(retry), retry.after)
        except Exception as error:
            return _error(500, f"{type(error).__name__}: {error}")
        return response

    async def _models(self, _: web.Request) -> web.Response:
        named = {name: b for name, b in self._backends.items() if name != ANY_MODEL}
        rows = [_listed(name, backend) for name, backend in named.items()]
        return web.json_response({"object": "list", "data": rows})

    async def _chat(self, request: web.Request) -> web.Response:
        body = _decode(await request.read())
        messages = _messages(body.pop("messages", None))
        model, reply = await self._answer(body, messages, "chat")
        choice = {"message": {"role": "assistant", "content": reply.text, "refusal": None}}
        return _completion("chat.completion", "chatcmpl", model, choice, reply)

    async def _completions(self, request: web.Request) -> web.Response:
        body = _decode(await request.read())
        messages = (Message("user", _prompt(body.pop("prompt", None))),)
        model, reply = await self._answer(body, messages, "completions")
        return _completion("text_completion", "cmpl", model, {"text": reply.text}, reply)

    async def _responses(self, request: web.Request) -> web.Response:
        body = _decode(await request.read())
        messages = _input(body.pop("instructions", None), body.pop("input", None))
        model, reply = await self._answer(_as_chat(body), messages, "chat")
        return _response(model, reply)

    async def _answer(
        self, body: dict[str, Any], messages: tuple[Message, ...], interface: Interface
    ) -> tuple[str, Reply]:
        """Ask the backend that the body names, when it is this request's turn."""
        model = body.pop("model", None)
        name = self._name(model)
        body = _as_engines_read(body)
        _check_numbers(body)
        is_shown = body.pop("logprobs", None) not in (None, False)
        body.pop("top_logprobs", None)
        backend = self._backends[name]
        request = Request(
            model=backend.identity,
            script=Script.of(messages),
            params=_params(body, interface),
            repeat=0 if body.get("seed") is not None else next(self._repeats),
        )
        async with self._turns[name]:
            reply = without_secrets(await backend.ask(request))
        if self._delay:
            await asyncio.sleep(self._delay)
        if reply.error:
            # A backend raises Retry for what may pass, so asking again would not help: not a 5xx.
            raise Refused(400, reply.error)
        steps = (Step(reply.text, {reply.text: -0.1}),) if is_shown else ()
        return str(model), Spoken(**vars(reply), steps=steps)

    def _name(self, model: object) -> str:
        if not isinstance(model, str) or not model:
            raise Refused(400, "the body needs 'model', a name")
        for name in (model, ANY_MODEL):
            if name in self._backends:
                return name
        raise Refused(404, f"no model '{model}'; known: {', '.join(self._backends)}")


def _listed(name: str, backend: Backend) -> dict[str, Any]:
    row = {"id": name, "object": "model", "owned_by": "flipmeter"}
    # As OpenRouter does it: what is not in this list is not there.
    parameters = getattr(backend, "parameters", None)
    return (
        row
        if parameters is None
        else row | {"supported_parameters": sorted({*parameters, "logprobs"})}
    )


def _decode(content: bytes) -> dict[str, Any]:
    """The body of a request for one whole answer."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(400, "the body must be a JSON object")
    if body.pop("stream", None):
        raise Refused(400, "'stream' is not supported; leave it out")
    if body.pop("n", None) not in (None, 1):
        raise Refused(400, "'n' must be 1; send the request again for another answer")
    return body


def _messages(rows: object) -> tuple[Message, ...]:
    if not isinstance(rows, list) or not rows:
        raise Refused(400, "the body needs 'messages', a list of role and content")
    return tuple(_message(row) for row in rows)


def _message(row: object) -> Message:
    role = ROLES.get(str(row.get("role"))) if isinstance(row, dict) else None
    if role is None or not isinstance(row, dict):
        raise Refused(
            400, f"a message needs a role, one of {', '.join(ROLES)}; got {str(row)[:80]}"
        )
    return Message(role, _text(row.get("content")))


def _text(content: object) -> str:
    """A content that is a string or a list of text parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise Refused(400, f"content must be text; got {str(content)[:80]}")
    return "".join(map(str, texts))


def _input(instructions: object, told: object) -> tuple[Message, ...]:
    """The messages of the Responses API: instructions, then one text or a list of messages."""
    rows = [{"role": "user", "content": told}] if isinstance(told, str) else told
    if not isinstance(rows, list) or not rows:
        raise Refused(400, "the body needs 'input', a text or a list of role and content")
    for row in rows:
        if isinstance(row, dict) and row.get("type", "message") != "message":
            raise Refused(400, f"'input' may contain messages only; got {str(row)[:80]}")
    first = [] if instructions is None else [{"role": "system", "content": instructions}]
    return _messages([*first, *rows])


def _as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """A body of the Responses API in the words of chat completions."""
    for name in ("tools", "previous_response_id", "conversation", "prompt"):
        if body.pop(name, None):
            raise Refused(400, f"'{name}' is not supported; leave it out")
    text = body.pop("text", None) or {}
    kind = text.get("format", {"type": "text"}) if isinstance(text, dict) else None
    if not isinstance(kind, dict) or kind.get("type") != "text":
        raise Refused(400, "'text' may ask for plain text only")
    include = body.pop("include", None) or []
    if not isinstance(include, list):
        raise Refused(400, f"'include' must be a list; got {str(include)[:80]}")
    if SHOWN in include:
        body["logprobs"] = True
    else:
        body.pop("top_logprobs", None)
    reasoning = body.pop("reasoning", None)
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        body["reasoning"] = {"effort": reasoning["effort"]}
    body.pop("tool_choice", None)
    return body


def _prompt(prompt: object) -> str:
    text = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(text, str):
        raise Refused(400, "the body needs 'prompt', one text")
    return text


def _as_engines_read(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a body that change a reply; the limit has one name for every engine."""
    told = {k: v for k, v in body.items() if v is not None and k not in NOT_ASKED}
    limits = [told.pop(name) for name in reversed(LIMITS) if name in told]
    return told | ({"max_tokens": limits[0]} if limits else {})


def _check_numbers(body: Mapping[str, Any]) -> None:
    """Refuse limits and temperatures that no engine takes."""
    limit = body.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise Refused(400, f"the token limit must be a whole number of 1 or more; got {limit!r}")
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None and (type(value) not in (int, float) or value < 0):
            raise Refused(400, f"'{name}' must be a number of 0 or more; got {value!r}")


def _params(body: Mapping[str, Any], interface: Interface) -> str:
    try:
        return canonical_json({**body, "interface": interface})
    except ValueError as error:
        raise Refused(400, f"the body contains a number that is not finite: {error}") from error


def _completion(
    kind: str, stem: str, model: str, choice: dict[str, Any], reply: Reply
) -> web.Response:
    """The answer as an OpenAI endpoint would write it."""
    usage = reply.usage
    prompt, completion = usage.prompt or 0, usage.completion or 0
    answer = {
        "id": f"{stem}-{os.urandom(12).hex()}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                **choice,
                "logprobs": _logprobs(kind, reply),
                "finish_reason": reply.finish or "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached or 0},
            "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
        },
    }
    return web.json_response(answer)


def _response(model: str, reply: Reply) -> web.Response:
    """The answer as OpenAI's Responses API would write it."""
    usage, name = reply.usage, os.urandom(12).hex()
    prompt, completion = usage.prompt or 0, usage.completion or 0
    shown = _logprobs("chat.completion", reply) or {"content": []}
    text = {"type": "output_text", "annotations": [], "logprobs": shown["content"]}
    said: dict[str, Any] = {**text, "text": reply.text}
    if reply.finish == "refusal":
        said = {"type": "refusal", "refusal": reply.text}
    why = INCOMPLETE.get(reply.finish)
    message = {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "status": "incomplete" if why else "completed",
        "content": [said],
    }
    answer = {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": int(time.time()),
        "status": message["status"],
        "incomplete_details": {"reason": why} if why else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
            "total_tokens": prompt + completion,
        },
    }
    return web.json_response(answer)


def _logprobs(kind: str, reply: Reply) -> dict[str, Any] | None:
    """The tokens of a reply with what stood beside them, as either interface writes it."""
    steps = reply.steps if isinstance(reply, Spoken) else ()
    if not steps:
        return None
    if kind == "text_completion":
        return {
            "tokens": [step.token for step in steps],
            "token_logprobs": [step.shown[step.token] for step in steps],
            "top_logprobs": [dict(step.shown) for step in steps],
        }
    return {
        "content": [
            {
                **_listed_token(step.token, step.shown[step.token]),
                "top_logprobs": [_listed_token(*one) for one in step.shown.items()],
            }
            for step in steps
        ]
    }


def _listed_token(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}


def _error(status: int, message: str, after: float | None = None) -> web.Response:
    kind = KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    headers = {} if after is None else {"Retry-After": f"{after:g}"}
    error = {"message": message, "type": kind, "param": None, "code": status}
    return web.json_response({"error": error}, status=status, headers=headers)


def open_for_words(address: str) -> Backend:
    """What answers prompts alone: a simulated rater has to read them, and knows the reviews."""
    if address.startswith("sim/"):
        return reading(address, world(load("reviews")))
    return open_backend(Model(address))


async def _serve_alone(address: str) -> None:
    async with serve({ANY_MODEL: open_for_words(address)}) as url:
        print(url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve_alone(sys.argv[1]))
