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
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flipmeter.prefix import n_shared
from flipmeter.types import Decoding, Problem, Reply, Request, Usage

CONTEXT = 8192
BATCH = 512
SPARED = 3
RENAMED = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}


class LlamaBackend:
    """One engine with one slot. Equal requests get equal replies, whatever was asked before.

    llama.cpp keeps what its slot held and computes only the rest of a prompt. Where that rest
    begins must not move the last bits of a result, and now and then a label: without flash
    attention it does not, because a token is then computed alike in a batch of any size but one,
    and no token of a prompt is computed alone.
    """

    concurrency = 2  # one prompt is answered while the next is taken apart into tokens
    is_reproducible = True
    parameters = frozenset({*vars(Decoding())})

    def __init__(self, path: Path, identity: str, *, context: int = CONTEXT) -> None:
        if not path.is_file():
            raise Problem(f"no model file {path}; name a GGUF file that exists")
        self.identity = identity
        self.path = path
        self._context = context
        self._server: Any = None
        self._starting, self._slot = threading.Lock(), threading.Lock()
        self._held: list[int] = []
        self.n_processed = 0

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        with self._slot:
            self._server, self._held = None, []

    def _ask(self, request: Request) -> Reply:
        with self._starting:
            if self._server is None:
                self._server = _start(self.path, self._context)
        body = json.loads(request.params)
        try:
            tokens = self._tokens(self._text(request, body.pop("interface", "completions")))
        except (RuntimeError, ValueError, OSError) as error:
            return Reply(error=f"llama.cpp: {error}")
        with self._slot:
            start = time.perf_counter()
            try:
                self._spare_the_last(tokens)
                answer = self._complete(tokens, body)
            except (RuntimeError, ValueError, OSError) as error:
                self._held = []
                return Reply(error=f"llama.cpp: {error}")
            return _reply(answer, time.perf_counter() - start)

    def _spare_the_last(self, tokens: list[int]) -> None:
        """Make room where the slot holds so much of a prompt that one token is left to compute.

        What the slot then holds is the prompt up to a few tokens before that, and two others.
        """
        n_held = n_shared(self._held, tokens)
        n_new = max(len(tokens) - n_held, 1)  # the last is computed, even if all are held
        if n_new % BATCH == 1 and n_held > SPARED:
            kept = tokens[: n_held - SPARED]
            others = [token for token in (10, 11, 12) if token != tokens[len(kept)]][:2]
            self._complete([*kept, *others], {"max_tokens": 0})

    def _complete(self, tokens: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
        fields = {RENAMED.get(name, name): value for name, value in body.items()}
        answer: dict[str, Any] = self._server.handle_completions(
            {"prompt": tokens, "cache_prompt": True, "id_slot": 0, **fields}
        )
        if "error" in answer:
            raise ValueError(answer["error"].get("message", answer["error"]))
        usage = _usage(answer)
        self.n_processed += (usage.prompt or 0) - (usage.cached or 0)
        self._held = tokens
        return answer

    def _tokens(self, text: str) -> list[int]:
        fields = {"content": text, "add_special": True, "parse_special": True}
        return list(self._post("/tokenize", fields)["tokens"])

    def _text(self, request: Request, interface: str) -> str:
        """Return the text the engine sees."""
        if interface == "completions":
            return request.script.text
        return self._template([(m.role, m.content) for m in request.script.messages])

    def _template(self, messages: list[tuple[str, str]]) -> str:
        """Let the engine put messages into the chat template that the weights carry."""
        body = {"messages": [{"role": role, "content": content} for role, content in messages]}
        return str(self._post("/apply-template", body)["prompt"])

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the engine's own server, on loopback, for what its handle does not offer."""
        query = urllib.request.Request(
            f"{self._server.listening_address}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with _DIRECT.open(query, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


# A proxy of the user's is not for this process's own loopback address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _start(path: Path, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.n_ubatch = BATCH
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
    status = path.stat()
    return _digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
