"""Run a study of 10^4 to 10^6 requests by the real verb, items growing, and print what it took.

    python benchmarks/scale.py [--largest 6] [--shape items|seeds] [--target 1e8] [--prompt 0.10]
                               [--cached 0.025] [--completion 0.40] [--per-second 300]

`flipmeter run` in a process of its own for each size: reading the file, plan, engine, the store on
disk, parsing, decisions, tables, estimates, verdicts and what is printed. The model is replaced by
a backend that answers at once. All probes, two repeats, texts of about 150 characters behind 5
demonstrations for each of 5 classes. A second run of the largest size has every reply in the store.
Seconds are CPU seconds, because other work may share the machine. Prices are dollars per million
tokens of 4 characters; all of a head but its first use is taken as cached. `--per-second` is what
one replica of a model answers.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from goals import Goal, alone, show_goals, show_table
from planning import WORDS
from rich.console import Console

from flipmeter.__main__ import main as flipmeter  # sets the allocator of every process spawned
from flipmeter.ask.family import Family, backends
from flipmeter.study.file import read_study
from flipmeter.study.grid import conditions
from flipmeter.types import Model, Reply, Request, Usage

CLASSES = ("very bad", "bad", "fair", "good", "very good")
CHARACTERS = 4
"""Characters of a token, about."""
HEADERS = 600
"""Bytes of HTTP around a request and its reply, about."""
APART = 150
"""Items that are set aside for demonstrations."""
GB, MB = 1e9, 1e6


class Parrot:
    """A backend that answers at once with one of five labels, by the key."""

    identity = "parrot"
    concurrency = 256
    is_reproducible = False

    async def ask(self, request: Request) -> Reply:
        n_head, n_rest = len(request.script.head.text), len(request.script.rest)
        usage = Usage((n_head + n_rest) // CHARACTERS, n_head // CHARACTERS, 1)
        return Reply(str(1 + int(request.key[:8], 16) % 5), "stop", usage=usage, model="parrot")

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


class Parrots(Family):
    """Models that answer at once."""

    about = "answers at once, by the key of a request"

    def open(self, model: Model, world: object, progress: object) -> Parrot:
        return Parrot()

    def identity_of(self, model: Model, world: object = None) -> str:
        return Parrot.identity

    def concurrency_of(self, model: Model) -> int:
        return Parrot.concurrency


backends.add("parrot", Parrots())


@dataclass(frozen=True)
class Size:
    """Cost of a run: CPU and wall seconds, bytes on disk and the most memory."""

    name: str
    n_requests: int
    cpu: float
    wall: float
    store: int
    tables: int
    memory: int
    tokens: float
    cached: float

    @property
    def rate(self) -> float:
        """Requests of the driver per second of one core."""
        return self.n_requests / self.cpu

    @property
    def row(self) -> tuple[str, ...]:
        n = self.n_requests
        return (
            self.name,
            f"{n:,}",
            f"{self.cpu:.1f}",
            f"{1000 * self.cpu / n:.3f}",
            f"{self.wall:.0f}",
            f"{self.store / n:.0f}",
            f"{self.tables / n:.0f}",
            f"{self.memory / MB:,.0f}",
        )


COLUMNS = (
    "",
    "requests",
    "CPU s",
    "CPU s per 1,000",
    "wall s",
    "store B each",
    "tables B each",
    "peak MB",
)


def write_study(folder: Path, n_requests: int, shape: str) -> Path:
    """A study of about so many requests on a file of its own: more items, or more seeds."""
    file = {"file": "texts.csv", "text": "text", "label": "label", "id": "id"}
    study = {
        "name": "scale",
        "models": ["parrot/one"],
        "datasets": [file | {"scale": list(CLASSES)}],
        "probes": ["label_order", "demo_order", "placement"],
        "repeats": 2,
        "base": {"shots": 5},
    }
    path = folder / "study.yaml"
    write_texts(folder / "texts.csv", 50)
    path.write_text(json.dumps(study | {"test_size": 5}))
    n_views = sum(len(one.items) for one in conditions(read_study(path))) / 5
    n_items = round(n_requests / n_views) if shape == "items" else 700
    seeds = list(range(max(1, round(n_requests / n_views / n_items))))
    write_texts(folder / "texts.csv", n_items + APART)
    path.write_text(json.dumps(study | {"test_size": n_items // 5 * 5, "seeds": seeds}))
    return path


def write_texts(path: Path, n: int) -> None:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "label"])
        for k in range(n):
            rows.writerow([f"i{k}", f"{k}: {WORDS[k % 40 :]}{WORDS[: k % 53]}", CLASSES[k % 5]])


def run(folder: str, name: str) -> Size:
    """Run the study of a folder by the verb, and say what this process took for it."""
    os.chdir(folder)
    sys.argv = ["flipmeter", "run", "study.yaml", "--anyway"]
    start, said = time.perf_counter(), StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(said), suppress(SystemExit):
        flipmeter()
    assert Path("runs/scale/run.json").exists(), said.getvalue()
    facts = json.loads(Path("runs/scale/run.json").read_text())["facts"]["asked"]
    n = facts["asked"] + facts["stored"]
    tables = sum(file.stat().st_size for file in Path("runs/scale").rglob("*.parquet"))
    return Size(
        name,
        n,
        time.process_time(),
        time.perf_counter() - start,
        sum(file.stat().st_size for file in Path(".flipmeter").glob("replies.sqlite*")),
        tables,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        facts["prompt_tokens"] / max(1, facts["asked"]),
        facts["cached_tokens"] / max(1, facts["asked"]),
    )


def sizes(largest: int, shape: str) -> list[Size]:
    """Run each power of ten in a fresh process, the largest twice."""
    found = []
    for power in range(4, largest + 1):
        with tempfile.TemporaryDirectory() as folder:
            write_study(Path(folder), 10**power, shape)
            names = [f"more {shape}", *(["all stored"] if power == largest else [])]
            for name in names:
                found.append(alone(run, folder, name))
                Console(width=140).print(*found[-1].row, highlight=False)
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
        """The value on the line through both."""
        return of_large + (n - large.n_requests) * (of_large - of_small) / more

    cpu = at(small.cpu, large.cpu)
    wire = n * (CHARACTERS * large.tokens + 2 * HEADERS)
    return {
        "store": f"{at(small.store, large.store) / GB:,.0f} GB in one SQLite file",
        "tables": f"{at(small.tables, large.tables) / GB:,.1f} GB of Parquet",
        "driver": f"{cpu / 3600:,.1f} h on one core ({n / cpu:,.0f} requests/s)",
        "memory of the driver": f"{at(small.memory, large.memory) / GB:,.1f} GB",
        "network": f"{wire / 1e12:,.2f} TB, {8 * wire / cpu / 1e6:,.0f} Mbit/s while asking",
        "prompt tokens": f"{n * large.tokens / 1e9:,.1f} billion, {large.cached / large.tokens:.0%}"
        " of them in heads",
        "money, nothing cached": f"${price.of(large, n, is_cached=False):,.0f}",
        "money, heads cached": f"${price.of(large, n, is_cached=True):,.0f}",
        f"replicas of {per_second:g}/s that saturate the driver": f"{large.rate / per_second:,.1f}",
        f"time on one replica of {per_second:g}/s": f"{n / per_second / 86400:,.1f} days",
        "drivers that finish in a day": f"{-(-cpu // 86400):.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=6, help="the power of ten to end with")
    parser.add_argument("--shape", choices=("items", "seeds"), default="items", help="what grows")
    parser.add_argument("--target", type=float, default=1e8)
    parser.add_argument("--prompt", type=float, default=0.10, help="dollars per million tokens")
    parser.add_argument("--cached", type=float, default=0.025)
    parser.add_argument("--completion", type=float, default=0.40)
    parser.add_argument("--per-second", type=float, default=300, help="requests of one replica")
    options = parser.parse_args()
    found = sizes(options.largest, options.shape)
    show_table("flipmeter run, replies at once", COLUMNS, (size.row for size in found))
    asked = found[:-1]
    if len(asked) > 1:
        price = Price(options.prompt, options.cached, options.completion)
        rows = needs(asked, options.target, price, options.per_second).items()
        show_table(f"{options.target:,.0f} requests, computed", ("", ""), rows)
        show_goals(
            [
                Goal("peak MB at the largest size", asked[-1].memory / MB, "<=", 400),
                Goal("peak / peak at a tenth", asked[-1].memory / asked[-2].memory, "<=", 1.2),
                Goal("CPU s per 1,000", 1000 / asked[-1].rate, "<=", 0.25),
                Goal("peak MB, all stored", found[-1].memory / MB, "<=", 400),
            ]
        )


if __name__ == "__main__":
    main()
