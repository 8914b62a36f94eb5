"""llama.cpp in this process: the embedded model, and any GGUF file."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from flipmeter.ask.hf_loading import THOUGHTS
from flipmeter.ask.label_scores import Ids, Tree, ending, written
from flipmeter.ask.weights import tensor_types
from flipmeter.chance import n_shared
from flipmeter.documents import known_sha256
from flipmeter.errors import Problem
from flipmeter.types import Decoding, Reply, Request, Usage

CONTEXT = 8192
BATCH = 512
SMALLEST = 8
"""K formats compute a batch of fewer tokens otherwise, F16 a batch of one."""
SHOWN = 32
"""Number of tokens examined where a label may begin or continue."""
RENAMED = {"max_tokens": "n_predict", "repetition_penalty": "repeat_penalty"}


class LlamaBackend:
    """One engine with one slot, built to give equal requests equal replies, whatever came before.

    llama.cpp keeps what its slot held and computes only the rest of a prompt. Where that rest
    begins must not move the last bits of a result, and now and then a label. It does not without
    flash attention, without repacked K formats, and if no batch of a prompt is a small one. Whether
    this holds for a file on a processor is measured (`model.self_test`).
    """

    concurrency = 2  # one prompt is answered while the next is taken apart into tokens
    is_reproducible = True
    parameters = frozenset(vars(Decoding()))

    def __init__(self, path: Path, identity: str) -> None:
        if not path.is_file():
            raise Problem(f"no model file {path}; use an existing GGUF file")
        self.identity = identity
        self.path = path
        self._server: Any = None
        self._starting, self._slot = threading.Lock(), threading.Lock()
        self._held: list[int] | None = []
        self._tree = lru_cache(maxsize=1024)(self._grow)

    async def ask(self, request: Request) -> Reply:
        return await asyncio.to_thread(self._ask, request)

    async def close(self) -> None:
        with self._slot:
            self._server, self._held = None, []

    def _ask(self, request: Request) -> Reply:
        with self._starting:
            if self._server is None:
                self._server = _start_llama(self.path)
        body = json.loads(request.params)
        try:
            text = self._text(request, body.pop("interface", "completions"))
            tokens = self._tokens(text)
            tree = self._tree(request.answers, ending(text)) if request.answers else None
        except (RuntimeError, ValueError, OSError) as error:
            return Reply(error=f"llama.cpp: {error}")
        if tree:
            body["n_probs"] = SHOWN
        with self._slot:
            start = time.perf_counter()
            try:
                answer = self._begin(tokens, body)
                scores = self._scores(tokens, tree, answer["choices"][0]) if tree else None
            except (RuntimeError, ValueError, OSError) as error:
                self._held = None
                return Reply(error=f"llama.cpp: {error}")
            return _llama_reply(answer, scores, time.perf_counter() - start)

    def _begin(self, tokens: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
        """Complete a prompt that is computed in no small batch, whatever the slot holds."""
        self._make_room(tokens)
        answer = self._complete(tokens, body)
        self._held = tokens
        return answer

    def _make_room(self, tokens: list[int]) -> None:
        """Let the slot hold other tokens where too few would be left to compute, or too much held.

        Too much is what came after the last prompt, where this one goes on from it: such tokens
        were computed one by one. The slot then holds the start of the prompt, and two others.
        """
        held = self._held
        n_held = n_shared(held, tokens) if held is not None else 0
        n_kept = _n_kept(n_held if held and len(held) >= SMALLEST else 0, len(tokens))
        goes_on = held is None or 0 < n_held == len(held)
        if n_kept != n_held or goes_on:
            others = [one for one in (10, 11, 12) if [one] != tokens[n_kept : n_kept + 1]][:2]
            self._complete([*tokens[:n_kept], *others], {"max_tokens": 0})

    def _scores(
        self, tokens: list[int], tree: Tree[int], choice: Mapping[str, Any]
    ) -> tuple[float, ...] | None:
        """The log-probability of each label as what follows the prompt.

        The reply's own tokens show some forks of the tree; the others are walked to, always in
        the same order. The slot keeps the prompt as it is: a fork is computed behind it.
        """
        if any(choice["text"].lstrip().startswith(start) for start, _ in THOUGHTS):
            return None
        known = _probabilities_at_forks(choice, tree)

        def shown_after(place: Ids) -> Mapping[int, float]:
            if place not in known:
                # What is drawn does not matter, but half a character would show no probabilities.
                fields = {"max_tokens": 1, "n_probs": SHOWN, "logit_bias": [[self._letter, 1e4]]}
                ask = self._complete if place else self._begin
                step = ask([*tokens, *place], fields)["choices"][0]["logprobs"]["content"][0]
                known[place] = _step_logprobs(step)
            return known[place]

        return tree.scores(shown_after)

    def _grow(self, answers: tuple[str, ...], end: str) -> Tree[int]:
        return written(answers, end, lambda text: self._tokens(text, add_special=False))

    @cached_property
    def _letter(self) -> int:
        return self._tokens("a", add_special=False)[-1]

    def _complete(self, tokens: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
        fields = {RENAMED.get(name, name): value for name, value in body.items()}
        answer: dict[str, Any] = self._server.handle_completions(
            {"prompt": tokens, "cache_prompt": True, "id_slot": 0, **fields}
        )
        if "error" in answer:
            raise ValueError(answer["error"].get("message", answer["error"]))
        return answer

    def _tokens(self, text: str, *, add_special: bool = True) -> list[int]:
        fields = {"content": text, "add_special": add_special, "parse_special": True}
        return list(self._post("/tokenize", fields)["tokens"])

    def _text(self, request: Request, interface: str) -> str:
        """The text the engine sees; for a chat it has the template that the weights carry."""
        if interface == "completions":
            return request.script.text
        said = [{"role": one.role, "content": one.content} for one in request.script.messages]
        return str(self._post("/apply-template", {"messages": said})["prompt"])

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


def _n_kept(n_usable: int, n_tokens: int) -> int:
    """Number of prompt tokens kept in the slot, so that the rest is not a small batch."""

    def is_even(n_kept: int) -> bool:
        n_last = (n_tokens - n_kept) % BATCH
        return n_kept < n_tokens and (n_last == 0 or n_last >= SMALLEST)

    found = next(filter(is_even, range(n_usable, -1, -1)), None)
    if found is not None:
        return found
    return 2 * SMALLEST if n_tokens > BATCH else 0  # a whole prompt of 8 tokens at most, or 513


# A proxy of the user's is not for this process's own loopback address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _start_llama(path: Path) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.n_ubatch = BATCH
    params.verbosity = 0
    params.warmup = False
    params.cache_ram_mib = 0  # requests come sorted by prefix: there is nothing to bring back
    # Flash attention computes a batch of 64 tokens or more otherwise than a smaller one.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Repacked weights are computed in tiles of tokens: last bits depend on the place in a tile.
    params.no_extra_bufts = not is_plain(path)
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = n_cores()
        threads.poll = 0  # waiting threads sleep: a spinning one steals the core of the other
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise Problem(f"llama.cpp cannot load {path} ({error}); is it a GGUF file?") from error


def n_cores() -> int:
    """Number of cores, or of those that a scheduler such as Ray assigns."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told):
        return int(told)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _llama_reply(
    answer: Mapping[str, Any], scores: tuple[float, ...] | None, seconds: float
) -> Reply:
    choice, usage = answer["choices"][0], answer.get("usage", {})
    return Reply(
        text=choice.get("text") or "",
        finish=choice.get("finish_reason") or "",
        scores=scores,
        usage=Usage(
            prompt=usage.get("prompt_tokens"),
            cached=usage.get("prompt_tokens_details", {}).get("cached_tokens"),
            completion=usage.get("completion_tokens"),
        ),
        seconds=seconds,
        fingerprint=str(answer.get("system_fingerprint", "")),
    )


