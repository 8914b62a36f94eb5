"""Label a file of 10^5 rows with a simulated rater, and print how memory and speed go along.

    python benchmarks/classify.py [--rows 100000] [--format csv]

Every text is another one, so that every row is a request, a reply in the store and a row of the
output. The rater's own table of all texts is in memory from the beginning. The exit code is 1 if
memory grows between the second fifth of the rows and the last, or if a row is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import polars as pl
from goals import Goal, show_goals
from rich.console import Console
from rich.table import Table

from flipmeter.ask.family import World
from flipmeter.ask.sim import latents
from flipmeter.ask.store import Store
from flipmeter.choose.card import Card
from flipmeter.choose.classify import Job, classify
from flipmeter.run.progress import Listener, Terms
from flipmeter.study.entries import TaskEntry
from flipmeter.types import Item, Reply, Request, Scale, Task

SCALE = Scale(("very negative", "negative", "neutral", "positive", "very positive"))
WORDS = "the plot is thin but the acting holds it up and no one in the room was bored for long "
FLAT = 0.05
"""The share by which memory may grow from the second fifth to the last."""
SAMPLES = 50


def texts(n: int) -> list[str]:
    return [f"text {k}: {WORDS[k % 40 :]}{WORDS[: k % 53]}" for k in range(n)]


def card() -> Card:
    """A rater with one demonstration of each class."""
    demos = [{"text": f"demonstration of {name}", "label": name} for name in SCALE.names]
    task = TaskEntry.of(Task(SCALE))
    return Card.model_validate({"model": "sim/honest", "task": task.model_dump(), "demos": demos})


def world(rows: list[str], rater: Card) -> World:
    """The rater's table: a class for every text and demonstration."""
    items = [Item(text, {"text": text}, 1 + k % 5) for k, text in enumerate(rows)]
    shown = rater.condition().demos
    return World(latents([*items, *shown], SCALE), SCALE.names)


def mebibytes() -> float:
    """The memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch(Listener):
    """Notes memory and time every so many replies."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.n_replies = every, 0
        self.held: list[float] = []
        self.seconds: list[float] = []
        self.began = time.perf_counter()

    def on_reply(self, request: Request, reply: Reply) -> None:
        self.n_replies += 1
        if self.n_replies % self.every == 0:
            self.held.append(mebibytes())
            self.seconds.append(time.perf_counter() - self.began)

    def fifth(self, number: int) -> float:
        """The median memory in one of five parts, the first is 1."""
        size = len(self.held) // 5
        return statistics.median(self.held[(number - 1) * size : number * size])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--format", choices=["csv", "jsonl", "parquet"], default="csv")
    asked = parser.parse_args()
    rater, rows = card(), texts(asked.rows)
    watch = Watch(max(1, asked.rows // SAMPLES))
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / f"texts.{asked.format}", Path(folder) / "labels.csv"
        frame = pl.DataFrame({"body": rows})
        {"csv": frame.write_csv, "jsonl": frame.write_ndjson, "parquet": frame.write_parquet}[
            asked.format
        ](source)  # type: ignore[operator]
        known = world(rows, rater)
        del frame, rows
        job = Job(source, out, "body")
        with Store(Path(folder) / "replies.sqlite") as store:
            work = classify(rater, job, store, Terms(listener=watch), world=known)
            done = asyncio.run(work)
        with out.open("rb") as file:
            n_lines = sum(1 for _ in file) - 1
        size = out.stat().st_size
    table = Table(title=f"{done.n_rows:,} rows of {asked.format}, {size / 2**20:.1f} MiB of labels")
    for name in ("rows", "MiB held", "seconds", "rows per second"):
        table.add_column(name, justify="right")
    for at in range(SAMPLES // 10 - 1, len(watch.held), SAMPLES // 10):
        n, seconds = (at + 1) * watch.every, watch.seconds[at]
        table.add_row(f"{n:,}", f"{watch.held[at]:.0f}", f"{seconds:.1f}", f"{n / seconds:,.0f}")
    Console().print(table)
    growth = watch.fifth(5) / watch.fifth(2) - 1
    show_goals([Goal("growth of memory, second fifth to last", growth, "<=", FLAT)])
    return int(growth > FLAT or n_lines != asked.rows)


if __name__ == "__main__":
    sys.exit(main())
