"""Perform a whole study against a mock endpoint, and print requests per second and CPU seconds.

    python benchmarks/throughput.py [--connections 256] [--latency 0.05] [--items 100] [--profile]

The mock runs in a process of its own, on another core where there is one. The clock covers all
that a user waits for: planning, asking, storing, deciding and measuring.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from pathlib import Path

from endpoint import Cost, mock, show, timed

from flipmeter.model import Ledger, Store
from flipmeter.runs import perform
from flipmeter.study import Study, read_study


def study(base_url: str, connections: int, n_items: int) -> Study:
    """Return a study on the bundled reviews with all probes, each view asked twice."""
    model = {"model": "http/mock", "base_url": base_url, "concurrency": connections}
    return read_study(
        {
            "models": [model],
            "datasets": ["reviews"],
            "seeds": [0, 1],
            "test_size": n_items,
            "repeat_views": ["all"],
        }
    )


def measure(base_url: str, connections: int, n_items: int) -> Cost:
    """Perform the study with an empty store."""
    found: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "r.sqlite") as store:
        asked = study(base_url, connections, n_items)
        with timed(lambda *cost: found.append(Cost(*cost)), "perform") as counts:
            ledger = Ledger()
            perform(asked, Path(folder) / "run", store, ledger=ledger)
            counts.append(ledger.asked)
    return found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--profile", action="store_true", help="print where the CPU time went")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    with mock(options.latency) as base_url:
        if profile:
            profile.enable()
        cost = measure(base_url, options.connections, options.items)
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    show(f"{options.connections} connections, {1000 * options.latency:g} ms latency", [cost])


if __name__ == "__main__":
    main()
