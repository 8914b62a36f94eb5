"""Local servers that refuse what the vendors' APIs refuse, and answer in their words.

They know a label list in a prompt and answer with its first label. What they refuse is written
after the vendors' public documentation and their SDKs; no vendor was asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Answer = tuple[int, dict[str, Any]]


@dataclass
class Vendor:
    """A server of one vendor: bodies and headers as they came, answers by its rules."""

    answer: Callable[[str, Mapping[str, str], dict[str, Any]], Answer]
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The bodies that were answered."""
        pairs = zip(self.bodies, self.statuses, strict=True)
        return [body for body, status in pairs if status == 200]


@contextmanager
def vendor(answer: Callable[[str, Mapping[str, str], dict[str, Any]], Answer]) -> Iterator[Vendor]:
    """Serve the rules of a vendor on this machine."""
    known = Vendor(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(content)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, said = known.answer(self.path, headers, body)
            known.bodies.append(body)
            known.headers.append(headers)
            known.paths.append(self.path)
            known.statuses.append(status)
            self._say(status, said)

        def do_GET(self) -> None:
            self._say(200, {"data": []})

        def _say(self, status: int, said: dict[str, Any]) -> None:
            content = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def first_label(prompt: str) -> str:
    """The first label of a prompt's list, `1` if there is no list."""
    found = re.search(r"\[([^\]:,]+)", prompt)
    return found[1].strip() if found else "1"


def tokens(text: str) -> int:
    return max(1, len(text) // 4)


# --- OpenAI -----------------------------------------------------------------------------------

CHAT = {
    *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed"),
    *("stop", "logprobs", "top_logprobs", "reasoning_effort", "response_format", "n", "store"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "service_tier", "verbosity"),
}
RESPONSES = {
    *("model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "reasoning"),
    *("top_logprobs", "include", "store", "text", "truncation", "metadata", "prompt_cache_key"),
}


def openai_error(message: str, param: str | None, code: str | None, status: int = 400) -> Answer:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return status, {"error": error}


def openai(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """OpenAI's chat completions and responses."""
    if headers.get("authorization") != "Bearer sk-openai-test-key":
        return openai_error("Incorrect API key provided", None, "invalid_api_key", 401)
    if path == "/v1/responses":
        return _responses(body)
    if path != "/v1/chat/completions":
        return openai_error(f"Invalid URL (POST {path})", None, None, 404)
    for name in body:
        if name not in CHAT:
            return openai_error(f"Unrecognized request argument supplied: {name}", None, None)
    if refusal := _openai_refusal(body, "max_completion_tokens"):
        return refusal
    return 200, _chat(body)


def _openai_refusal(body: dict[str, Any], limit: str) -> Answer | None:
    model = body["model"]
    is_reasoning = re.match(r"o\d|gpt-5(?!-chat)|gpt-[6-9]", model) is not None
    if not is_reasoning:
        return None
    if "max_tokens" in body:
        return openai_error(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            f"'{limit}' instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    effort = body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")
    if effort == "none" and re.match(r"gpt-5\.", model):
        return None
    if body.get("temperature", 1) != 1:
        return openai_error(
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this "
            "model. Only the default (1) value is supported.",
            "temperature",
            "unsupported_value",
        )
    for name in ("top_p", "logprobs", "top_logprobs", "stop", "presence_penalty"):
        if name in body:
            return openai_error(
                f"Unsupported parameter: '{name}' is not supported with this model.",
                name,
                "unsupported_parameter",
            )
    return None


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    prompt = "\n".join(str(message["content"]) for message in body["messages"])
    label = first_label(prompt)
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": label, "refusal": None},
        "finish_reason": "stop",
        "logprobs": {"content": [_openai_token(label)]} if body.get("logprobs") else None,
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [choice],
        "usage": {
            "prompt_tokens": tokens(prompt),
            "completion_tokens": 1,
            "total_tokens": tokens(prompt) + 1,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _openai_token(label: str) -> dict[str, Any]:
    token = {"token": label, "logprob": -0.1, "bytes": list(label.encode())}
    return {**token, "top_logprobs": [token, {"token": "9", "logprob": -3.0, "bytes": [57]}]}


def _responses(body: dict[str, Any]) -> Answer:
    for name in body:
        if name not in RESPONSES:
            return openai_error(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    limit = body.get("max_output_tokens", 16)
    if limit < 16:
        return openai_error(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but "
            f"got {limit} instead.",
            "max_output_tokens",
            "integer_below_min_value",
        )
    if refusal := _openai_refusal(body, "max_output_tokens"):
        return refusal
    prompt = "\n".join(str(message["content"]) for message in body["input"])
    label = first_label(prompt)
    shows = "message.output_text.logprobs" in body.get("include", [])
    text = {
        "type": "output_text",
        "text": label,
        "annotations": [],
        "logprobs": [_openai_token(label)] if shows else [],
    }
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [text],
    }
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": []}
    n_reasoned = 2 if (body.get("reasoning") or {}).get("effort", "none") != "none" else 0
    return 200, {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": [reasoning, message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "usage": {
            "input_tokens": tokens(prompt),
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 1 + n_reasoned,
            "output_tokens_details": {"reasoning_tokens": n_reasoned},
            "total_tokens": tokens(prompt) + 1 + n_reasoned,
        },
    }
