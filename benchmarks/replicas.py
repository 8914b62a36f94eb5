"""Ask two llama.cpp servers of one model, with prefix groups kept together and dealt out in turn.

    python benchmarks/replicas.py [together] [in-turn] [--items 8] [--heads 4]

Each way has two fresh servers, each with a core of its own (Linux). Dealt out in turn is what a
balancer in front of servers does that ignores prompts. The share is that of prompt tokens
that the servers had in their caches.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from peers_server import Server, served

from flipmeter.ask.engine import Engine
from flipmeter.ask.family import Backend
from flipmeter.ask.names import identity_of, open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.ask.weights import local_models
from flipmeter.run.rate import first_round, seat
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Model, Request

MODEL = "vllm/smollm2-135m"
N_REPLICAS = 2
MAX_TOKENS = 2


def requests_for(n_items: int, n_heads: int) -> list[Request]:
    """The requests of a small study in the order of its plan: one head for each seed."""
    study = read_study(
        {
            "models": [{"model": MODEL, "base_url": ["http://a", "http://b"]}],
            "datasets": ["reviews"],
            "seeds": list(range(n_heads)),
            "probes": ["label_order"],
            "repeats": 1,
            "test_size": n_items,
            "base": {"shots": 1},
            "decoding": {"max_tokens": MAX_TOKENS},
        }
    )
    grid = [condition for condition in conditions(study) if condition.view.name == "base"]
    identities = {seat(condition): identity_of(condition.rater.model) for condition in grid}
    return list(first_round(grid, identities).requests)


async def together(requests: Sequence[Request], urls: Sequence[str]) -> Ledger:
    """Ask as a study with `base_url: [a, b]` does."""
    return await _asked(requests, [open_backend(_model(tuple(urls)))])


async def in_turn(requests: Sequence[Request], urls: Sequence[str]) -> Ledger:
    """Deal the requests out, one to each server."""
    backends = [open_backend(_model(url)) for url in urls]
    dealt = [
        replace(request, model=backends[number % len(backends)].identity)
        for number, request in enumerate(requests)
    ]
    return await _asked(dealt, backends)


def _model(base_url: str | tuple[str, ...]) -> Model:
    return Model(MODEL, base_url=base_url, concurrency=1, timeout=600.0)


async def _asked(requests: Iterable[Request], backends: Sequence[Backend]) -> Ledger:
    ledger = Ledger()
    try:
        engine = Engine({one.identity: one for one in backends}, Store(), ledger)
        await engine.ask(requests)
    finally:
        for backend in backends:
            await backend.close()
    return ledger


WAYS = {"together": together, "in-turn": in_turn}


@contextmanager
def _on_a_core(weights: Path, number: int) -> Iterator[Server]:
    """Serve from one core, so that servers do not wait for each other's threads."""
    cores = os.sched_getaffinity(0)
    with ExitStack() as stack:
        os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})  # a process inherits it
        try:
            server = stack.enter_context(served(weights))
        finally:
            os.sched_setaffinity(0, cores)
        yield server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", default=list(WAYS))
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--heads", type=int, default=4)
    options = parser.parse_args()
    weights = local_models["smollm2-135m"].fetch()
    requests = requests_for(options.items, options.heads)
    print(f"{len(requests)} requests behind {options.heads} heads, {N_REPLICAS} servers")
    for name in options.ways:
        with ExitStack() as stack:
            servers = [stack.enter_context(_on_a_core(weights, n)) for n in range(N_REPLICAS)]
            ledger = asyncio.run(WAYS[name](requests, [server.base_url for server in servers]))
            processed = [server.processed() for server in servers]
        share = ledger.cached_tokens / ledger.prompt_tokens
        print(
            f"{name}: {share:.1%} of {ledger.prompt_tokens:,} prompt tokens from the caches, "
            f"{sum(processed):,} processed ({' + '.join(map(str, processed))}), "
            f"{ledger.failed} failed"
        )


if __name__ == "__main__":
    main()
