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
CUT = 2
"""The number of the rule by which prompts are cut; one more whenever it changes."""
RENAMED = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}


class LlamaBackend:
    """One engine with one slot. Equal requests get equal replies, whatever was asked before.

    llama.cpp keeps what its slot held and computes only the rest of a prompt; where that rest
    begins moves the last bits of the result, and now and then a label. So every prompt is computed
    in the same pieces, cut by its content alone: the first paragraph, the rest of its head, and
    what follows. The slot is brought back to the end of a piece before the next is computed.
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
        self._held: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self.n_processed = 0

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        with self._lock:
            self._server, self._held = None, ()

    def _ask(self, request: Request) -> Reply:
        with self._lock:
            if self._server is None:
                self._server = _start(self.path, self._context)
            start = time.perf_counter()
            body = json.loads(request.params)
            text, anchor = self._text(request, body.pop("interface", "completions"))
            try:
                self._return_to(_pieces(text[:anchor]))
                answer = self._complete(text, body)
            except (RuntimeError, ValueError, OSError) as error:
                self._held = ()
                return Reply(error=f"llama.cpp: {error}")
            return _reply(answer, time.perf_counter() - start)

    def _return_to(self, ends: tuple[str, ...]) -> None:
        """Bring the slot to the state "holds the last of these prefixes", always by the same steps.

        Each prefix is the one before and a piece more. One that was just computed is asked for
        again, and so is the last one that is held: either way this drops what stands behind it and
        computes its last token alone, so that the next piece begins in the same state every time.
        """
        n_held = sum(1 for held, end in zip(self._held, ends, strict=False) if held == end)
        self._held = self._held[:n_held]
        if n_held:
            self._complete(self._held[-1], {"max_tokens": 0})
        for end in ends[n_held:]:
            # What a slot happens to share with the first piece is computed anew.
            self._complete(end, {"max_tokens": 0, "cache_prompt": bool(self._held)})
            self._complete(end, {"max_tokens": 0})
            self._held += (end,)

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

    def _text(self, request: Request, interface: str) -> tuple[str, int]:
        """Return the text the engine sees and where its shared part ends."""
        *before, last = request.script.messages
        anchor = request.script.anchor or _last_break(last.content)
        if interface == "completions":
            head = "".join(message.content + BREAK for message in before)
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


def _pieces(head: str) -> tuple[str, ...]:
    """Return the prefixes at which a prompt is cut: after its first paragraph, and all of it."""
    first = head.find(BREAK)
    return (head,) if first < 1 else (head[:first], head)


def _last_break(text: str) -> int:
    """Return where to split a text that marks no anchor: by its content, never by its history."""
    return max(text.rfind(BREAK), 1)


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
    """Return the engine, its version and how prompts are cut: another may round otherwise."""
    return f"xllamacpp {version('xllamacpp')} cut {CUT}"


def file_digest(path: Path) -> str:
    if not path.is_file():
        raise Problem(f"no model file {path}; name a GGUF file that exists")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
