"""A llama.cpp server for the peers benchmark, in a process of its own.

    python benchmarks/peers_server.py FILE.gguf HOST_CACHE_MIB [like-ours]

It prints its address and ends with its standard input. One slot and all cores, as flipmeter's own
engine has them; the host cache keeps the states of slots that were overwritten (8192 MiB is the
server's default, 0 is none). `like-ours` is the engine as flipmeter starts it, without flash
attention: only so do replies not depend on what was asked before.
"""

from __future__ import annotations

import json
import subprocess  # the server has a process of its own
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from peers_ours import processed

from flipmeter.ask.llama import CONTEXT, _start_llama, n_cores

HOST_CACHE = 8192
LIKE_OURS = "like-ours"


@dataclass(frozen=True)
class Server:
    """A server that is up, and how long its start took."""

    address: str
    seconds: float

    @property
    def base_url(self) -> str:
        return f"{self.address}/v1"

    def processed(self) -> int:
        """Number of prompt tokens processed so far, without cached ones."""
        return processed(self._read("/metrics"))

    def tokenize(self, text: str) -> list[int]:
        """A prompt's tokens as the completions endpoint would make them."""
        body = {"content": text, "add_special": True, "parse_special": True}
        return list(json.loads(self._read("/tokenize", body))["tokens"])

    def weights_format(self) -> str:
        """The format of the weights, as the engine names it."""
        return str(json.loads(self._read("/props")).get("model_ftype", ""))

    def _read(self, path: str, body: Mapping[str, Any] | None = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        query = urllib.request.Request(self.address + path, data=data, headers=headers)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(query, timeout=60) as answer:
            return str(answer.read().decode())


@contextmanager
def served(
    weights: Path, *, host_cache: int = HOST_CACHE, is_like_ours: bool = False
) -> Iterator[Server]:
    """Serve a weights file from a fresh process: nothing is cached yet."""
    start = time.perf_counter()
    command = [sys.executable, __file__, str(weights), str(host_cache)]
    command += [LIKE_OURS] if is_like_ours else []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = next((line for line in process.stdout if line.startswith("http")), "").strip()
        if not address:
            raise SystemExit(f"llama.cpp did not serve {weights}; what it said stands above")
        try:
            yield Server(address, time.perf_counter() - start)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()


def trie_size(prompts: Sequence[list[int]]) -> int:
    """The least number of tokens to process: each shared beginning once."""
    ordered = sorted(prompts)
    shared = sum(_n_shared(before, after) for before, after in pairwise(ordered))
    return sum(map(len, ordered)) - shared


def _n_shared(a: list[int], b: list[int]) -> int:
    differing = (place for place, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(a), len(b)))


def main() -> None:
    path, host_cache, *like = sys.argv[1:]
    server = _start_llama(Path(path)) if like == [LIKE_OURS] else usual(path, int(host_cache))
    print(server.listening_address, flush=True)
    sys.stdin.read()


def usual(path: str, host_cache: int) -> Any:
    """The engine with its own defaults."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.verbosity = 0
    params.warmup = False
    params.endpoint_metrics = True
    params.cache_ram_mib = host_cache
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = n_cores()
        threads.poll = 0  # as in flipmeter's engine
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
