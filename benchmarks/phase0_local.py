"""Run Phase 0 with all ten rows against a local OpenAI-compatible server, and print its table.

    python benchmarks/phase0_local.py --data-dir DATA                    simulated raters, full size
    python benchmarks/phase0_local.py --data-dir DATA --embedded         the embedded model, reduced

The simulated rows carry the paper's names and nothing else of those models: each has a planted
tilt, so that the table can be checked. The embedded model answers for all ten rows as raw text,
so its rows must be equal; layout and stop are the recommended ones, because raw text continues the
paper's layout with one more example.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from flipmeter.ask.family import Backend
from flipmeter.ask.names import open_backend
from flipmeter.ask.pool import Ledger
from flipmeter.ask.store import Store
from flipmeter.data.load import load
from flipmeter.run.folder import Run
from flipmeter.run.perform import perform
from flipmeter.run.progress import Terms
from flipmeter.show.estimate_tables import phase0_view, tokens_table
from flipmeter.stats.estimates import phase0_table
from flipmeter.study.file import Study, find_study, read_study
from flipmeter.study.grid import world
from flipmeter.types import Model

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fake_endpoint import serve
from read_prompts import reading

PLANTED = [
    "sim/first-slot?strength=1.6&noise=0.15",
    "sim/last-slot?strength=1.0&hidden=4",
    "sim/first-slot?strength=0.8&noise=0.2",
    "sim/recency?strength=1.5&noise=0.25",
    "sim/biased-noisy?strength=1.2&noise=0.2&hidden=126",
    "sim/noisy?strength=0.5&hidden=156",
    "sim/noisy?strength=0.6&hidden=268",
    "sim/recency?strength=3.0&noise=0.2",
    "sim/refusing?strength=0.05&noise=0.4&hidden=500",
    "sim/honest?hidden=332",
]


# One engine answers for ten rows: one request of each at a time, and patience.
RAW = {"interface": "completions", "max_tokens": 8, "concurrency": 1, "timeout": 900.0}


def rows() -> dict[str, str]:
    """The ten model names as the endpoint knows them, with the rater that stands in."""
    study = read_study(find_study("phase0a"))
    names = [rater.model.address.partition("/")[2] for rater in study.raters()]
    return dict(zip(names, PLANTED, strict=True))


@contextmanager
def served(backends: Mapping[str, Backend]) -> Iterator[str]:
    """Serve some backends on loopback from a thread of their own."""
    started, stopped = threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}

    async def go() -> None:
        found["loop"] = asyncio.get_running_loop()
        async with serve(backends) as found["url"]:
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=(go(),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield str(found["url"])
    finally:
        found["loop"].call_soon_threadsafe(stopped.set)
        thread.join(timeout=10)


def study_for(name: str, data_dir: Path, is_embedded: bool) -> Study:
    """A Phase 0 study, as it is or cut down for the embedded model."""
    path = find_study(name)
    if not is_embedded:
        return read_study(path, data_dir=data_dir)
    changes: dict[str, Any] = {"mode": "recommended", "test_size": 20, "base.shots": 1}
    study = read_study(path, changes, data_dir=data_dir)
    raw = [entry.model_copy(update=RAW) for entry in study.models if not isinstance(entry, str)]
    return study.model_copy(update={"models": raw})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("FLIPMETER_DATA"))
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    os.environ["OPENROUTER_API_KEY"] = "not-needed-on-loopback"
    out = chosen.out or Path(tempfile.mkdtemp(prefix="phase0-"))
    if chosen.embedded:
        backends: dict[str, Backend] = {"*": open_backend(Model("local/smollm2-135m"))}
    else:
        known = world(load("sst5", data_dir=chosen.data_dir))
        backends = {name: reading(rater, known) for name, rater in rows().items()}
    done: dict[str, Run] = {}
    with served(backends) as url, Store(out / "replies.sqlite") as store:
        os.environ["OPENROUTER_BASE_URL"] = url
        for name in ("phase0a", "phase0b"):
            ledger, start = Ledger(), time.perf_counter()
            study = study_for(name, chosen.data_dir, chosen.embedded)
            done[name] = perform(study, out / name, store, Terms(ledger))
            seconds = time.perf_counter() - start
            print(f"{name}: {ledger.asked} requests in {seconds:.0f} s, {ledger.failed} failed")
    table = phase0_table(done["phase0a"].estimates, done["phase0b"].estimates)
    console = Console(width=140)
    console.print(phase0_view(table, done["phase0b"].study.mode))
    hidden = tokens_table(done["phase0b"].estimates)
    if hidden is not None:
        console.print(hidden)


if __name__ == "__main__":
    main()
