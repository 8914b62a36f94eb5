"""Rate 10^4 to 10^6 requests with replies that cost nothing, then compute what 10^8 would need.

    python benchmarks/scale.py [--largest 6] [--lot 50000] [--target 1e8] [--prompt 0.10]
                               [--cached 0.025] [--completion 0.40] [--per-second 300]

Everything is real but the model: plan, engine, the store on disk, parsing, decisions, tables and
estimates. Each size runs in a process of its own, so that its peak memory is its own; seconds are
CPU seconds, because other work shares the machine. Seeds are added, not items: a seed has 7 views
of 1,428 texts of about 150 characters behind 5 demonstrations for each of 5 classes. Prices are
dollars per million tokens of 4 characters; all of a head but its first use is taken as cached.
`--per-second` is what one replica of a model answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import polars as pl
from planning import items
from rich.console import Console
from rich.table import Table

from flipmeter.measure import measure
from flipmeter.model import Engine, Ledger, Store
from flipmeter.probe import contrasts_of, expand, probes
from flipmeter.run import rate as rate_stage
from flipmeter.run.rate import first_round, rate, seat
from flipmeter.run.record import spill
from flipmeter.run.record.rows import call_table, decision_table
from flipmeter.run.record.spill import Spill
from flipmeter.types import Condition, Model, Rater, Reply, Request, Scale, Task, Usage

N_VIEWS = len(expand(list(probes), 5))
PER_SEED = 10_000 // N_VIEWS
CHARACTERS = 4
"""Characters of a token, about."""
HEADERS = 600
"""Bytes of HTTP around a request and its reply, about."""
GB, MB = 1e9, 1e6


class Parrot:
    """A backend that answers at once with one of five labels, by the key."""

    identity = "parrot"
    concurrency = 256
    is_reproducible = True

    async def ask(self, request: Request) -> Reply:
        n_head, n_rest = len(request.script.head.text), len(request.script.rest)
        usage = Usage((n_head + n_rest) // CHARACTERS, n_head // CHARACTERS, 1)
        return Reply(str(1 + int(request.key[:8], 16) % 5), "stop", usage=usage, model="parrot")

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


@dataclass(frozen=True)
class Size:
    """What a study took: CPU seconds by stage, wall seconds, bytes on disk and in memory.

    `asking` is the peak of memory before the tables are made, `memory` that in all.
    """

    n_requests: int
    cpu: dict[str, float]
    wall: float
    store: int
    tables: int
    asking: int
    memory: int
    body: float
    tokens: float
    cached: float

    @property
    def rate(self) -> float:
        """Return how many requests the driver does in one second of a core."""
        return self.n_requests / self.cpu["ask"]

    @property
    def row(self) -> tuple[str, ...]:
        n = self.n_requests
        return (
            f"{n:,}",
            *(f"{seconds:.1f}" for seconds in self.cpu.values()),
            f"{self.wall:.0f}",
            f"{self.rate:,.0f}",
            f"{self.store / MB:,.1f}",
            f"{self.store / n:.0f}",
            f"{self.tables / n:.0f}",
            f"{self.asking / MB:,.0f}",
            f"{self.memory / MB:,.0f}",
        )


COLUMNS = (
    "requests",
    "CPU s: ask, store, decide",
    "tables",
    "measure",
    "wall s",
    "requests per CPU s",
    "store MB",
    "B each",
    "tables B each",
    "peak MB, asking",
    "peak MB",
)


def grid(n_requests: int) -> list[Condition]:
    """Return a study with as many seeds as it takes, each with demonstrations of its own."""
    task = Task(Scale(("very bad", "bad", "fair", "good", "very good")))
    rater = Rater(Model("http/none", base_url="http://127.0.0.1:1/v1"))
    tested, views = items(PER_SEED, "test"), expand(list(probes), 5)
    return [
        Condition(rater, "texts", task, seed, view, items(25, f"demo of {seed}"), tested)
        for seed in range(max(1, round(n_requests / 10_000)))
        for view in views
    ]


def rated(n_requests: int, lot: int) -> Size:
    """Rate a study from an empty store; so many decisions are in memory with all they rest on."""
    rate_stage.LOT = spill.MANY = lot
    conditions = grid(n_requests)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clock = [time.process_time()]
        decisions, calls, ledger = asyncio.run(_ask(conditions, folder))
        clock.append(time.process_time())
        asking = _peak()
        decisions.rows().collect().rechunk().write_parquet(folder / "decisions.parquet")
        calls.rows().collect().rechunk().write_parquet(folder / "calls.parquet")
        clock.append(time.process_time())
        measured = pl.read_parquet(folder / "decisions.parquet")
        measure(measured, contrasts_of(list(probes)), mode="recommended", reproducible=[])
        clock.append(time.process_time())
        stages = ("ask", "tables", "measure")
        spans = [end - start for start, end in pairwise(clock)]
        return Size(
            ledger.asked,
            dict(zip(stages, spans, strict=True)),
            time.perf_counter() - start,
            sum(file.stat().st_size for file in folder.glob("replies.sqlite*")),
            sum(file.stat().st_size for file in folder.glob("*.parquet")),
            asking,
            _peak(),
            _body(conditions),
            ledger.prompt_tokens / ledger.asked,
            ledger.cached_tokens / ledger.asked,
        )


async def _ask(conditions: Sequence[Condition], folder: Path) -> tuple[Spill, Spill, Ledger]:
    ledger = Ledger()
    decisions = Spill(folder / "pile", "decisions", decision_table([]))
    calls = Spill(folder / "pile", "calls", call_table([]))
    with Store(folder / "replies.sqlite") as store:
        engine = Engine({"parrot": Parrot()}, store, ledger)
        async for lot in rate(conditions, engine, {seat(conditions[0]): "parrot"}):
            decisions.add(decision_table(lot))
            calls.add(call_table(lot))
    return decisions, calls, ledger


def _peak() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _body(conditions: Sequence[Condition]) -> float:
    """Return the mean bytes of a request and its reply on the wire, from one seed's requests."""
    some = first_round(conditions[:N_VIEWS], {seat(conditions[0]): "parrot"}).requests[::97]
    sent = [json.dumps([vars(message) for message in one.script.messages]) for one in some]
    return sum(map(len, sent)) / len(sent) + 2 * HEADERS


