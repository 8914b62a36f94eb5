"""llama.cpp in this process: the embedded model, and any GGUF file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flipmeter.types import Decoding, Problem, Reply, Request, Usage

BREAK = "\n\n"
CONTEXT = 8192
RENAMED = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}


class LlamaBackend:
    """One engine with one slot. Equal requests get equal replies, whatever was asked before.

    llama.cpp keeps what its slot held and computes only the rest of a prompt. Where that rest
    begins must not move the last bits of a result, and now and then a label: without flash
    attention it does not, because every token is then computed alike in a batch of any size.
    """

    concurrency = 1
    is_reproducible = True
    parameters = frozenset({*vars(Decoding())})

    def __init__(self, path: Path, identity: str, *, context: int = CONTEXT) -> None:
        if not path.is_file():
            raise Problem(f"no model file {path}; name a GGUF file that exists")
        self.identity = identity
        self.path = path
        self._context = context
        self._server: Any = None
        self._lock = threading.Lock()
        self.n_processed = 0

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        with self._lock:
            self._server = None

    def _ask(self, request: Request) -> Reply:
        with self._lock:
            if self._server is None:
                self._server = _start(self.path, self._context)
            start = time.perf_counter()
            body = json.loads(request.params)
            text = self._text(request, body.pop("interface", "completions"))
            try:
                answer = self._complete(text, body)
            except (RuntimeError, ValueError, OSError) as error:
                return Reply(error=f"llama.cpp: {error}")
            return _reply(answer, time.perf_counter() - start)

    def _complete(self, text: str, body: Mapping[str, Any]) -> dict[str, Any]:
        fields = {RENAMED.get(name, name): value for name, value in body.items()}
        answer: dict[str, Any] = self._server.handle_completions(
            {"prompt": text, "cache_prompt": True, "id_slot": 0, **fields}
        )
        if "error" in answer:
            raise ValueError(answer["error"].get("message", answer["error"]))
        usage = _usage(answer)
        self.n_processed += (usage.prompt or 0) - (usage.cached or 0)
        return answer

    def _text(self, request: Request, interface: str) -> str:
        """Return the text the engine sees."""
        messages = request.script.messages
        if interface == "completions":
            return BREAK.join(message.content for message in messages)
        return self._template([(message.role, message.content) for message in messages])

    def _template(self, messages: list[tuple[str, str]]) -> str:
        """Let the engine put messages into the chat template that the weights carry."""
        body = {"messages": [{"role": role, "content": content} for role, content in messages]}
        query = urllib.request.Request(
            f"{self._server.listening_address}/apply-template",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # A proxy of the user's is not for this process's own loopback address.
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(query, timeout=60) as answer:
            return str(json.load(answer)["prompt"])


def _start(path: Path, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.verbosity = 0
    params.warmup = False
    params.cache_ram_mib = 0  # requests come sorted by prefix: there is nothing to bring back
    # Flash attention computes a batch of 64 tokens or more otherwise than a smaller one.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = _cores()
        threads.poll = 0  # waiting threads sleep: a spinning one steals the core of the other
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise Problem(f"llama.cpp cannot load {path} ({error}); is it a GGUF file?") from error


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _reply(answer: Mapping[str, Any], seconds: float) -> Reply:
    choice = answer["choices"][0]
    return Reply(
        text=choice.get("text") or "",
        finish=choice.get("finish_reason") or "",
        usage=_usage(answer),
        seconds=seconds,
        fingerprint=str(answer.get("system_fingerprint", "")),
    )


def _usage(answer: Mapping[str, Any]) -> Usage:
    usage = answer.get("usage", {})
    return Usage(
        prompt=usage.get("prompt_tokens"),
        cached=usage.get("prompt_tokens_details", {}).get("cached_tokens"),
        completion=usage.get("completion_tokens"),
    )


def engine() -> str:
    """Return the engine, its version and what moves last bits: another may round otherwise."""
    return f"xllamacpp {version('xllamacpp')} without flash attention"


def file_digest(path: Path) -> str:
    if not path.is_file():
        raise Problem(f"no model file {path}; name a GGUF file that exists")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