def _probabilities_at_forks(
    choice: Mapping[str, Any], tree: Tree[int]
) -> dict[Ids, Mapping[int, float]]:
    """The probabilities at the forks of a token tree along a reply.

    The engine shows no step that ends within a character: the bytes of the steps must make up the
    text, or the next one stands somewhere else.
    """
    text, said = choice["text"].encode(), b""
    place: Ids = ()
    known: dict[Ids, Mapping[int, float]] = {}
    for step in (choice.get("logprobs") or {}).get("content") or ():
        said += bytes(step["bytes"])
        if not (tree.branches(place) and text.startswith(said)):
            break
        known[place] = _step_logprobs(step)
        place = (*place, step["id"])
    return known


def _step_logprobs(step: Mapping[str, Any]) -> dict[int, float]:
    return {one["id"]: one["logprob"] for one in [*step["top_logprobs"], step]}


PLAIN = frozenset({"F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"})
"""Formats whose tokens are computed alike in batches of any size but one, repacked or not."""


def engine(path: Path | None = None) -> str:
    """The engine, its version and what moves last bits, for a file or for plain weights.

    What it says is part of request keys: it differs where the computation does, and nowhere else.
    """
    said = f"xllamacpp {version('xllamacpp')} without flash attention"
    return said if path is None or is_plain(path) else f"{said} or repacking, batches from 8 tokens"


def is_plain(path: Path) -> bool:
    """Whether all weights of a file are in plain formats, or the file is unreadable."""
    status = path.stat()
    return _tensor_types_cached(path, status.st_size, status.st_mtime_ns) <= PLAIN


@lru_cache(maxsize=64)
def _tensor_types_cached(path: Path, size: int, changed: int) -> frozenset[str]:
    return tensor_types(path)


def file_digest(path: Path) -> str:
    if not path.is_file():
        raise Problem(f"no model file {path}; use an existing GGUF file")
    return known_sha256(path)
