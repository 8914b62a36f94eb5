"""Ask the embedded engine the same short prompts in several orders, and count what differs.

    python benchmarks/order.py [--prompts 500] [--model local/smollm2-135m] [--passes random,twice]

One worked example per class, three queries behind each set of examples. Compared with the order of
a plan: two random orders, a run that is stopped half way and goes on in a new engine, each prompt
twice in a row, and two studies that share a third of the prompts. What counts as different is the
text, and the log-probabilities of the labels to the last bit.

`--passes` names some of random, another, restart, twice, one and other; the order of the plan,
which the others are compared with, is always asked. Each pass is printed when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from goals import Goal, show_goals

from flipmeter.ask.llama import LlamaBackend
from flipmeter.ask.names import identity_of, open_backend
from flipmeter.ask.plan import plan
from flipmeter.run.rate import Rating, seat
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Call, Model, Request

QUERIES = 3
PLAN = "plan"


class Watched(LlamaBackend):
    """An engine that counts the tokens that it computes."""

    n_processed = 0

    def _complete(self, tokens: list[int], body: Mapping[str, Any]) -> dict[str, Any]:
        answer = super()._complete(tokens, body)
        usage = answer.get("usage", {})
        n_cached = usage.get("prompt_tokens_details", {}).get("cached_tokens")
        self.n_processed += (usage.get("prompt_tokens") or 0) - (n_cached or 0)
        return answer


@dataclass(frozen=True)
class Heard:
    text: str
    scores: tuple[float, ...] | None


@dataclass(frozen=True)
class Pass:
    """Prompts as they were asked: what was heard, tokens computed, and seconds."""

    name: str
    heard: Sequence[tuple[str, Heard]]
    n_tokens: int
    seconds: float

    def n_different(self, base: Mapping[str, Heard]) -> int:
        return sum(heard != base[key] for key, heard in self.heard)

    def told(self, base: Mapping[str, Heard]) -> str:
        texts = sum(heard.text != base[key].text for key, heard in self.heard)
        bits = sum(heard.scores != base[key].scores for key, heard in self.heard)
        return (
            f"{self.name:36} {len(self.heard):5} replies, {texts} texts and {bits} scores differ; "
            f"{self.n_tokens:,} tokens computed in {self.seconds:.0f} s"
        )


def short_calls(model: str, n_prompts: int) -> list[Call]:
    """Calls of one shot per class, three behind each of many sets of demonstrations."""
    study = read_study(
        {
            "models": [model],
            "datasets": ["reviews"],
            "seeds": list(range(-(-n_prompts // QUERIES))),
            "test_size": 60,
            "probes": ["label_order"],
            "repeats": 1,
            "base": {"shots": 1, "cardinality": 3, "label_format": "natural_language"},
            "decoding": {"max_tokens": 4},
        }
    )
    grid = [
        replace(c, items=tuple(Random(c.seed).sample(c.items, QUERIES)))
        for c in conditions(study)
        if c.view.name == "base"
    ]
    identity = identity_of(grid[0].rater.model)
    return list(Rating(grid, {seat(c): identity for c in grid}).calls())[:n_prompts]


async def ask(path: Path, name: str, requests: Sequence[Request], lives: int = 1) -> Pass:
    """Ask in the order given, with a new engine for each of some equal parts."""
    start, n_tokens = time.perf_counter(), 0
    heard: list[tuple[str, Heard]] = []
    size = -(-len(requests) // lives)
    for first in range(0, len(requests), size):
        engine = Watched(path, "watched")
        for request in requests[first : first + size]:
            reply = await engine.ask(request)
            assert not reply.error, reply.error
            heard.append((request.key, Heard(reply.text, reply.scores)))
        n_tokens += engine.n_processed
        await engine.close()
    return Pass(name, heard, n_tokens, time.perf_counter() - start)


@dataclass(frozen=True)
class Order:
    """One way to ask the prompts, with so many engines one after the other."""

    name: str
    requests: Sequence[Request]
    lives: int = 1


def orders(calls: Sequence[Call]) -> dict[str, Order]:
    """Every way to ask, the order of the plan first."""
    planned = plan(calls).requests
    mixed = [Random(seed).sample(planned, len(planned)) for seed in (1, 2, 3)]
    third = len(calls) // 3
    return {
        PLAN: Order("in the order of the plan", planned),
        "random": Order("random order", mixed[0]),
        "another": Order("another random order", mixed[1]),
        "restart": Order("stopped half way, then a new engine", mixed[2], lives=2),
        "twice": Order("each twice in a row", [r for r in planned for _ in range(2)]),
        "one": Order("inside one study", plan(calls[: 2 * third]).requests),
        "other": Order("inside another study", plan(calls[third:]).requests),
    }


async def compare(path: Path, chosen: Sequence[Order]) -> tuple[int, int]:
    """Number of replies, and of those that differ from the first order's."""
    base: dict[str, Heard] = {}
    n = n_different = 0
    for order in chosen:
        found = await ask(path, order.name, order.requests, order.lives)
        base = base or dict(found.heard)
        print(found.told(base), flush=True)
        n, n_different = n + len(found.heard), n_different + found.n_different(base)
    return n, n_different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--model", default="local/smollm2-135m")
    parser.add_argument("--passes", default="", help="some of the orders, with commas between them")
    options = parser.parse_args()
    backend = open_backend(Model(options.model))
    assert isinstance(backend, LlamaBackend), "only engines in this process can be tested"
    every = orders(short_calls(options.model, options.prompts))
    names = [name for name in options.passes.split(",") if name] or list(every)
    unknown = [name for name in names if name not in every]
    if unknown:
        parser.error(f"no pass named {unknown[0]}; there are {', '.join(every)}")
    print(backend.identity)
    chosen = [every[name] for name in dict.fromkeys([PLAN, *names])]
    n, n_different = asyncio.run(compare(backend.path, chosen))
    what = f"replies that depend on the order, of {n:,} to {options.prompts} prompts"
    show_goals([Goal(what, n_different, "<=", 0)])


if __name__ == "__main__":
    main()
