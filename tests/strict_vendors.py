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
    answers: list[dict[str, Any]] = field(default_factory=list)

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
            known.answers.append(said)
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

    with listening(Handler) as known.url:
        yield known


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on this machine, and give the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
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
    *("prompt_cache_key", "prompt_cache_options"),
}
RESPONSES = {
    *("model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "reasoning"),
    *("top_logprobs", "include", "store", "text", "truncation", "metadata", "prompt_cache_key"),
    "prompt_cache_options",
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
    return 200, chat(body)


def said_in(messages: list[dict[str, Any]]) -> str:
    """What messages say; a content may be a text or parts of one."""
    contents = [message["content"] for message in messages]
    texts = [
        content if isinstance(content, str) else "".join(part["text"] for part in content)
        for content in contents
    ]
    return "\n".join(texts)


def _marks_refusal(body: dict[str, Any]) -> Answer | None:
    """Marks for the cache are known since gpt-5.6, and each stands in a part of its own."""
    is_new = re.match(r"gpt-(5\.([6-9]|\d\d)|[6-9])", body["model"]) is not None
    if "prompt_cache_options" in body and not is_new:
        name = "prompt_cache_options"
        return openai_error(f"Unsupported parameter: '{name}'", name, "unsupported_parameter")
    messages = body.get("messages") or body.get("input") or []
    parts = [
        (message["role"], part)
        for message in messages
        if not isinstance(message["content"], str)
        for part in message["content"]
    ]
    marked = [role for role, part in parts if "prompt_cache_breakpoint" in part]
    if marked and (not is_new or len(marked) > 4 or "assistant" in marked):
        return openai_error("prompt_cache_breakpoint is not supported here", None, None)
    kind = "text" if "messages" in body else "input_text"
    if any(part["type"] != kind or not part["text"] for _, part in parts):
        return openai_error(f"Invalid value: a part must be '{kind}'", None, "invalid_value")
    return None


def _openai_refusal(body: dict[str, Any], limit: str) -> Answer | None:
    if refusal := _marks_refusal(body):
        return refusal
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


def chat(body: dict[str, Any]) -> dict[str, Any]:
    prompt = said_in(body["messages"])
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
    prompt = said_in(body["input"])
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


# --- Anthropic --------------------------------------------------------------------------------

MESSAGES = {
    *("model", "messages", "max_tokens", "system", "stop_sequences", "thinking", "output_config"),
    *("metadata", "service_tier", "cache_control"),
}
CLAUDE_SAMPLING = ("temperature", "top_p", "top_k")
OLD_CLAUDE = re.compile(r"claude-3|claude-(opus|sonnet|haiku)-4(-[0-6])?(-20\d{6})?$")


def anthropic_error(message: str, status: int = 400, kind: str = "invalid_request_error") -> Answer:
    return status, {"type": "error", "error": {"type": kind, "message": message}}


def anthropic(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Anthropic's Messages API."""
    if headers.get("x-api-key") != "sk-ant-test-key":
        return anthropic_error("invalid x-api-key", 401, "authentication_error")
    if path != "/v1/messages":
        return anthropic_error("Not found", 404, "not_found_error")
    version = headers.get("anthropic-version")
    if version not in ("2023-06-01", "2026-10-21"):
        return anthropic_error("anthropic-version: header is required")
    known = MESSAGES | ({*CLAUDE_SAMPLING} if version == "2023-06-01" else set())
    for name in body:
        if name not in known:
            return anthropic_error(f"{name}: Extra inputs are not permitted")
    if refusal := _claude_refusal(body):
        return refusal
    return 200, _message(body)


def _claude_refusal(body: dict[str, Any]) -> Answer | None:
    if not isinstance(body.get("max_tokens"), int):
        return anthropic_error("max_tokens: Field required")
    is_old = OLD_CLAUDE.match(body["model"]) is not None
    for name in CLAUDE_SAMPLING:
        if name in body and not is_old:
            return anthropic_error(f"`{name}` is deprecated for this model.")
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        if not is_old:
            return anthropic_error('"thinking.type.enabled" is not supported for this model.')
        if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            return anthropic_error("`max_tokens` must be greater than `thinking.budget_tokens`.")
        if body.get("temperature", 1) != 1:
            return anthropic_error("`temperature` may only be set to 1 when thinking is enabled.")
    return _claude_messages(body)


def _claude_messages(body: dict[str, Any]) -> Answer | None:
    for place, message in enumerate(body["messages"]):
        if message["role"] not in ("user", "assistant"):
            return anthropic_error(f"messages.{place}.role: Input should be 'user' or 'assistant'")
    marked = 0
    for block in _blocks(body):
        if not block["text"].strip():
            return anthropic_error("messages: text content blocks must contain non-whitespace text")
        marked += "cache_control" in block
    return anthropic_error("A maximum of 4 blocks with cache_control") if marked > 4 else None


def _blocks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that a body says, block by block, the system prompt first."""
    contents = [body.get("system") or [], *(message["content"] for message in body["messages"])]
    parts = [[{"text": one}] if isinstance(one, str) else one for one in contents]
    return [block for some in parts for block in some]


def _message(body: dict[str, Any]) -> dict[str, Any]:
    prompt = "".join(block["text"] for block in _blocks(body))
    is_thinking = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    thought = [{"type": "thinking", "thinking": "[9] it is", "signature": "s"}]
    n_thought = 2 if is_thinking else 0
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [
            *(thought if is_thinking else []),
            {"type": "text", "text": first_label(prompt), "citations": None},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": tokens(prompt),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1 + n_thought,
            "output_tokens_details": {"thinking_tokens": n_thought},
        },
    }


# --- Gemini -----------------------------------------------------------------------------------

GENERATE = {"contents", "systemInstruction", "generationConfig", "safetySettings"}
GENERATION = {
    *("temperature", "topP", "topK", "maxOutputTokens", "seed", "stopSequences", "logprobs"),
    *("responseLogprobs", "thinkingConfig", "responseMimeType", "responseSchema"),
}


def gemini_error(message: str, status: int = 400, kind: str = "INVALID_ARGUMENT") -> Answer:
    return status, {"error": {"code": status, "message": message, "status": kind}}


def gemini(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Google's generateContent."""
    if headers.get("x-goog-api-key") != "gemini-test-key":
        status, said = gemini_error("API key not valid. Please pass a valid API key.")
        said["error"]["details"] = [{"reason": "API_KEY_INVALID"}]
        return status, said
    found = re.fullmatch(r"/v1beta/models/([\w.-]+):generateContent", path)
    if found is None:
        return gemini_error(f"{path} is not found", 404, "NOT_FOUND")
    config = body.get("generationConfig", {})
    for place, names in (("root", set(body) - GENERATE), ("config", set(config) - GENERATION)):
        for name in sorted(names):
            return gemini_error(
                f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find "
                "field."
            )
    for turn in body["contents"]:
        if turn["role"] not in ("user", "model"):
            return gemini_error("Please use a valid role: user, model.")
    if config.get("responseLogprobs") and "2.5" in found[1]:
        return gemini_error(f"Logprobs is not enabled for models/{found[1]}")
    return 200, _generated(found[1], body, config)


def _generated(model: str, body: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    turns = [body.get("systemInstruction", {"parts": []}), *body["contents"]]
    prompt = "".join(part["text"] for turn in turns for part in turn["parts"])
    label = first_label(prompt)
    thinking = config.get("thinkingConfig", {})
    is_thinking = bool(thinking) and thinking.get("thinkingBudget") != 0
    thought = [{"text": "[9] it is", "thought": True}] if is_thinking else []
    candidate: dict[str, Any] = {
        "content": {"role": "model", "parts": [*thought, {"text": label}]},
        "finishReason": "STOP",
        "index": 0,
    }
    if config.get("responseLogprobs"):
        token = {"token": label, "tokenId": 1, "logProbability": -0.1}
        other = {"token": "9", "tokenId": 2, "logProbability": -3.0}
        candidate["logprobsResult"] = {
            "chosenCandidates": [token],
            "topCandidates": [{"candidates": [token, other]}],
        }
    usage = {"promptTokenCount": tokens(prompt), "candidatesTokenCount": 1}
    usage["totalTokenCount"] = usage["promptTokenCount"] + 1
    return {
        "candidates": [candidate],
        "usageMetadata": usage | ({"thoughtsTokenCount": 2} if is_thinking else {}),
        "modelVersion": model,
    }


# --- Mistral, Groq, Together, Azure -----------------------------------------------------------

MISTRAL = {
    *("model", "messages", "max_tokens", "temperature", "top_p", "random_seed", "stop", "n"),
    *("response_format", "safe_prompt", "presence_penalty", "frequency_penalty", "top_k"),
    *("repetition_penalty", "logprobs", "top_logprobs"),
}
GROQ_REFUSES = ("logprobs", "top_logprobs", "logit_bias", "top_k", "min_p", "repetition_penalty")
TOGETHER = {
    *("model", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop"),
    *("repetition_penalty", "logprobs", "response_format", "n"),
}


def mistral(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Mistral's chat completions, which name what they do not take as pydantic does."""
    if headers.get("authorization") != "Bearer mistral-test-key":
        return 401, {"detail": "Unauthorized"}
    for name in sorted(set(body) - MISTRAL):
        fault = {"type": "extra_forbidden", "loc": ["body", name]}
        return 422, {"detail": [{**fault, "msg": "Extra inputs are not permitted"}]}
    return 200, chat(body)


def groq(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Groq's chat completions."""
    if headers.get("authorization") != "Bearer groq-test-key":
        return openai_error("Invalid API Key", None, "invalid_api_key", 401)
    if path != "/openai/v1/chat/completions":
        return openai_error(f"Unknown request URL: POST {path}", None, "unknown_url", 404)
    for name in GROQ_REFUSES:
        if name in body:
            return openai_error(f"property '{name}' is unsupported", None, None)
    return 200, chat(body)


def together(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Together's chat completions: log-probabilities are asked for by number, shown as a map."""
    if headers.get("authorization") != "Bearer together-test-key":
        return openai_error("Invalid API key provided", None, "invalid_api_key", 401)
    for name in sorted(set(body) - TOGETHER):
        return openai_error(f"Unknown parameter: {name}", name, "unknown_parameter")
    shown = body.get("logprobs")
    if shown is not None and (isinstance(shown, bool) or not 0 <= shown <= 20):
        return openai_error("logprobs must be an integer between 0 and 20", "logprobs", None)
    answer = chat({**body, "logprobs": False})
    if shown is not None:
        label = answer["choices"][0]["message"]["content"]
        answer["choices"][0]["logprobs"] = {
            "tokens": [label],
            "token_logprobs": [-0.1],
            "top_logprobs": {label: -0.1, "9": -3.0},
        }
    return 200, answer


def azure(path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Answer:
    """Azure's OpenAI, version 1 of its API: a key in a header of its own."""
    if headers.get("api-key") != "azure-test-key" or "authorization" in headers:
        return openai_error("Access denied due to invalid subscription key", None, "401", 401)
    if path not in ("/openai/v1/chat/completions", "/openai/v1/responses"):
        return openai_error("Resource not found", None, "404", 404)
    theirs = {"authorization": "Bearer sk-openai-test-key"}
    return openai(path.removeprefix("/openai"), theirs, body)