def sizes(largest: int, lot: int) -> list[Size]:
    """Rate each power of ten in a fresh process."""
    context = multiprocessing.get_context("spawn")
    found = []
    for power in range(4, largest + 1):
        with context.Pool(1) as pool:
            found.append(pool.apply(rated, (10**power, lot)))
    return found


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens."""

    prompt: float
    cached: float
    completion: float

    def of(self, size: Size, n: float, *, is_cached: bool) -> float:
        cached = size.cached if is_cached else 0.0
        fresh = size.tokens - cached
        return n / 1e6 * (fresh * self.prompt + cached * self.cached + self.completion)


def needs(found: Sequence[Size], n: float, price: Price, per_second: float) -> dict[str, str]:
    """Compute what a study of some size takes from the two largest that were measured."""
    small, large = found[-2:]
    more = large.n_requests - small.n_requests

    def at(of_small: float, of_large: float) -> float:
        """Return the value on the line through both."""
        return of_large + (n - large.n_requests) * (of_large - of_small) / more

    asking = at(small.cpu["ask"], large.cpu["ask"])
    measuring = at(small.cpu["measure"], large.cpu["measure"])
    wire = n * large.body
    seconds = n / large.rate
    return {
        "store": f"{at(small.store, large.store) / GB:,.0f} GB in one SQLite file",
        "tables": f"{at(small.tables, large.tables) / GB:,.1f} GB of Parquet",
        "driver, asking": f"{asking / 3600:,.1f} h on one core ({n / asking:,.0f} requests/s)",
        "driver, measuring": f"{measuring / 60:,.0f} min",
        "memory of the driver": f"{at(small.memory, large.memory) / GB:,.0f} GB",
        "network": f"{wire / 1e12:,.2f} TB, {8 * wire / seconds / 1e6:,.0f} Mbit/s while asking",
        "prompt tokens": f"{n * large.tokens / 1e9:,.1f} billion, {large.cached / large.tokens:.0%}"
        " of them in heads",
        "money, nothing cached": f"${price.of(large, n, is_cached=False):,.0f}",
        "money, heads cached": f"${price.of(large, n, is_cached=True):,.0f}",
        f"replicas of {per_second:g}/s that saturate the driver": f"{large.rate / per_second:,.1f}",
        f"time on one replica of {per_second:g}/s": f"{n / per_second / 86400:,.1f} days",
        "drivers that finish in a day": f"{-(-asking // 86400):.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=6, help="the power of ten to end with")
    parser.add_argument("--lot", type=int, default=rate_stage.LOT, help="decisions at a time")
    parser.add_argument("--target", type=float, default=1e8)
    parser.add_argument("--prompt", type=float, default=0.10, help="dollars per million tokens")
    parser.add_argument("--cached", type=float, default=0.025)
    parser.add_argument("--completion", type=float, default=0.40)
    parser.add_argument("--per-second", type=float, default=300, help="requests of one replica")
    options = parser.parse_args()
    found = sizes(options.largest, options.lot)
    table = Table(*COLUMNS, title="Simulated replies, a real driver", title_justify="left")
    for size in found:
        table.add_row(*size.row)
    Console(width=140).print(table)
    price = Price(options.prompt, options.cached, options.completion)
    table = Table("", "", title=f"{options.target:,.0f} requests, computed", title_justify="left")
    for what, amount in needs(found, options.target, price, options.per_second).items():
        table.add_row(what, amount)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
