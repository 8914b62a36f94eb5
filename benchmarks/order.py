"""Ask the embedded engine the same short prompts in several orders, and count what differs.

    python benchmarks/order.py [--prompts 500] [--model local/smollm2-135m]

One worked example per class, three queries behind each set of examples. Held against the order of a
plan: two random orders, a run that is stopped half way and goes on in a new engine, each prompt
twice in a row, and two studies that share a third of the prompts. What counts as different is the
text, and the log-probabilities of the labels to the last bit.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table

from flipmeter.model import identity_of, open_backend
from flipmeter.model.backends.llama import LlamaBackend
from flipmeter.plan import plan
from flipmeter.run.rate import Rating, seat
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Call, Model, Request

QUERIES = 3


@dataclass(frozen=True)
class Heard:
    text: str
    scores: tuple[float, ...] | None


@dataclass(frozen=True)
class Pass:
    """The prompts asked once: what was heard, how many tokens were computed, how long it took."""

    name: str
    heard: dict[str, Heard]
    n_tokens: int
    seconds: float

    def n_different(self, base: Pass) -> int:
        return sum(heard != base.heard[key] for key, heard in self.heard.items())

    def row(self, base: Pass) -> list[str]:
        pairs = [(heard, base.heard[key]) for key, heard in self.heard.items()]
        texts = sum(a.text != b.text for a, b in pairs)
        bits = sum(a.scores != b.scores for a, b in pairs)
        counts = (len(pairs), texts, bits, self.n_tokens, round(self.seconds))
        return [self.name, *map(str, counts)]


def short_calls(model: str, n_prompts: int) -> list[Call]:
    """Return calls of one shot per class, three behind each of many sets of demonstrations."""
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
    start, heard, n_tokens = time.perf_counter(), {}, 0
    size = -(-len(requests) // lives)
    for first in range(0, len(requests), size):
        engine = LlamaBackend(path, "watched")
        for request in requests[first : first + size]:
            reply = await engine.ask(request)
            assert not reply.error, reply.error
            heard[request.key] = Heard(reply.text, reply.scores)
        n_tokens += engine.n_processed
        await engine.close()
    return Pass(name, heard, n_tokens, time.perf_counter() - start)


async def passes(path: Path, calls: Sequence[Call]) -> list[Pass]:
    """Ask everything five times over."""
    planned = plan(calls).requests
    mixed = [Random(seed).sample(planned, len(planned)) for seed in (1, 2, 3)]
    third = len(calls) // 3
    one, other = plan(calls[: 2 * third]).requests, plan(calls[third:]).requests
    return [
        await ask(path, "in the order of the plan", planned),
        await ask(path, "random order", mixed[0]),
        await ask(path, "another random order", mixed[1]),
        await ask(path, "stopped half way, then a new engine", mixed[2], lives=2),
        await ask(path, "each twice in a row", [r for r in planned for _ in range(2)]),
        await ask(path, "inside one study", one),
        await ask(path, "inside another study", other),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=500)
    parser.add_argument("--model", default="local/smollm2-135m")
    options = parser.parse_args()
    backend = open_backend(Model(options.model))
    assert isinstance(backend, LlamaBackend), "only engines in this process can be held to it"
    found = asyncio.run(passes(backend.path, short_calls(options.model, options.prompts)))
    names = ("", "prompts", "texts differ", "bits differ", "tokens computed", "seconds")
    table = Table(*names, title=backend.identity, title_justify="left")
    for one in found:
        table.add_row(*one.row(found[0]))
    Console().print(table)
    n_prompts = len(found[0].heard)
    n_different = sum(one.n_different(found[0]) for one in found)
    what = f"replies that depend on the order, {n_prompts} prompts {len(found)} times"
    show_goals([Goal(what, n_different, "<=", 0)])


if __name__ == "__main__":
    main()
