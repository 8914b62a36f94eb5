"""Vendors that bill like their prefix caches: what was read, what was written, what was neither.

Written after the vendors' documentation; no vendor was asked. A prefix is kept from the moment that
the first answer behind it begins: what is sent before pays for it again. Knows nothing of
flipmeter.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = re.compile(r"\w+|[^\w\s]")
"""Nearly what a tokenizer of English makes of it."""


@dataclass(frozen=True)
class Tariff:
    """Prices as shares of that of a prompt token, and the least tokens that are kept."""

    least: int
    read: float
    write: float = 1.0
    step: int = 1


@dataclass
class Bill:
    """Prompt tokens by what they cost."""

    tariff: Tariff
    plain: int = 0
    read: int = 0
    written: int = 0
    n_requests: int = 0

    @property
    def saved(self) -> float:
        """The share of the price of all prompt tokens that the cache saved; below 0 if it cost."""
        whole = self.plain + self.read + self.written
        paid = self.plain + self.read * self.tariff.read + self.written * self.tariff.write
        return 1 - paid / whole if whole else 0.0


Parts = Sequence[tuple[str, bool]]
"""The texts of a prompt in order, each with whether a mark stands at its end."""
Found = tuple[int, int, int]
"""Tokens of a prompt that are plain, read and written."""


@dataclass
class Vendor:
    """A server with a prefix cache and a bill."""

    read_body: Callable[[dict[str, Any]], tuple[Parts, str, bool]]
    answer: Callable[[Found], dict[str, Any]]
    bill: Bill
    is_marked: bool
    latency: float
    kept: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        parts, place, is_implicit = self.read_body(body)
        prefixes = self._prefixes(parts, place, is_implicit)
        whole = len(TOKEN.findall("".join(text for text, _ in parts)))
        with self.lock:
            n_read = max((n for n, name in prefixes if name in self.kept), default=0)
        time.sleep(self.latency)
        with self.lock:
            new = [n for n, name in prefixes if name not in self.kept]
            self.kept |= {name for _, name in prefixes}
        n_written = max(0, max(new, default=0) - n_read) if self.is_marked else 0
        if self.is_marked and not n_read and prefixes:
            n_written = max(n for n, _ in prefixes)  # also who came while another was writing
        found = whole - n_read - n_written, n_read, n_written
        with self.lock:
            self.bill.plain += found[0]
            self.bill.read += n_read
            self.bill.written += n_written
            self.bill.n_requests += 1
        return self.answer(found)

    def _prefixes(self, parts: Parts, place: str, is_implicit: bool) -> list[tuple[int, str]]:
        """The prefixes of a prompt that may be kept: tokens, and a name for what they are."""
        tariff, tokens, marks = self.bill.tariff, list[str](), list[int]()
        for text, is_marked in parts:
            tokens += TOKEN.findall(text)
            marks += [len(tokens)] if is_marked else []
        if not self.is_marked:
            marks = list(range(tariff.step, len(tokens) + 1, tariff.step))
        elif is_implicit:
            marks.append(len(tokens))
        running, done, found = hashlib.sha256(place.encode()), 0, list[tuple[int, str]]()
        for n in sorted(marks):
            running.update("\x1f".join(tokens[done:n]).encode())
            done = n
            if n >= tariff.least:
                found.append((n, running.hexdigest()))
        return found


# --- bodies and answers -----------------------------------------------------------------------


def claude_body(body: dict[str, Any]) -> tuple[Parts, str, bool]:
    contents = [body.get("system") or [], *(turn["content"] for turn in body["messages"])]
    blocks = [
        one for some in contents for one in ([{"text": some}] if isinstance(some, str) else some)
    ]
    return [(one["text"], "cache_control" in one) for one in blocks], body["model"], False


def claude_answer(found: Found) -> dict[str, Any]:
    plain, read, written = found
    usage = {"input_tokens": plain, "cache_read_input_tokens": read}
    usage |= {"cache_creation_input_tokens": written, "output_tokens": 1}
    content = [{"type": "text", "text": "2"}]
    return {"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}


def openai_body(body: dict[str, Any]) -> tuple[Parts, str, bool]:
    contents = [turn["content"] for turn in body["messages"]]
    blocks = [
        one for some in contents for one in ([{"text": some}] if isinstance(some, str) else some)
    ]
    parts = [(one["text"], "prompt_cache_breakpoint" in one) for one in blocks]
    is_implicit = (body.get("prompt_cache_options") or {}).get("mode", "implicit") == "implicit"
    return parts, body["model"], is_implicit


def openai_answer(found: Found) -> dict[str, Any]:
    plain, read, written = found
    usage: dict[str, Any] = {"prompt_tokens": plain + read + written, "completion_tokens": 1}
    usage |= {"prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written}}
    choice = {"index": 0, "message": {"role": "assistant", "content": "2"}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def gemini_body(body: dict[str, Any]) -> tuple[Parts, str, bool]:
    turns = [body.get("systemInstruction", {"parts": []}), *body["contents"]]
    return [(part["text"], False) for turn in turns for part in turn["parts"]], "", False


def gemini_answer(found: Found) -> dict[str, Any]:
    plain, read, _ = found
    usage = {"promptTokenCount": plain + read, "cachedContentTokenCount": read}
    candidate = {"content": {"role": "model", "parts": [{"text": "2"}]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage | {"candidatesTokenCount": 1}}


CLAUDE, CLAUDE_LONG = Tariff(1024, 0.1, 1.25), Tariff(4096, 0.1, 1.25)
OPENAI, OPENAI_MARKED = Tariff(1024, 0.5, step=128), Tariff(1024, 0.1, 1.25)
GEMINI = Tariff(2048, 0.1, step=64)
VENDORS: dict[str, tuple[str, str, Tariff, bool, Any, Any]] = {
    "anthropic/claude-sonnet-4-5": ("ANTHROPIC", "/v1", CLAUDE, True, claude_body, claude_answer),
    "anthropic/claude-opus-4-5": (
        "ANTHROPIC",
        "/v1",
        CLAUDE_LONG,
        True,
        claude_body,
        claude_answer,
    ),
    "openai/gpt-4o": ("OPENAI", "/v1", OPENAI, False, openai_body, openai_answer),
    "openai/gpt-5.6": ("OPENAI", "/v1", OPENAI_MARKED, True, openai_body, openai_answer),
    "gemini/gemini-2.5-flash": ("GEMINI", "/v1beta", GEMINI, False, gemini_body, gemini_answer),
}
"""Models with the stem of their variables, the path of the API, and how they bill."""


@contextmanager
def billing(model: str, latency: float = 0.05) -> Iterator[tuple[str, Bill]]:
    """Serve a model's vendor; gives its address and the bill."""
    _, path, tariff, is_marked, read_body, answer = VENDORS[model]
    vendor = Vendor(read_body, answer, Bill(tariff), is_marked, latency)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._say(vendor.ask(body))

        def do_GET(self) -> None:
            self._say({"data": []})

        def _say(self, said: dict[str, Any]) -> None:
            content = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{path}", vendor.bill
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
